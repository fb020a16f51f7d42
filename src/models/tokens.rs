//! Fits a conversation into the context window: older turns are dropped first, then long tool results of the newest turn are
//! shortened, then its oldest rounds are dropped. The last message of the user and the newest round always stay.

use std::ops::Range;

use crate::fault::{FaultKind, ModelFault};
use crate::message::{Content, Message, ModelRequest, Role};
use crate::provider::Provider;

mod shorten;
pub(crate) mod vocabulary;

use vocabulary::Vocabulary;

/// The overhead of a message, a call, a result or a tool in the model's prompt.
const FRAMING_TOKENS: u64 = 8;
/// The least that is left of a shortened result: its beginning, its end, and a mark in between.
const MIN_RESULT_TOKENS: u64 = 64;
/// Results are not shortened.
const UNLIMITED: u64 = u64::MAX;

/// The part of a conversation that fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    pub messages: Vec<Message>,
    /// The number of dropped messages.
    pub dropped: usize,
    /// The number of shortened tool results.
    pub shortened: usize,
    /// The tokens of the request with system prompt and tools: counted if necessary, else estimated.
    pub tokens: u64,
}

/// The tokens of `text` for the model, or a higher estimate if its vocabulary is not known.
pub fn count(provider: Provider, id: &str, text: &str) -> u64 {
    Vocabulary::of(provider, id).count(text)
}

/// A rough estimate of the tokens of English text or code from its bytes, for reports. Other scripts, numbers and encoded data
/// take more, up to one token per byte, so it is no basis for limits.
pub fn estimate(bytes: u64) -> u64 {
    bytes.div_ceil(4)
}

/// Fits the conversation, with system prompt and tools, into the window minus `reserve` tokens. A turn extends from one user
/// message to the next; a round is one message of the model with the results of its tools, which stay together. The fault
/// says what is too long, and by how much.
pub fn fit(provider: Provider, id: &str, request: &ModelRequest, window: u32, reserve: u32) -> Result<Fitted, ModelFault> {
    let history = &request.messages;
    let room = u64::from(window.saturating_sub(reserve));
    let bytes = bytes(request);
    if bytes <= room {
        return Ok(Fitted { messages: history.clone(), dropped: 0, shortened: 0, tokens: estimate(bytes) });
    }
    let vocabulary = Vocabulary::of(provider, id);
    let of = |text: &str| vocabulary.count(text);
    let fixed = fixed(request, &of);
    let lengths: Vec<_> = history.iter().map(|message| MessageTokens::of(message, &of)).collect();
    let last = history.iter().rposition(said).unwrap_or(0);
    let question = lengths.get(last).map_or(0, |length| length.at(UNLIMITED));
    let overflow = |what: &str, tokens: u64, advice: &str| {
        ModelFault::new(
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
    let Some(plan) = FitPlan::of(&lengths, &rounds(history, last), &turns(&history[..last]), left) else {
        let newest = rounds(history, last).pop().map_or(0, |round| sum(&lengths[round], MIN_RESULT_TOKENS));
        return Err(overflow("what the tools were called with is", question + newest, "let the model call fewer tools at once, with less"));
    };
    let (mut shortened, mut tokens) = (0, fixed);
    let mut messages = Vec::new();
    for (at, message) in history.iter().enumerate() {
        let Some(most) = plan.most(at).or((at == last).then_some(UNLIMITED)) else { continue };
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

/// The parts of a conversation that are sent, each with the limit of its tool results.
struct FitPlan(Vec<(Range<usize>, u64)>);

impl FitPlan {
    /// `None` if the newest round does not fit even with all results shortened.
    fn of(lengths: &[MessageTokens], rounds: &[Range<usize>], turns: &[Range<usize>], mut room: u64) -> Option<Self> {
        let Some((newest, older)) = rounds.split_last() else { return Some(Self::with(Vec::new(), lengths, turns, room)) };
        let turn = rounds[0].start..newest.end;
        if let Some(left) = room.checked_sub(sum(&lengths[turn.clone()], UNLIMITED)) {
            return Some(Self::with(vec![(turn, UNLIMITED)], lengths, turns, left));
        }
        // Older rounds stay, shortened, as long as the newest round has a fair share.
        let newest_lengths = &lengths[newest.clone()];
        let whole = sum(newest_lengths, UNLIMITED);
        let share = whole.min(sum(newest_lengths, MIN_RESULT_TOKENS).max(room / 4));
        let stays = |from: usize| sum(&lengths[from..newest.start], MIN_RESULT_TOKENS) + share <= room;
        let from = older.iter().map(|round| round.start).find(|&from| stays(from)).unwrap_or(newest.start);
        let older = from..newest.start;
        let of_older = &lengths[older.clone()];
        if let Some(most) = room.checked_sub(whole).and_then(|left| widest(of_older, left)) {
            return Some(Self(vec![(older, most), (newest.clone(), UNLIMITED)]));
        }
        room = room.checked_sub(sum(of_older, MIN_RESULT_TOKENS))?;
        Some(Self(vec![(older, MIN_RESULT_TOKENS), (newest.clone(), widest(newest_lengths, room)?)]))
    }

    /// Adds turns from the newest to the oldest, until one does not fit even with its results shortened.
    fn with(mut parts: Vec<(Range<usize>, u64)>, lengths: &[MessageTokens], turns: &[Range<usize>], mut room: u64) -> Self {
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

/// The tokens of a message: the part that cannot be shortened, and each tool result.
struct MessageTokens {
    fixed: u64,
    results: Vec<u64>,
}

impl MessageTokens {
    fn of(message: &Message, of: &impl Fn(&str) -> u64) -> Self {
        let mut length = Self { fixed: FRAMING_TOKENS, results: Vec::new() };
        for content in &message.content {
            length.fixed += match content {
                Content::Text { text } => of(text),
                Content::ToolCall(call) => {
                    of(&call.id)
                        + of(&call.name)
                        + of(&call.arguments.to_string())
                        + call.signature.as_deref().map_or(0, of)
                        + FRAMING_TOKENS
                }
                Content::ToolResult(result) => {
                    length.results.push(of(&result.content));
                    of(&result.id) + of(&result.name) + FRAMING_TOKENS
                }
            };
        }
        length
    }

    /// The tokens with all results limited to `most`.
    fn at(&self, most: u64) -> u64 {
        self.fixed + self.results.iter().map(|result| most.min(*result)).sum::<u64>()
    }
}

fn sum(lengths: &[MessageTokens], most: u64) -> u64 {
    lengths.iter().map(|length| length.at(most)).sum()
}

/// The limit of results with which everything fits: the longest are shortened, to the same length.
fn widest(lengths: &[MessageTokens], room: u64) -> Option<u64> {
    if sum(lengths, UNLIMITED) <= room {
        return Some(UNLIMITED);
    }
    if sum(lengths, MIN_RESULT_TOKENS) > room {
        return None;
    }
    let (mut fits, mut not) = (MIN_RESULT_TOKENS, room + 1);
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

/// Whether a message is from the user, not a list of tool results.
fn said(message: &Message) -> bool {
    message.role == Role::User && !message.content.iter().any(|content| matches!(content, Content::ToolResult(_)))
}

/// The turns before the newest one. Messages before the first user message count as one.
fn turns(history: &[Message]) -> Vec<Range<usize>> {
    ranges(history, 0, said)
}

/// The rounds of the newest turn, each of which begins with a message of the model.
fn rounds(history: &[Message], last: usize) -> Vec<Range<usize>> {
    ranges(history, (last + 1).min(history.len()), |message| message.role == Role::Assistant)
}

fn ranges(history: &[Message], from: usize, begins: impl Fn(&Message) -> bool) -> Vec<Range<usize>> {
    let mut starts: Vec<usize> = (from..history.len()).filter(|&at| at == from || begins(&history[at])).collect();
    starts.push(history.len());
    starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// The tokens of system prompt and tools, which are always sent.
fn fixed(request: &ModelRequest, of: &impl Fn(&str) -> u64) -> u64 {
    let tools = request.tools.iter().map(|tool| of(&tool.name) + of(&tool.description) + of(&tool.schema.to_string()) + FRAMING_TOKENS);
    request.system.as_deref().map_or(0, |system| of(system) + FRAMING_TOKENS) + tools.sum::<u64>()
}

/// An upper bound of a request's tokens without a vocabulary: a request that fits in bytes need not be counted.
pub fn bytes(request: &ModelRequest) -> u64 {
    let of = |text: &str| text.len() as u64;
    fixed(request, &of) + request.messages.iter().map(|message| MessageTokens::of(message, &of).at(UNLIMITED)).sum::<u64>()
}

#[cfg(test)]
mod tests;
