//! Counts tokens. OpenAI's models are counted with their own vocabularies. For others the count is estimated from o200k with
//! a margin, which was measured on the texts of testdata/tokens.json against seven vocabularies. It is a safe estimate and no
//! bound; only the number of bytes is one. A vocabulary takes tens of megabytes, so it is loaded for the first text that is
//! too long in bytes.

use tiktoken_rs::CoreBPE;

use crate::provider::Provider;

/// Texts are counted in slices, because the tokenizer takes quadratic time on long runs without a break. Each cut adds at
/// most one token.
const SLICE_BYTES: usize = 1024;

pub(super) struct Vocabulary {
    words: &'static CoreBPE,
    /// `None` for the model's own vocabulary.
    margin: Option<Margin>,
}

/// The margin of another vocabulary over o200k, in hundredths.
struct Margin {
    /// Per token.
    tokens: u64,
    /// The least per character, by its length in UTF-8 from two to four bytes. Some vocabularies have few words of scripts
    /// other than Latin, and encode emoji byte by byte.
    characters: [u64; 3],
}

/// The margin per digit: in many vocabularies each digit is a token, in o200k three are one.
const DIGIT_TOKENS: u64 = 67;

impl Vocabulary {
    pub(super) fn of(provider: Provider, id: &str) -> Self {
        let begins = |names: &[&str]| names.iter().any(|name| id.starts_with(name));
        if provider == Provider::OpenAi && (id == "gpt-4" || begins(&["gpt-4-", "gpt-3.5", "gpt-35"])) {
            return Self { words: tiktoken_rs::cl100k_base_singleton(), margin: None };
        }
        let margin = match provider {
            Provider::Stub => None,
            // Models of other makers are served by the same protocol.
            Provider::OpenAi if begins(&["gpt-", "o1", "o3", "o4", "chatgpt-", "ft:gpt-", "codex-"]) => None,
            Provider::Ollama if begins(&["gpt-oss"]) => None,
            Provider::OpenAi | Provider::Ollama if is_recent(id) => Some(Margin { tokens: 130, characters: [120, 130, 400] }),
            Provider::OpenAi | Provider::Ollama => Some(Margin { tokens: 135, characters: [120, 200, 400] }),
            Provider::GoogleAi | Provider::VertexAi => Some(Margin { tokens: 125, characters: [0, 0, 0] }),
            // Only an early vocabulary of Claude is published; newer ones take three tenths more (Anthropic, "Token counting").
            Provider::Anthropic | Provider::Bedrock => Some(Margin { tokens: 190, characters: [150, 240, 400] }),
        };
        Self { words: tiktoken_rs::o200k_base_singleton(), margin }
    }

    pub(super) fn count(&self, text: &str) -> u64 {
        let tokens = match &self.margin {
            None => count(self.words, text),
            Some(margin) => margin.over(text, |text| count(self.words, text)),
        };
        tokens.min(text.len() as u64)
    }
}

/// The tokens of a text in a vocabulary, counted in slices.
pub(crate) fn count(words: &CoreBPE, text: &str) -> u64 {
    let mut rest = text;
    let mut tokens = 0;
    while !rest.is_empty() {
        let (slice, after) = rest.split_at(rest.floor_char_boundary(SLICE_BYTES));
        tokens += words.encode_ordinary(slice).len() as u64;
        rest = after;
    }
    tokens
}

/// Families of open models with large vocabularies, which were measured; others may be as small as that of Llama 2.
fn is_recent(id: &str) -> bool {
    let id = id.to_ascii_lowercase();
    ["llama3", "llama-3", "qwen", "gemma", "deepseek"].iter().any(|family| id.contains(family))
}

impl Margin {
    fn over(&self, text: &str, words: impl Fn(&str) -> u64) -> u64 {
        let mut tokens = words(text) * self.tokens;
        let foreign: u64 = text.chars().filter(|char| !char.is_ascii()).map(|char| self.characters[char.len_utf8() - 2]).sum();
        if foreign > 0 {
            let ascii: String = text.chars().filter(char::is_ascii).collect();
            tokens = tokens.max(words(&ascii) * self.tokens + foreign);
        }
        let digits = text.bytes().filter(u8::is_ascii_digit).count() as u64;
        (tokens + digits * DIGIT_TOKENS).div_ceil(100)
    }
}
