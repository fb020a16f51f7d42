//! Conversations and memories in this process, for an agent without a database. Both are bounded: the least recently used
//! conversation is evicted, the oldest memory is dropped. Leases do not expire here: their holders live in this process and
//! release them when they end.

#![expect(clippy::unnecessary_wraps, reason = "a store that cannot fail answers in the words of one that can")]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use slipway_database::{
    ConversationSummary, Embedding, Fault, Generation, MemoryEntry, NewMemory, NewMessage, Page, Remembered, Role, StoredMessage, Turn,
    spelling,
};

use super::Conversation;
use crate::ids;

const MAX_CONVERSATIONS: usize = 1000;
const MAX_MESSAGES: usize = 500;
/// All conversations together, and one of them.
const MAX_TOTAL_BYTES: usize = 32 << 20;
const MAX_CONVERSATION_BYTES: usize = 8 << 20;
const MAX_MEMORIES: usize = 1000;
/// A longer query is cut, as in the database.
const MAX_QUERY_CHARS: usize = 500;
/// Two memories with a cosine of this or more have the same meaning.
const SAME_MEANING: f64 = 0.95;

#[derive(Default)]
pub(crate) struct MemoryStore {
    conversations: Mutex<Conversations>,
    memories: Mutex<VecDeque<StoredMemory>>,
}

/// Conversations by id, and their ids by when they were touched last.
#[derive(Default)]
struct Conversations {
    clock: u64,
    bytes: usize,
    by_id: HashMap<String, ConversationState>,
    by_age: BTreeMap<u64, String>,
}

struct ConversationState {
    touched: u64,
    title: String,
    created_at: Timestamp,
    updated_at: Timestamp,
    messages: VecDeque<StoredMessage>,
    bytes: usize,
    generating: Option<OpenTurn>,
}

/// The turn that has a conversation.
struct OpenTurn {
    turn: String,
    since: Timestamp,
    partial: String,
}

struct StoredMemory {
    entry: MemoryEntry,
    embedding: Option<Embedding>,
}

impl MemoryStore {
    pub(super) fn conversations(&self, limit: u32, cursor: Option<&str>, search: Option<&str>) -> Result<Page<ConversationSummary>, Fault> {
        let before = match cursor {
            Some(cursor) => cursor.parse().map_err(|_| Fault::Refused("`cursor` must be the `next_cursor` of an earlier page".into()))?,
            None => u64::MAX,
        };
        let search = search.map(|text| text.trim().to_lowercase()).filter(|text| !text.is_empty());
        let conversations = self.lock_conversations();
        let fits = |conversation: &ConversationState| search.as_deref().is_none_or(|text| conversation.contains(text));
        let mut found = conversations.by_age.range(..before).rev().filter_map(|(age, id)| Some((age, id, conversations.by_id.get(id)?)));
        let mut page = Page { items: Vec::new(), next_cursor: None };
        let mut last = None;
        for (age, id, conversation) in found.by_ref().filter(|(.., conversation)| fits(conversation)) {
            if page.items.len() == limit as usize {
                page.next_cursor = last;
                break;
            }
            page.items.push(conversation.summary(id));
            last = Some(age.to_string());
        }
        Ok(page)
    }

    pub(super) fn conversation(&self, id: &str) -> Result<Option<Conversation>, Fault> {
        Ok(self
            .lock_conversations()
            .by_id
            .get(id)
            .map(|conversation| (conversation.summary(id), conversation.messages.iter().cloned().collect())))
    }

    pub(super) fn history(&self, id: &str, last: u32) -> Result<Vec<StoredMessage>, Fault> {
        Ok(self.lock_conversations().newest(id, last))
    }

    pub(super) fn delete_conversation(&self, id: &str) -> Result<bool, Fault> {
        let mut conversations = self.lock_conversations();
        Ok(conversations.remove(id))
    }

    pub(super) fn begin_turn(&self, turn: &Turn, title: &str, message: NewMessage, latest: u32) -> Result<Vec<StoredMessage>, Fault> {
        let (id, now) = (turn.conversation(), Timestamp::now());
        let mut conversations = self.lock_conversations();
        if conversations.by_id.get(id).is_some_and(|conversation| conversation.generating.is_some()) {
            return Err(Fault::Busy);
        }
        let conversation = conversations.touch(id, title, now);
        conversation.generating = Some(OpenTurn { turn: turn.id().to_owned(), since: now, partial: String::new() });
        conversations.append(id, [message], now);
        Ok(conversations.newest(id, latest))
    }

    pub(super) fn progress(&self, turn: &Turn, partial: &str) -> Result<(), Fault> {
        let mut conversations = self.lock_conversations();
        let generating = conversations.by_id.get_mut(turn.conversation()).and_then(|conversation| conversation.generating.as_mut());
        let own = generating.filter(|generating| generating.turn == turn.id()).ok_or(Fault::Busy)?;
        partial.clone_into(&mut own.partial);
        Ok(())
    }

    pub(super) fn finish_turn(&self, turn: &Turn, messages: Vec<NewMessage>) -> Result<(), Fault> {
        let (id, now) = (turn.conversation(), Timestamp::now());
        let mut conversations = self.lock_conversations();
        let Some(conversation) = conversations.by_id.get_mut(id) else {
            return Err(Fault::Refused("the conversation has been deleted".to_owned()));
        };
        // Deleted and begun anew, it is another's.
        conversation.generating.take_if(|generating| generating.turn == turn.id()).ok_or(Fault::Busy)?;
        if !messages.is_empty() {
            conversations.touch(id, "", now);
        }
        conversations.append(id, messages, now);
        Ok(())
    }

    pub(super) fn generation(&self, id: &str) -> Result<Option<Generation>, Fault> {
        Ok(self.lock_conversations().by_id.get(id).map(|conversation| match &conversation.generating {
            Some(OpenTurn { since, partial, .. }) => Generation::Generating { partial: partial.clone(), since: *since },
            None => Generation::Idle,
        }))
    }

    pub(super) fn set_title(&self, id: &str, title: &str) -> Result<bool, Fault> {
        Ok(self.lock_conversations().by_id.get_mut(id).map(|conversation| title.clone_into(&mut conversation.title)).is_some())
    }

    pub(super) fn memories(&self, limit: u32, cursor: Option<&str>) -> Result<Page<MemoryEntry>, Fault> {
        let memories = self.lock_memories();
        let newest = memories.iter().rev().skip_while(|memory| cursor.is_some_and(|cursor| memory.entry.id.as_str() >= cursor));
        let items: Vec<_> = newest.take(limit as usize + 1).map(|memory| memory.entry.clone()).collect();
        let more = items.len() > limit as usize;
        let items: Vec<_> = items.into_iter().take(limit as usize).collect();
        let next_cursor = items.last().filter(|_| more).map(|entry| entry.id.clone());
        Ok(Page { items, next_cursor })
    }

    pub(super) fn remember(&self, memory: NewMemory) -> Result<Remembered, Fault> {
        let mut memories = self.lock_memories();
        let words = spelling(&memory.content);
        let known = memories.iter().position(|known| spelling(&known.entry.content) == words);
        let known = known.or_else(|| {
            let close = memories.iter().map(|known| cosine(known.embedding.as_ref(), memory.embedding.as_ref())).enumerate();
            let nearest = close.filter_map(|(at, close)| Some((at, close?))).max_by(|(_, a), (_, b)| a.total_cmp(b));
            nearest.filter(|(_, close)| *close >= SAME_MEANING).map(|(at, _)| at)
        });
        if let Some(known) = known.and_then(|at| memories.get_mut(at)) {
            let NewMemory { content, category, source, embedding } = memory;
            known.entry = MemoryEntry { content, category, source, ..known.entry.clone() };
            known.embedding = embedding.or(known.embedding.take());
            return Ok(Remembered { entry: known.entry.clone(), existed: true });
        }
        let NewMemory { content, category, source, embedding } = memory;
        let id = ids::make("mem").map_err(|error| Fault::Broken(error.to_string()))?;
        let entry = MemoryEntry { id, content, category, source, relevance: None, created_at: Timestamp::now() };
        memories.push_back(StoredMemory { entry: entry.clone(), embedding });
        if memories.len() > MAX_MEMORIES {
            memories.pop_front();
        }
        Ok(Remembered { entry, existed: false })
    }

    /// In the order of the database: the nearest vectors first, then words, for what has no vector to compare.
    pub(super) fn search_memories(&self, query: &str, embedding: Option<&Embedding>, top: u32) -> Result<Vec<MemoryEntry>, Fault> {
        let memories = self.lock_memories();
        let (mut near, mut worded) = (Vec::new(), Vec::new());
        let query = words(query);
        for memory in memories.iter().rev() {
            if let Some(cosine) = cosine(memory.embedding.as_ref(), embedding) {
                near.push((cosine, memory));
            } else if let Some(share) = shared(&query, &memory.entry.content) {
                worded.push((share, memory));
            }
        }
        // Stable: of equals the newest comes first.
        near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        worded.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let found = near.into_iter().chain(worded).take(top as usize);
        Ok(found.map(|(relevance, memory)| MemoryEntry { relevance: Some(relevance.clamp(0.0, 1.0)), ..memory.entry.clone() }).collect())
    }

    pub(super) fn forget(&self, id: &str) -> Result<bool, Fault> {
        let mut memories = self.lock_memories();
        let before = memories.len();
        memories.retain(|memory| memory.entry.id != id);
        Ok(memories.len() < before)
    }

    pub(super) fn memory_count(&self) -> Result<i64, Fault> {
        Ok(i64::try_from(self.lock_memories().len()).unwrap_or(i64::MAX))
    }

    /// Nothing in here panics half-way through a change, so a poisoned lock still guards whole data.
    fn lock_conversations(&self) -> MutexGuard<'_, Conversations> {
        self.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_memories(&self) -> MutexGuard<'_, VecDeque<StoredMemory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Conversations {
    fn newest(&self, id: &str, latest: u32) -> Vec<StoredMessage> {
        let messages = self.by_id.get(id).map(|conversation| &conversation.messages);
        messages.into_iter().flat_map(|all| all.iter().skip(all.len().saturating_sub(latest as usize))).cloned().collect()
    }

    fn touch(&mut self, id: &str, title: &str, now: Timestamp) -> &mut ConversationState {
        self.clock += 1;
        let conversation = self.by_id.entry(id.to_owned()).or_insert_with(|| ConversationState {
            touched: 0,
            title: title.to_owned(),
            created_at: now,
            updated_at: now,
            messages: VecDeque::new(),
            bytes: 0,
            generating: None,
        });
        self.by_age.remove(&conversation.touched);
        self.by_age.insert(self.clock, id.to_owned());
        conversation.touched = self.clock;
        conversation.updated_at = now;
        conversation
    }

    fn append(&mut self, id: &str, messages: impl IntoIterator<Item = NewMessage>, now: Timestamp) {
        let Some(conversation) = self.by_id.get_mut(id) else { return };
        self.bytes -= conversation.bytes;
        for message in messages {
            conversation.append(message, now);
        }
        self.bytes += conversation.bytes;
        self.evict();
    }

    /// Lets go of what was touched least recently; what is being generated stays, and so does the last.
    fn evict(&mut self) {
        while self.by_id.len() > MAX_CONVERSATIONS || (self.bytes > MAX_TOTAL_BYTES && self.by_id.len() > 1) {
            let idle = |id: &String| self.by_id.get(id).is_none_or(|conversation| conversation.generating.is_none());
            let Some(id) = self.by_age.values().find(|id| idle(id)).cloned() else { return };
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &str) -> bool {
        let Some(conversation) = self.by_id.remove(id) else { return false };
        self.by_age.remove(&conversation.touched);
        self.bytes -= conversation.bytes;
        true
    }
}

impl ConversationState {
    fn summary(&self, id: &str) -> ConversationSummary {
        ConversationSummary {
            id: id.to_owned(),
            title: self.title.clone(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            message_count: i64::try_from(self.messages.len()).unwrap_or(i64::MAX),
        }
    }

    /// Whether a text, in lower case, is in its title or in what was said.
    fn contains(&self, text: &str) -> bool {
        let mut said = self.messages.iter().filter(|message| message.role != Role::Tool).map(|message| &message.content);
        said.any(|content| content.to_lowercase().contains(text)) || self.title.to_lowercase().contains(text)
    }

    fn append(&mut self, message: NewMessage, now: Timestamp) {
        let NewMessage { id, role, content, parts, trace_id, interrupted } = message;
        self.messages.push_back(StoredMessage { id, role, content, parts, trace_id, interrupted, created_at: now });
        self.bytes += self.messages.back().map_or(0, size);
        while self.messages.len() > MAX_MESSAGES || (self.bytes > MAX_CONVERSATION_BYTES && self.messages.len() > 1) {
            self.bytes -= self.messages.pop_front().as_ref().map_or(0, size);
        }
    }
}

/// About what a message takes.
fn size(message: &StoredMessage) -> usize {
    let parts = message.parts.as_ref().map_or(0, |parts| parts.to_string().len());
    size_of::<StoredMessage>() + message.content.len() + parts
}

/// The words of a query, in lower case. Those of fewer than four letters count only where there are no others.
fn words(query: &str) -> Vec<String> {
    let query: String = query.chars().take(MAX_QUERY_CHARS).collect::<String>().to_lowercase();
    let words = query.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let (long, short): (Vec<_>, Vec<_>) = words.map(str::to_owned).partition(|word| word.chars().count() >= 4);
    if long.is_empty() { short } else { long }
}

/// Which share of these words a text contains; none where it contains none of them.
#[expect(clippy::cast_precision_loss, reason = "a query has few words")]
fn shared(words: &[String], text: &str) -> Option<f64> {
    let text = text.to_lowercase();
    let found = words.iter().filter(|word| text.contains(word.as_str())).count();
    (found > 0).then(|| found as f64 / words.len() as f64)
}

/// Cosine of two embeddings of the same model.
fn cosine(one: Option<&Embedding>, other: Option<&Embedding>) -> Option<f64> {
    let (one, other) = (one?, other?);
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let (a, b) = (&one.vector, &other.vector);
    let lengths = (product(a, a) * product(b, b)).sqrt();
    (one.model == other.model && a.len() == b.len() && lengths > 0.0).then(|| product(a, b) / lengths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(bytes: usize) -> NewMessage {
        NewMessage::new(Role::User, "x".repeat(bytes))
    }

    fn turn(store: &MemoryStore, id: &str, bytes: usize) {
        let turn = Turn::new(id);
        store.begin_turn(&turn, "t", said(1), 0).unwrap();
        store.finish_turn(&turn, vec![said(bytes)]).unwrap();
    }

    #[test]
    fn a_turn_whose_conversation_is_anothers_writes_nothing_into_it() {
        let store = MemoryStore::default();
        let (late, newer) = (Turn::new("conv_1"), Turn::new("conv_1"));
        store.begin_turn(&late, "t", said(1), 0).unwrap();
        assert_eq!(store.begin_turn(&newer, "t", said(1), 0), Err(Fault::Busy));
        store.delete_conversation("conv_1").unwrap();
        assert_eq!(store.progress(&late, "x"), Err(Fault::Busy));
        assert!(matches!(store.finish_turn(&late, vec![said(7)]), Err(Fault::Refused(_))));
        store.begin_turn(&newer, "t", said(2), 0).unwrap();
        store.progress(&newer, "newer").unwrap();
        assert_eq!(store.progress(&late, "late"), Err(Fault::Busy));
        assert_eq!(store.finish_turn(&late, vec![said(7)]), Err(Fault::Busy));
        let Some(Generation::Generating { partial, .. }) = store.generation("conv_1").unwrap() else { panic!("it is generating") };
        assert_eq!(partial, "newer");
        store.finish_turn(&newer, vec![said(3).interrupted()]).unwrap();
        let lengths: Vec<_> = store.history("conv_1", 9).unwrap().into_iter().map(|said| (said.content.len(), said.interrupted)).collect();
        assert_eq!(lengths, [(2, false), (3, true)]);
    }

    #[test]
    fn what_is_kept_has_a_size() {
        let store = MemoryStore::default();
        for number in 0..100 {
            turn(&store, &format!("conv_{number}"), 1 << 20);
            assert!(store.lock_conversations().bytes <= MAX_TOTAL_BYTES, "{number}");
        }
        assert!(store.conversation("conv_99").unwrap().is_some() && store.conversation("conv_0").unwrap().is_none());
        for _ in 0..20 {
            turn(&store, "conv_long", 1 << 20);
        }
        assert!(store.lock_conversations().by_id["conv_long"].bytes <= MAX_CONVERSATION_BYTES);
        let conversations = store.lock_conversations();
        assert_eq!(conversations.bytes, conversations.by_id.values().map(|conversation| conversation.bytes).sum::<usize>());
        assert_eq!(conversations.by_age.len(), conversations.by_id.len());
    }

    #[test]
    fn the_least_recently_used_conversations_make_room() {
        let store = MemoryStore::default();
        for number in 0..=MAX_CONVERSATIONS {
            turn(&store, &format!("conv_{number}"), 1);
            turn(&store, "conv_0", 1);
        }
        assert!(store.conversation("conv_0").unwrap().is_some() && store.conversation("conv_1").unwrap().is_none());
        assert!(store.delete_conversation("conv_0").unwrap() && !store.delete_conversation("conv_0").unwrap());
    }
}
