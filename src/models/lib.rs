//! Chat and embedding models: one trait each, one file per provider. `open` builds a `Model` from a provider's name and the
//! environment; a `ModelRequest` goes in, `Piece`s are streamed out. Connections, timeouts, retries and framing are shared by all
//! providers (`transport`, `exchange`, `wire`); each provider writes requests and reads events.

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
mod provider_settings;
mod refusal;
mod stub;
pub mod tokens;
mod transport;
mod vertex_ai;
mod wire;

pub use answer::{Answer, Model, Piece, Stop, Usage};
pub use fault::{FaultKind, ModelFault};
pub use message::{Content, Message, ModelRequest, Role, ToolCall, ToolResult, ToolSpec};
pub use prices::cost;
pub use provider::{Provider, open, open_own, open_uri};
pub use wire::EventReader;

#[cfg(test)]
#[path = "tests/replay/replay.rs"]
mod replay;
