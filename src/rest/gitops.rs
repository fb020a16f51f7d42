//! Refuses writes to objects that a GitOps tool owns, as the tool would revert them. The error names the tool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
pub(crate) use slipway_api::gitops::owner;
use slipway_http::{Error, StatusCode};

/// 409 if a GitOps tool owns the spec.
pub(crate) fn refuse(meta: &ObjectMeta, what: &str) -> Result<(), Error> {
    match owner(meta) {
        None => Ok(()),
        Some(owner) => {
            let message = format!("{what} belongs to {owner}, which would undo this; change it where that reads it from");
            Err(Error::new(StatusCode::CONFLICT, message))
        }
    }
}
