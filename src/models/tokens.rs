//! How long a conversation is in tokens, and what of it is sent when it is longer than the model's
//! window. OpenAI's models are counted with their own vocabularies; for others, who publish none
//! that a small binary could carry, o200k is multiplied by a factor that rather counts too many.
//! A vocabulary takes tens of megabytes, so it is loaded at the first text that is too long in
//! bytes: a token is never shorter than a byte.

use tiktoken_rs::CoreBPE;

use crate::fault::{Fault, FaultKind};
use crate::message::{Content, Message, Request, Role};
use crate::provider::Provider;

/// What stands around a message, a call, a result or a tool on the wire and in the model's prompt.
const FRAME: u64 = 8;
/// Texts are counted in slices, since the vocabulary takes quadratic time on long runs without a
/// break. A cut adds at most a token.
const SLICE: usize = 1024;

/// As much of a conversation as fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    pub messages: Vec<Message>,
    /// How many of the oldest messages were left out.
    pub dropped: usize,
    /// What is sent, with system prompt and tools: counted where that had to be, else estimated.
    pub tokens: u64,
}

/// How many tokens `text` is to the model, or a little more.
pub fn count(provider: Provider, id: &str, text: &str) -> u64 {
    let vocabulary = Vocabulary::of(provider, id);
    vocabulary.count(text)
}

/// About how many tokens so many bytes are, without a vocabulary.
pub fn estimate(bytes: u64) -> u64 {
    bytes.div_ceil(4)
}

/// Leaves out the oldest turns until the rest, with system prompt and tools, leaves `reserve` tokens
/// of the window free. A turn begins with what a person said and goes on to their next message; when
/// the newest alone is too long, the oldest rounds of tool calls in it go, calls and results together.
/// What the person said last always stays: if that does not fit, the fault says by how much.
pub fn fit(provider: Provider, id: &str, request: &Request, window: u32, reserve: u32) -> Result<Fitted, Fault> {
    let room = u64::from(window.saturating_sub(reserve));
    let bytes = bytes(request);
    if bytes <= room {
        return Ok(Fitted { messages: request.messages.clone(), dropped: 0, tokens: estimate(bytes) });
    }
    let vocabulary = Vocabulary::of(provider, id);
    let fixed = fixed(request, &|text| vocabulary.count(text));
    let history = &request.messages;
    let last = history.iter().rposition(said).unwrap_or(0);
    let of = |messages: &[Message]| messages.iter().map(|message| length(message, &|text| vocabulary.count(text))).sum::<u64>();

    let question = history.get(last).map_or(0, |message| of(std::slice::from_ref(message)));
    let mut used = fixed + question;
    if used > room {
        return Err(Fault::new(
            FaultKind::ContextOverflow,
            format!(
                "the message is too long for {provider}:{id}: it has {question} tokens, system prompt and tools {fixed}, \
                 and of the window of {window} tokens {reserve} are kept for the answer; shorten the message or the tools"
            ),
        ));
    }
    // Rounds and turns are added from the newest back, until one does not fit.
    let mut keep = history.len();
    for round in rounds(history, last).into_iter().rev() {
        let more = of(&history[round.clone()]);
        if used + more > room {
            let messages: Vec<_> = history.get(last).into_iter().chain(&history[keep..]).cloned().collect();
            return Ok(Fitted { dropped: history.len() - messages.len(), messages, tokens: used });
        }
        used += more;
        keep = round.start;
    }
    keep = last.min(keep);
    for turn in turns(&history[..keep]).into_iter().rev() {
        let more = of(&history[turn.clone()]);
        if used + more > room {
            break;
        }
        used += more;
        keep = turn.start;
    }
    Ok(Fitted { messages: history[keep..].to_vec(), dropped: keep, tokens: used })
}

/// Whether a message is what a person said, rather than what tools answered.
fn said(message: &Message) -> bool {
    message.role == Role::User && !message.content.iter().any(|content| matches!(content, Content::ToolResult(_)))
}

/// The turns before the newest one. What stands before the first question counts as one.
fn turns(history: &[Message]) -> Vec<std::ops::Range<usize>> {
    ranges(history, 0, said)
}

/// The rounds of the newest turn after its question: each begins with something the model said.
fn rounds(history: &[Message], last: usize) -> Vec<std::ops::Range<usize>> {
    ranges(history, (last + 1).min(history.len()), |message| message.role == Role::Assistant)
}

fn ranges(history: &[Message], from: usize, begins: impl Fn(&Message) -> bool) -> Vec<std::ops::Range<usize>> {
    let mut starts: Vec<usize> = (from..history.len()).filter(|&at| at == from || begins(&history[at])).collect();
    starts.push(history.len());
    starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// System prompt and tools, which are always sent.
fn fixed(request: &Request, of: &impl Fn(&str) -> u64) -> u64 {
    let tools = request.tools.iter().map(|tool| of(&tool.name) + of(&tool.description) + of(&tool.schema.to_string()) + FRAME);
    request.system.as_deref().map_or(0, |system| of(system) + FRAME) + tools.sum::<u64>()
}

fn length(message: &Message, of: &impl Fn(&str) -> u64) -> u64 {
    let contents = message.content.iter().map(|content| match content {
        Content::Text { text } => of(text),
        Content::ToolCall(call) => {
            of(&call.id) + of(&call.name) + of(&call.arguments.to_string()) + call.signature.as_deref().map_or(0, of) + FRAME
        }
        Content::ToolResult(result) => of(&result.id) + of(&result.name) + of(&result.content) + FRAME,
    });
    contents.sum::<u64>() + FRAME
}

/// An upper bound of a request's tokens that needs no vocabulary: what fits in bytes need not be counted.
pub fn bytes(request: &Request) -> u64 {
    let of = |text: &str| text.len() as u64;
    fixed(request, &of) + request.messages.iter().map(|message| length(message, &of)).sum::<u64>()
}

struct Vocabulary {
    words: &'static CoreBPE,
    /// In hundredths.
    factor: u64,
}

impl Vocabulary {
    fn of(provider: Provider, id: &str) -> Self {
        let old = ["gpt-4-", "gpt-3.5", "gpt-35"].iter().any(|old| id.starts_with(old)) || id == "gpt-4";
        let (words, factor) = match provider {
            Provider::OpenAi if old => (tiktoken_rs::cl100k_base_singleton(), 100),
            Provider::OpenAi | Provider::Stub => (tiktoken_rs::o200k_base_singleton(), 100),
            Provider::GoogleAi | Provider::VertexAi => (tiktoken_rs::o200k_base_singleton(), 120),
            Provider::Ollama => (tiktoken_rs::o200k_base_singleton(), 130),
            Provider::Anthropic | Provider::Bedrock => (tiktoken_rs::o200k_base_singleton(), 150),
        };
        Self { words, factor }
    }

    fn count(&self, text: &str) -> u64 {
        let mut rest = text;
        let mut tokens = 0;
        while !rest.is_empty() {
            let (slice, after) = rest.split_at(rest.floor_char_boundary(SLICE));
            tokens += self.words.encode_ordinary(slice).len() as u64;
            rest = after;
        }
        (tokens * self.factor).div_ceil(100).min(text.len() as u64)
    }
}

#[cfg(test)]
mod tests;
