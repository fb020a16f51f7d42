//! The HTTP server that Slipway's processes share: connections and their limits, bounded JSON bodies, replies, errors and
//! event streams. A server is one call, see `examples/hello.rs`.

pub mod access;
mod body;
mod budget;
pub mod callback;
mod connection;
mod delayed_error;
mod error;
mod events;
pub mod gate;
mod id;
mod listen;
pub mod log;
pub mod memory;
mod metered;
pub mod multipart;
pub mod process;
mod proxies;
mod query;
mod reply;
mod request;
pub mod request_metrics;
pub mod routes;
mod serve;
pub mod single_use;
mod slots;
pub mod termination;
pub mod token;

pub use body::{BodyLimits, BodyReader};
pub use budget::{CONNECTION_BYTES, HEAD_BYTES, Holder, MemoryPlan, RELAYED_BYTES, STREAM_BYTES};
pub use error::Error;
pub use events::Event;
pub use http::header::AsHeaderName;
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
pub use id::{RequestId, ulid};
pub use listen::listen;
pub use proxies::{Network, Proxies};
pub use query::Query;
pub use reply::Reply;
pub use request::{MAX_JSON_BYTES, Request};
pub use serve::{Drained, LINGER, ServerLimits, serve};
pub use slots::RequestSlot;
