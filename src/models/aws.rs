//! Amazon's cloud: how requests to it are signed, and where the keys for that come from.

mod container;
mod credentials;
mod sign;
mod web_identity;

pub(crate) use credentials::Credentials;
pub(crate) use sign::{Scope, sign};
