//! Prices and context windows of models: `prices.json`, a table with its date and sources. A model matches by id, with or
//! without the suffixes of providers (a date, `-latest`, `@001`, `-v1:0`). A model that is not in the table has no price.
//!
//! The runtime counts cost with it, and the operator reports agents without a price. Provider names are those of an Agent's
//! `modelType`. No I/O.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

#[derive(Default, Deserialize)]
struct Table {
    /// Provider → the `provider` of its rows, where that is another word.
    families: BTreeMap<String, String>,
    models: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    provider: String,
    id: String,
    window: Option<u32>,
    #[serde(flatten)]
    price: Price,
    long: Option<Long>,
}

/// US dollars per million tokens.
#[derive(Clone, Copy, Deserialize)]
struct Price {
    input: f64,
    cached: Option<f64>,
    output: f64,
}

/// The price for prompts above a number of tokens.
#[derive(Deserialize)]
struct Long {
    above: u64,
    #[serde(flatten)]
    price: Price,
}

// Empty if the file is malformed, which a test excludes.
static TABLE: LazyLock<Table> = LazyLock::new(|| serde_json::from_str(include_str!("prices.json")).unwrap_or_default());

/// The tokens of a call. `cached` is the part of `input` that was cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens {
    pub input: u64,
    pub cached: u64,
    pub output: u64,
}

/// The cost of a call in US dollars. Self-hosted models are free; `None` for a model that is not in the table.
pub fn cost(provider: &str, id: &str, tokens: Tokens) -> Option<f64> {
    if is_free(provider) {
        return Some(0.0);
    }
    let row = find(provider, id)?;
    let price = match &row.long {
        Some(long) if tokens.input > long.above => long.price,
        _ => row.price,
    };
    let cached = tokens.cached.min(tokens.input);
    let fresh = tokens.input - cached;
    let millionths =
        dollars(fresh, price.input) + dollars(cached, price.cached.unwrap_or(price.input)) + dollars(tokens.output, price.output);
    Some(millionths / 1e6)
}

/// Whether the price of a model is known.
pub fn is_known(provider: &str, id: &str) -> bool {
    is_free(provider) || find(provider, id).is_some()
}

fn is_free(provider: &str) -> bool {
    matches!(provider, "stub" | "ollama")
}

/// The model's context window, if the table has it.
pub fn window(provider: &str, id: &str) -> Option<u32> {
    find(provider, id)?.window
}

// Counts of tokens stay far below 2^53.
#[expect(clippy::cast_precision_loss)]
fn dollars(tokens: u64, price: f64) -> f64 {
    tokens as f64 * price
}

fn find(provider: &str, id: &str) -> Option<&'static Row> {
    let family = TABLE.families.get(provider).map_or(provider, String::as_str);
    let rows = || TABLE.models.iter().filter(|row| row.provider == family);
    let named = |id: &str| rows().filter(|row| is(&row.id, id)).max_by_key(|row| row.id.len());
    named(id).or_else(|| {
        let (region, rest) = id.split_once('.')?;
        (family == "bedrock" && ["us", "eu", "apac", "jp", "au", "ca", "global"].contains(&region)).then(|| named(rest)).flatten()
    })
}

/// Whether `id` is the model `known`, with or without a version.
fn is(known: &str, id: &str) -> bool {
    let Some(rest) = id.strip_prefix(known) else { return false };
    rest.is_empty()
        || rest == "-latest"
        || rest.starts_with('@')
        || rest.strip_prefix("-v").or(rest.strip_prefix(':')).is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
        || rest.strip_prefix('-').is_some_and(|date| date.len() >= 3 && date.bytes().take(3).all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_valid() {
        let table: Table = serde_json::from_str(include_str!("prices.json")).unwrap();
        assert!(table.models.len() > 100, "{}", table.models.len());
        for (at, row) in table.models.iter().enumerate() {
            let price = row.price;
            assert!(price.input > 0.0 && price.output >= price.input * 0.5, "{}", row.id);
            assert!(price.cached.is_none_or(|cached| cached <= price.input), "{}", row.id);
            assert!(row.window.is_none_or(|window| (4_000..=20_000_000).contains(&window)), "{}", row.id);
            assert!(table.models[..at].iter().all(|other| (&other.provider, &other.id) != (&row.provider, &row.id)), "{} twice", row.id);
        }
        for (provider, family) in &table.families {
            assert!(table.models.iter().any(|row| row.provider == *family), "{provider} has no rows");
            assert!(table.models.iter().all(|row| row.provider != *provider), "rows of {provider} are not found; they belong to {family}");
        }
    }

    #[test]
    fn a_model_matches_with_its_version_and_no_other_model_does() {
        for (provider, id, known) in [
            ("openai", "gpt-4o", Some("gpt-4o")),
            ("openai", "gpt-4o-2024-08-06", Some("gpt-4o")),
            ("openai", "gpt-4o-mini-2024-07-18", Some("gpt-4o-mini")),
            ("openai", "gpt-4o-audio-preview", None),
            ("openai", "gpt-4.1", Some("gpt-4.1")),
            ("anthropic", "claude-sonnet-4-20250514", Some("claude-sonnet-4")),
            ("anthropic", "claude-sonnet-4-5-20250929", Some("claude-sonnet-4-5")),
            ("anthropic", "claude-sonnet-4-99", None),
            ("google-ai", "gemini-2.5-flash", Some("gemini-2.5-flash")),
            ("vertex-ai", "gemini-2.5-flash@001", Some("gemini-2.5-flash")),
            ("bedrock", "amazon.nova-micro-v1:0", Some("amazon.nova-micro")),
            ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", Some("anthropic.claude-sonnet-4-5")),
            ("bedrock", "global.anthropic.claude-sonnet-4-5-20250929-v1:0", Some("global.anthropic.claude-sonnet-4-5")),
            ("openai", "my-own-model", None),
        ] {
            assert_eq!(find(provider, id).map(|row| row.id.as_str()), known, "{provider} {id}");
        }
    }

    #[test]
    fn a_call_costs_what_its_tokens_cost() {
        let tokens = |input, output, cached| Tokens { input, cached, output };
        for (provider, id, tokens, dollars) in [
            ("openai", "gpt-4o", tokens(1_000_000, 0, 0), Some(2.5)),
            ("openai", "gpt-4o", tokens(1_000_000, 0, 1_000_000), Some(1.25)),
            ("openai", "gpt-4o", tokens(0, 1_000_000, 0), Some(10.0)),
            // Above 200,000 tokens the whole prompt costs more.
            ("google-ai", "gemini-2.5-pro", tokens(200_000, 0, 0), Some(0.25)),
            ("google-ai", "gemini-2.5-pro", tokens(400_000, 0, 0), Some(1.0)),
            ("stub", "stub-echo", tokens(9, 9, 0), Some(0.0)),
            ("ollama", "llama3.2", tokens(9, 9, 0), Some(0.0)),
            ("openai", "my-own-model", tokens(9, 9, 0), None),
        ] {
            let found = cost(provider, id, tokens);
            assert_eq!(is_known(provider, id), dollars.is_some(), "{provider} {id}");
            assert!(
                found.zip(dollars).map_or(found == dollars, |(found, dollars)| (found - dollars).abs() < 1e-9),
                "{provider} {id}: {found:?}, expected {dollars:?}"
            );
        }
    }
}
