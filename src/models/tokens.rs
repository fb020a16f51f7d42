//! How long a conversation is in tokens, and what of it is sent when it is longer than the model's
//! window: older turns go first, then long tool results of the newest turn are shortened, then its
//! oldest rounds go. What the person said last and the newest round always stay.

use std::ops::Range;

use crate::fault::{Fault, FaultKind};
use crate::message::{Content, Message, Request, Role};
use crate::provider::Provider;

mod shorten;
mod vocabulary;

use vocabulary::Vocabulary;

/// What stands around a message, a call, a result or a tool on the wire and in the model's prompt.
const FRAME: u64 = 8;
/// No result is made shorter than this: its beginning, its end, and how much is missing.
const SHORTEST: u64 = 64;
/// Results are as long as they are.
const WHOLE: u64 = u64::MAX;

/// As much of a conversation as fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    pub messages: Vec<Message>,
    /// How many messages were left out.
    pub dropped: usize,
    /// How many tool results were shortened.
    pub shortened: usize,
    /// What is sent, with system prompt and tools: counted where that had to be, else estimated.
    pub tokens: u64,
}

/// How many tokens `text` is to the model, or more where its vocabulary is not known.
pub fn count(provider: Provider, id: &str, text: &str) -> u64 {
    Vocabulary::of(provider, id).count(text)
}

/// About how many tokens so many bytes of English or code are, without a vocabulary: for reports. Other scripts, numbers
/// and encoded data take more, up to a token a byte, so that no limit is to be decided by it.
pub fn estimate(bytes: u64) -> u64 {
    bytes.div_ceil(4)
}

/// Makes the conversation fit, so that with system prompt and tools it leaves `reserve` tokens of the window free. A
/// turn begins with what a person said and goes on to their next message; a round is what the model said in between,
/// and what its tools answered, which stay together. The fault says what is too long, and by how much.
pub fn fit(provider: Provider, id: &str, request: &Request, window: u32, reserve: u32) -> Result<Fitted, Fault> {
    let history = &request.messages;
    let room = u64::from(window.saturating_sub(reserve));
    let bytes = bytes(request);
    if bytes <= room {
        return Ok(Fitted { messages: history.clone(), dropped: 0, shortened: 0, tokens: estimate(bytes) });
    }
    let vocabulary = Vocabulary::of(provider, id);
    let of = |text: &str| vocabulary.count(text);
    let fixed = fixed(request, &of);
    let lengths: Vec<_> = history.iter().map(|message| Length::of(message, &of)).collect();
    let last = history.iter().rposition(said).unwrap_or(0);
    let question = lengths.get(last).map_or(0, |length| length.at(WHOLE));
    let overflow = |what: &str, tokens: u64, advice: &str| {
        Fault::new(
            FaultKind::ContextOverflow,
            format!(
                "{what} too long for {provider}:{id}: {tokens} tokens, with {fixed} of system prompt and tools, and of the window of \
                 {window} tokens {reserve} are kept for the answer; {advice}, or set RUNTIME_MODEL_CONTEXT_TOKENS if the model takes more"
            ),
        )
    };
    let Some(left) = room.checked_sub(fixed + question) else {
        return Err(overflow("the message is", question, "shorten the message, the system prompt or the tools"));
    };
    let Some(plan) = Plan::of(&lengths, &rounds(history, last), &turns(&history[..last]), left) else {
        let newest = rounds(history, last).pop().map_or(0, |round| sum(&lengths[round], SHORTEST));
        return Err(overflow("what the tools were called with is", question + newest, "let the model call fewer tools at once, with less"));
    };
    let (mut shortened, mut tokens) = (0, fixed);
    let mut messages = Vec::new();
    for (at, message) in history.iter().enumerate() {
        let Some(most) = plan.most(at).or((at == last).then_some(WHOLE)) else { continue };
        tokens += lengths[at].at(most);
        let mut message = message.clone();
        let results = message.content.iter_mut().filter_map(|content| match content {
            Content::ToolResult(result) => Some(result),
            Content::Text { .. } | Content::ToolCall(_) => None,
        });
        for (result, _) in results.zip(&lengths[at].results).filter(|(_, length)| **length > most) {
            result.content = shorten::shorten(&result.content, most, of);
            shortened += 1;
        }
        messages.push(message);
    }
    let dropped = history.len() - messages.len();
    tracing::debug!(dropped, shortened, "a conversation was made to fit the model's window");
    Ok(Fitted { messages, dropped, shortened, tokens })
}

/// Parts of a conversation that are sent, and how long a tool's result in each may be; what is in none goes.
struct Plan(Vec<(Range<usize>, u64)>);

impl Plan {
    /// None when the newest round does not fit even with its results as short as they get.
    fn of(lengths: &[Length], rounds: &[Range<usize>], turns: &[Range<usize>], mut room: u64) -> Option<Self> {
        let Some((newest, older)) = rounds.split_last() else { return Some(Self::with(Vec::new(), lengths, turns, room)) };
        let turn = rounds[0].start..newest.end;
        if let Some(left) = room.checked_sub(sum(&lengths[turn.clone()], WHOLE)) {
            return Some(Self::with(vec![(turn, WHOLE)], lengths, turns, left));
        }
        // Older rounds are worth little more than that they were: they stay, shortened, as long as the newest has a fair share.
        let newest_lengths = &lengths[newest.clone()];
        let whole = sum(newest_lengths, WHOLE);
        let share = whole.min(sum(newest_lengths, SHORTEST).max(room / 4));
        let stays = |from: usize| sum(&lengths[from..newest.start], SHORTEST) + share <= room;
        let from = older.iter().map(|round| round.start).find(|&from| stays(from)).unwrap_or(newest.start);
        let older = from..newest.start;
        let of_older = &lengths[older.clone()];
        if let Some(most) = room.checked_sub(whole).and_then(|left| widest(of_older, left)) {
            return Some(Self(vec![(older, most), (newest.clone(), WHOLE)]));
        }
        room = room.checked_sub(sum(of_older, SHORTEST))?;
        Some(Self(vec![(older, SHORTEST), (newest.clone(), widest(newest_lengths, room)?)]))
    }

    /// Turns are added from the newest back, until one does not fit even with its results shortened.
    fn with(mut parts: Vec<(Range<usize>, u64)>, lengths: &[Length], turns: &[Range<usize>], mut room: u64) -> Self {
        for turn in turns.iter().rev() {
            let Some(most) = widest(&lengths[turn.clone()], room) else { break };
            room -= sum(&lengths[turn.clone()], most);
            parts.push((turn.clone(), most));
        }
        Self(parts)
    }

    fn most(&self, at: usize) -> Option<u64> {
        self.0.iter().find(|(part, _)| part.contains(&at)).map(|(_, most)| *most)
    }
}

/// The tokens of a message: what cannot be shortened, and each tool's result.
struct Length {
    fixed: u64,
    results: Vec<u64>,
}

impl Length {
    fn of(message: &Message, of: &impl Fn(&str) -> u64) -> Self {
        let mut length = Self { fixed: FRAME, results: Vec::new() };
        for content in &message.content {
            length.fixed += match content {
                Content::Text { text } => of(text),
                Content::ToolCall(call) => {
                    of(&call.id) + of(&call.name) + of(&call.arguments.to_string()) + call.signature.as_deref().map_or(0, of) + FRAME
                }
                Content::ToolResult(result) => {
                    length.results.push(of(&result.content));
                    of(&result.id) + of(&result.name) + FRAME
                }
            };
        }
        length
    }

    /// With no result longer than `most`.
    fn at(&self, most: u64) -> u64 {
        self.fixed + self.results.iter().map(|result| most.min(*result)).sum::<u64>()
    }
}

fn sum(lengths: &[Length], most: u64) -> u64 {
    lengths.iter().map(|length| length.at(most)).sum()
}

/// How long results may be so that all fits: the longest are shortened, to the same length.
fn widest(lengths: &[Length], room: u64) -> Option<u64> {
    if sum(lengths, WHOLE) <= room {
        return Some(WHOLE);
    }
    if sum(lengths, SHORTEST) > room {
        return None;
    }
    let (mut fits, mut not) = (SHORTEST, room + 1);
    while fits + 1 < not {
        let middle = u64::midpoint(fits, not);
        if sum(lengths, middle) <= room {
            fits = middle;
        } else {
            not = middle;
        }
    }
    Some(fits)
}

/// Whether a message is what a person said, rather than what tools answered.
fn said(message: &Message) -> bool {
    message.role == Role::User && !message.content.iter().any(|content| matches!(content, Content::ToolResult(_)))
}

/// The turns before the newest one. What stands before the first question counts as one.
fn turns(history: &[Message]) -> Vec<Range<usize>> {
    ranges(history, 0, said)
}

/// The rounds of the newest turn after its question: each begins with something the model said.
fn rounds(history: &[Message], last: usize) -> Vec<Range<usize>> {
    ranges(history, (last + 1).min(history.len()), |message| message.role == Role::Assistant)
}

fn ranges(history: &[Message], from: usize, begins: impl Fn(&Message) -> bool) -> Vec<Range<usize>> {
    let mut starts: Vec<usize> = (from..history.len()).filter(|&at| at == from || begins(&history[at])).collect();
    starts.push(history.len());
    starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// System prompt and tools, which are always sent.
fn fixed(request: &Request, of: &impl Fn(&str) -> u64) -> u64 {
    let tools = request.tools.iter().map(|tool| of(&tool.name) + of(&tool.description) + of(&tool.schema.to_string()) + FRAME);
    request.system.as_deref().map_or(0, |system| of(system) + FRAME) + tools.sum::<u64>()
}

/// An upper bound of a request's tokens that needs no vocabulary: what fits in bytes need not be counted.
pub fn bytes(request: &Request) -> u64 {
    let of = |text: &str| text.len() as u64;
    fixed(request, &of) + request.messages.iter().map(|message| Length::of(message, &of).at(WHOLE)).sum::<u64>()
}

#[cfg(test)]
mod tests;
