//! AWS credentials and request signatures.

mod container;
mod credentials;
mod sign;
mod web_identity;

pub(crate) use credentials::AwsCredentials;
pub(crate) use sign::{Scope, sign};
