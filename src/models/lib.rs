//! Chat and embedding models: one trait each, one file a provider. `open` makes a `Model` of a
//! provider's name and the environment; a `Request` goes in, `Piece`s come out as the provider
//! sends them. What every provider shares (connections, timeouts, retries, framing) is in
//! `transport` and the parsers beside it; what they differ in is how a request is written and how
//! an event is read.

mod answer;
pub mod embedding;
mod fault;
mod message;
mod prices;
mod provider;
mod stub;
pub mod tokens;

pub use answer::{Answer, Model, Piece, Stop, Usage};
pub use fault::{Fault, FaultKind};
pub use message::{Content, Message, Request, Role, ToolCall, ToolResult, ToolSpec};
pub use prices::cost;
pub use provider::{Provider, open, open_uri};
