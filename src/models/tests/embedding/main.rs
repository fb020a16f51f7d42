//! Embedders: all-MiniLM-L6-v2 in this process, and providers' published answers over a socket.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test tells by a panic what is wrong")]

mod minilm;
mod providers;
mod replay;

use slipway_models::embedding::{Embedder, open};

/// An embedder with these environment variables only.
fn opened(uri: &str, variables: &[(&str, &str)]) -> Box<dyn Embedder> {
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    open(uri, &find).unwrap_or_else(|fault| panic!("{uri}: {fault}"))
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
