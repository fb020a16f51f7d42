//! The HTTP plumbing that Slipway's servers share: connections and their limits, bounded JSON
//! bodies, replies, errors and event streams. A server is one call:
//!
//! ```no_run
//! # async fn run() -> std::io::Result<()> {
//! use slipway_http::{Error, Limits, Reply, Request, StatusCode, serve};
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! let handler = |request: Request| async move {
//!     match request.path() {
//!         "/healthz" => Ok(Reply::text("ok\n")),
//!         _ => Err(Error::not_found("there is nothing here")),
//!     }
//! };
//! let shutdown = async { drop(tokio::signal::ctrl_c().await) };
//! serve(listener, Limits::default(), handler, shutdown).await;
//! # Ok(())
//! # }
//! ```

mod broken;
mod budget;
mod connection;
mod error;
mod events;
mod id;
pub mod memory;
mod metered;
mod proxies;
mod query;
mod reply;
mod request;
mod serve;
mod slots;

pub use budget::{CONNECTION_BYTES, Division, HEAD_BYTES, Holder, RELAYED_BYTES, STREAM_BYTES};
pub use error::Error;
pub use events::Event;
pub use http::header::AsHeaderName;
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
pub use id::{RequestId, ulid};
pub use proxies::{Network, Proxies};
pub use query::Query;
pub use reply::Reply;
pub use request::Request;
pub use serve::{Drained, Limits, serve};
pub use slots::Place;
