//! Conversations and memories in this process, for an agent without a database. They are bounded:
//! what was touched least recently makes room, so that an agent never grows without end. A lease
//! never runs out here: whoever holds one lives in the same process and lets go when it dies.

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

const MOST_CONVERSATIONS: usize = 1000;
const MOST_MESSAGES: usize = 500;
/// All conversations together, and one of them.
const MOST_BYTES: usize = 32 << 20;
const LONGEST_ROOM: usize = 8 << 20;
const MOST_MEMORIES: usize = 1000;
/// A longer query is cut, as in the database.
const MAX_QUERY_CHARS: usize = 500;
/// Two memories this close say the same.
const SAME: f64 = 0.95;

#[derive(Default)]
pub(crate) struct Memory {
    rooms: Mutex<Rooms>,
    memories: Mutex<VecDeque<Kept>>,
}

/// Conversations by id, and their ids by when they were touched last.
#[derive(Default)]
struct Rooms {
    clock: u64,
    bytes: usize,
    by_id: HashMap<String, Room>,
    by_age: BTreeMap<u64, String>,
}

struct Room {
    touched: u64,
    title: String,
    created_at: Timestamp,
    updated_at: Timestamp,
    messages: VecDeque<StoredMessage>,
    bytes: usize,
    generating: Option<Generating>,
}

/// The turn that has a conversation.
struct Generating {
    turn: String,
    since: Timestamp,
    partial: String,
}

struct Kept {
    entry: MemoryEntry,
    embedding: Option<Embedding>,
}

impl Memory {
    pub(super) fn conversations(&self, limit: u32, cursor: Option<&str>, search: Option<&str>) -> Result<Page<ConversationSummary>, Fault> {
        let before = match cursor {
            Some(cursor) => cursor.parse().map_err(|_| Fault::Refused("`cursor` must be the `next_cursor` of an earlier page".into()))?,
            None => u64::MAX,
        };
        let search = search.map(|text| text.trim().to_lowercase()).filter(|text| !text.is_empty());
        let rooms = self.rooms();
        let fits = |room: &Room| search.as_deref().is_none_or(|text| room.says(text));
        let mut found = rooms.by_age.range(..before).rev().filter_map(|(age, id)| Some((age, id, rooms.by_id.get(id)?)));
        let mut page = Page { items: Vec::new(), next_cursor: None };
        let mut last = None;
        for (age, id, room) in found.by_ref().filter(|(.., room)| fits(room)) {
            if page.items.len() == limit as usize {
                page.next_cursor = last;
                break;
            }
            page.items.push(room.summary(id));
            last = Some(age.to_string());
        }
        Ok(page)
    }

    pub(super) fn conversation(&self, id: &str) -> Result<Option<Conversation>, Fault> {
        Ok(self.rooms().by_id.get(id).map(|room| (room.summary(id), room.messages.iter().cloned().collect())))
    }

    pub(super) fn history(&self, id: &str, last: u32) -> Result<Vec<StoredMessage>, Fault> {
        Ok(self.rooms().newest(id, last))
    }

    pub(super) fn delete_conversation(&self, id: &str) -> Result<bool, Fault> {
        let mut rooms = self.rooms();
        Ok(rooms.leave(id))
    }

    pub(super) fn begin_turn(&self, turn: &Turn, title: &str, message: NewMessage, latest: u32) -> Result<Vec<StoredMessage>, Fault> {
        let (id, now) = (turn.conversation(), Timestamp::now());
        let mut rooms = self.rooms();
        if rooms.by_id.get(id).is_some_and(|room| room.generating.is_some()) {
            return Err(Fault::Busy);
        }
        let room = rooms.touch(id, title, now);
        room.generating = Some(Generating { turn: turn.id().to_owned(), since: now, partial: String::new() });
        rooms.say(id, [message], now);
        Ok(rooms.newest(id, latest))
    }

    pub(super) fn progress(&self, turn: &Turn, partial: &str) -> Result<(), Fault> {
        let mut rooms = self.rooms();
        let generating = rooms.by_id.get_mut(turn.conversation()).and_then(|room| room.generating.as_mut());
        let own = generating.filter(|generating| generating.turn == turn.id()).ok_or(Fault::Busy)?;
        partial.clone_into(&mut own.partial);
        Ok(())
    }

    pub(super) fn finish_turn(&self, turn: &Turn, messages: Vec<NewMessage>) -> Result<(), Fault> {
        let (id, now) = (turn.conversation(), Timestamp::now());
        let mut rooms = self.rooms();
        let Some(room) = rooms.by_id.get_mut(id) else {
            return Err(Fault::Refused("the conversation has been deleted".to_owned()));
        };
        // Deleted and begun anew, it is another's.
        room.generating.take_if(|generating| generating.turn == turn.id()).ok_or(Fault::Busy)?;
        if !messages.is_empty() {
            rooms.touch(id, "", now);
        }
        rooms.say(id, messages, now);
        Ok(())
    }

    pub(super) fn generation(&self, id: &str) -> Result<Option<Generation>, Fault> {
        Ok(self.rooms().by_id.get(id).map(|room| match &room.generating {
            Some(Generating { since, partial, .. }) => Generation::Generating { partial: partial.clone(), since: *since },
            None => Generation::Idle,
        }))
    }

    pub(super) fn set_title(&self, id: &str, title: &str) -> Result<bool, Fault> {
        Ok(self.rooms().by_id.get_mut(id).map(|room| title.clone_into(&mut room.title)).is_some())
    }

    pub(super) fn memories(&self, limit: u32, cursor: Option<&str>) -> Result<Page<MemoryEntry>, Fault> {
        let kept = self.kept();
        let newest = kept.iter().rev().skip_while(|kept| cursor.is_some_and(|cursor| kept.entry.id.as_str() >= cursor));
        let items: Vec<_> = newest.take(limit as usize + 1).map(|kept| kept.entry.clone()).collect();
        let more = items.len() > limit as usize;
        let items: Vec<_> = items.into_iter().take(limit as usize).collect();
        let next_cursor = items.last().filter(|_| more).map(|entry| entry.id.clone());
        Ok(Page { items, next_cursor })
    }

    pub(super) fn remember(&self, memory: NewMemory) -> Result<Remembered, Fault> {
        let mut kept = self.kept();
        let words = spelling(&memory.content);
        let known = kept.iter().position(|known| spelling(&known.entry.content) == words);
        let known = known.or_else(|| {
            let close = kept.iter().map(|known| closeness(known.embedding.as_ref(), memory.embedding.as_ref())).enumerate();
            let nearest = close.filter_map(|(at, close)| Some((at, close?))).max_by(|(_, a), (_, b)| a.total_cmp(b));
            nearest.filter(|(_, close)| *close >= SAME).map(|(at, _)| at)
        });
        if let Some(known) = known.and_then(|at| kept.get_mut(at)) {
            let NewMemory { content, category, source, embedding } = memory;
            known.entry = MemoryEntry { content, category, source, ..known.entry.clone() };
            known.embedding = embedding.or(known.embedding.take());
            return Ok(Remembered { entry: known.entry.clone(), existed: true });
        }
        let NewMemory { content, category, source, embedding } = memory;
        let id = ids::make("mem").map_err(|error| Fault::Broken(error.to_string()))?;
        let entry = MemoryEntry { id, content, category, source, relevance: None, created_at: Timestamp::now() };
        kept.push_back(Kept { entry: entry.clone(), embedding });
        if kept.len() > MOST_MEMORIES {
            kept.pop_front();
        }
        Ok(Remembered { entry, existed: false })
    }

    /// In the order of the database: the nearest vectors first, then words, for what has no vector to compare.
    pub(super) fn search_memories(&self, query: &str, embedding: Option<&Embedding>, top: u32) -> Result<Vec<MemoryEntry>, Fault> {
        let kept = self.kept();
        let (mut near, mut worded) = (Vec::new(), Vec::new());
        let query = words(query);
        for kept in kept.iter().rev() {
            if let Some(cosine) = closeness(kept.embedding.as_ref(), embedding) {
                near.push((cosine, kept));
            } else if let Some(share) = shared(&query, &kept.entry.content) {
                worded.push((share, kept));
            }
        }
        // Stable: of equals the newest comes first.
        near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        worded.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let found = near.into_iter().chain(worded).take(top as usize);
        Ok(found.map(|(relevance, kept)| MemoryEntry { relevance: Some(relevance.clamp(0.0, 1.0)), ..kept.entry.clone() }).collect())
    }

    pub(super) fn forget(&self, id: &str) -> Result<bool, Fault> {
        let mut kept = self.kept();
        let before = kept.len();
        kept.retain(|kept| kept.entry.id != id);
        Ok(kept.len() < before)
    }

    pub(super) fn memory_count(&self) -> Result<i64, Fault> {
        Ok(i64::try_from(self.kept().len()).unwrap_or(i64::MAX))
    }

    /// Nothing in here panics half-way through a change, so a poisoned lock still guards whole data.
    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rooms {
    fn newest(&self, id: &str, latest: u32) -> Vec<StoredMessage> {
        let messages = self.by_id.get(id).map(|room| &room.messages);
        messages.into_iter().flat_map(|all| all.iter().skip(all.len().saturating_sub(latest as usize))).cloned().collect()
    }

    fn touch(&mut self, id: &str, title: &str, now: Timestamp) -> &mut Room {
        self.clock += 1;
        let room = self.by_id.entry(id.to_owned()).or_insert_with(|| Room {
            touched: 0,
            title: title.to_owned(),
            created_at: now,
            updated_at: now,
            messages: VecDeque::new(),
            bytes: 0,
            generating: None,
        });
        self.by_age.remove(&room.touched);
        self.by_age.insert(self.clock, id.to_owned());
        room.touched = self.clock;
        room.updated_at = now;
        room
    }

    fn say(&mut self, id: &str, messages: impl IntoIterator<Item = NewMessage>, now: Timestamp) {
        let Some(room) = self.by_id.get_mut(id) else { return };
        self.bytes -= room.bytes;
        for message in messages {
            room.say(message, now);
        }
        self.bytes += room.bytes;
        self.make_room();
    }

    /// Lets go of what was touched least recently; what is being generated stays, and so does the last.
    fn make_room(&mut self) {
        while self.by_id.len() > MOST_CONVERSATIONS || (self.bytes > MOST_BYTES && self.by_id.len() > 1) {
            let idle = |id: &String| self.by_id.get(id).is_none_or(|room| room.generating.is_none());
            let Some(id) = self.by_age.values().find(|id| idle(id)).cloned() else { return };
            self.leave(&id);
        }
    }

    fn leave(&mut self, id: &str) -> bool {
        let Some(room) = self.by_id.remove(id) else { return false };
        self.by_age.remove(&room.touched);
        self.bytes -= room.bytes;
        true
    }
}

impl Room {
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
    fn says(&self, text: &str) -> bool {
        let mut said = self.messages.iter().filter(|message| message.role != Role::Tool).map(|message| &message.content);
        said.any(|content| content.to_lowercase().contains(text)) || self.title.to_lowercase().contains(text)
    }

    fn say(&mut self, message: NewMessage, now: Timestamp) {
        let NewMessage { id, role, content, parts, trace_id, interrupted } = message;
        self.messages.push_back(StoredMessage { id, role, content, parts, trace_id, interrupted, created_at: now });
        self.bytes += self.messages.back().map_or(0, weight);
        while self.messages.len() > MOST_MESSAGES || (self.bytes > LONGEST_ROOM && self.messages.len() > 1) {
            self.bytes -= self.messages.pop_front().as_ref().map_or(0, weight);
        }
    }
}

/// About what a message takes.
fn weight(message: &StoredMessage) -> usize {
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
fn closeness(one: Option<&Embedding>, other: Option<&Embedding>) -> Option<f64> {
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

    fn turn(store: &Memory, id: &str, bytes: usize) {
        let turn = Turn::new(id);
        store.begin_turn(&turn, "t", said(1), 0).unwrap();
        store.finish_turn(&turn, vec![said(bytes)]).unwrap();
    }

    #[test]
    fn a_turn_whose_conversation_is_anothers_writes_nothing_into_it() {
        let store = Memory::default();
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
        let store = Memory::default();
        for number in 0..100 {
            turn(&store, &format!("conv_{number}"), 1 << 20);
            assert!(store.rooms().bytes <= MOST_BYTES, "{number}");
        }
        assert!(store.conversation("conv_99").unwrap().is_some() && store.conversation("conv_0").unwrap().is_none());
        for _ in 0..20 {
            turn(&store, "conv_long", 1 << 20);
        }
        assert!(store.rooms().by_id["conv_long"].bytes <= LONGEST_ROOM);
        let rooms = store.rooms();
        assert_eq!(rooms.bytes, rooms.by_id.values().map(|room| room.bytes).sum::<usize>());
        assert_eq!(rooms.by_age.len(), rooms.by_id.len());
    }

    #[test]
    fn the_least_recently_used_conversations_make_room() {
        let store = Memory::default();
        for number in 0..=MOST_CONVERSATIONS {
            turn(&store, &format!("conv_{number}"), 1);
            turn(&store, "conv_0", 1);
        }
        assert!(store.conversation("conv_0").unwrap().is_some() && store.conversation("conv_1").unwrap().is_none());
        assert!(store.delete_conversation("conv_0").unwrap() && !store.delete_conversation("conv_0").unwrap());
    }
}
