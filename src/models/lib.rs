//! Chat and embedding models: one trait each, one file a provider. `open` makes a `Model` of a
//! provider's name and the environment; a `Request` goes in, `Piece`s come out as the provider
//! sends them. What every provider shares (connections, timeouts, retries, framing) is in
//! `transport` and the parsers beside it; what they differ in is how a request is written and how
//! an event is read.

mod answer;
mod anthropic;
mod aws;
mod bedrock;
mod draft;
pub mod embedding;
mod exchange;
mod fault;
mod gemini;
mod google;
mod google_ai;
mod issuer;
mod message;
mod ollama;
mod openai;
mod prices;
mod provider;
mod refusal;
mod settings;
mod stub;
pub mod tokens;
mod transport;
mod vertex_ai;
mod wire;

pub use answer::{Answer, Model, Piece, Stop, Usage};
pub use fault::{Fault, FaultKind};
pub use message::{Content, Message, Request, Role, ToolCall, ToolResult, ToolSpec};
pub use prices::cost;
pub use provider::{Provider, open, open_uri};

#[cfg(test)]
mod replay;
