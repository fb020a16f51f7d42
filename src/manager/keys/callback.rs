//! The key of callbacks, and of the credentials of quality gates, as the state role has it. The operator generates it; the state role
//! reads it from a file, into which the chart mounts that entry of Secret slipway-keys, and needs no permission for Secrets.

use std::path::PathBuf;

use slipway_http::callback::CallbackKey;

#[derive(Clone)]
pub(crate) enum CallbackKeySource {
    /// This process has the role operator, too.
    Held(CallbackKey),
    /// Read for each callback, as it appears or changes after the operator has written the Secret.
    File(PathBuf),
}

impl CallbackKeySource {
    /// None while there is no usable key.
    pub(crate) fn key(&self) -> Option<CallbackKey> {
        match self {
            Self::Held(key) => Some(key.clone()),
            Self::File(path) => std::fs::read(path).ok().and_then(|bytes| CallbackKey::new(&bytes)),
        }
    }
}
