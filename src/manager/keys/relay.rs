//! The key that signs REST's calls to agents. It differs from the control port's key and has a Secret of its own: REST faces
//! untrusted clients, and its key allows no more than chats. The operator generates it and gives agents its public half; REST
//! reads it from a file and needs no permission for Secrets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use slipway_api::labels;
use slipway_http::token::{RELAY_LIFE, Signer};

/// The chart creates it empty and mounts it into REST's pods.
const SECRET_NAME: &str = "slipway-relay";
const KEY: &str = "key";
const MAX_ATTEMPTS: usize = 5;
/// The interval at which the file is read again, be there a key or not.
const READ_INTERVAL: Duration = Duration::from_secs(30);

/// The key of this platform, generated if there is none.
pub(crate) async fn open(client: Client, namespace: &str) -> anyhow::Result<Signer> {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let context = || format!("Secret {SECRET_NAME} in namespace {namespace}");
    for _ in 0..MAX_ATTEMPTS {
        let found = api.get_opt(SECRET_NAME).await.with_context(context)?;
        if let Some(bytes) = found.as_ref().and_then(|secret| secret.data.as_ref()?.get(KEY)) {
            return read(&bytes.0)
                .with_context(|| format!("{}: remove `{KEY}`, and a new one is generated (agents then restart once)", context()));
        }
        let key = Signer::generate().context("no randomness to make a key from")?;
        let data = BTreeMap::from([(KEY.to_owned(), ByteString(key.clone()))]);
        let written = match &found {
            Some(secret) => {
                let version = &secret.metadata.resource_version;
                let added = json!({"metadata": {"resourceVersion": version}, "data": data});
                api.patch(SECRET_NAME, &PatchParams::default(), &Patch::Merge(added)).await
            }
            None => api.create(&PostParams::default(), &new_secret(data)).await,
        };
        match written {
            Ok(_) => return read(&key),
            // Another replica was faster; its key counts.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).with_context(context),
        }
    }
    bail!("{}: a key could not be added because of concurrent changes", context())
}

/// A new Secret, for a cluster without the chart.
fn new_secret(data: BTreeMap<String, ByteString>) -> Secret {
    let labels = BTreeMap::from([(labels::PART_OF.to_owned(), labels::PLATFORM.to_owned())]);
    let metadata = ObjectMeta { name: Some(SECRET_NAME.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    Secret { metadata, type_: Some("Opaque".to_owned()), data: Some(data), ..Secret::default() }
}

fn read(bytes: &[u8]) -> anyhow::Result<Signer> {
    Signer::from_pkcs8(bytes).context("the key is no Ed25519 key in PKCS #8")
}

/// The key in the file of REST's pods, which appears or changes after the operator has written the Secret.
pub(crate) struct KeyFile {
    path: PathBuf,
    read: Mutex<Option<(Instant, Option<Signer>)>>,
}

impl KeyFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, read: Mutex::default() }
    }

    /// A token for the agent with that id; `None` while there is no key.
    pub(crate) fn token(&self, agent: &str) -> Option<String> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.as_ref().is_none_or(|(at, _)| at.elapsed() >= READ_INTERVAL) {
            *read = Some((Instant::now(), self.load()));
        }
        let (_, signer) = read.as_ref()?;
        signer.as_ref()?.token(agent, RELAY_LIFE, SystemTime::now())
    }

    fn load(&self) -> Option<Signer> {
        let path = self.path.display();
        match std::fs::read(&self.path) {
            Ok(bytes) => {
                self::read(&bytes).inspect_err(|error| tracing::warn!(%path, %error, "the key for calls of agents cannot be used")).ok()
            }
            Err(error) => {
                tracing::debug!(%path, %error, "there is no key for calls of agents");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_comes_later_is_found() {
        let folder = std::env::temp_dir().join(format!("slipway-relay-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(KEY);
        let file = KeyFile::new(path.clone());
        assert!(file.token("ag_1").is_none());
        std::fs::write(&path, Signer::generate().unwrap()).unwrap();
        assert!(file.token("ag_1").is_none(), "the file is not read at every call");
        assert!(KeyFile::new(path.clone()).token("ag_1").is_some());
        std::fs::write(&path, "hunter2").unwrap();
        assert!(KeyFile::new(path).token("ag_1").is_none());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
