//! What belongs to a GitOps tool is not written to: the tool would undo it. Who does own it is told instead.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
pub(crate) use slipway_api::gitops::owner;
use slipway_http::{Error, StatusCode};

/// Refuses to write to a spec that is not ours to write to.
pub(crate) fn refuse(meta: &ObjectMeta, what: &str) -> Result<(), Error> {
    match owner(meta) {
        None => Ok(()),
        Some(owner) => {
            let message = format!("{what} belongs to {owner}, which would undo this; change it where that reads it from");
            Err(Error::new(StatusCode::CONFLICT, message))
        }
    }
}
