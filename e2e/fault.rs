//! Faults between a manager of the working tree and an API server of its own, which has no node.
//!
//! `door` is what the manager takes for the API server: it counts requests, and ends the process at one of its writes.
//! `weather` says which requests fare badly there, and how watches do. `ground` is the API server with what a user asks of
//! it, `home` one team there and what is seen of it, `pods` plays the controllers that would run its pods, `node` runs them,
//! `manager` is the process, which is started again whenever it ends, and `trial` waits for both to come to an end.

mod door;
mod ground;
mod home;
mod manager;
mod message;
mod node;
mod pods;
mod trial;
mod weather;

pub use door::{CountedRequest, Door};
pub use ground::Ground;
pub use home::Home;
pub use manager::Manager;
pub use node::Node;
pub use trial::{SILENCE, Trial};
pub use weather::{Weather, seed};
