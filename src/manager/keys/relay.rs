//! The key by which agents know what REST passes on to them. It is another than the control port's, and lies in a Secret of
//! its own: REST is what strangers reach, and with its key nobody can say more than which agent a chat is meant for. The
//! operator makes it and tells agents its public half; REST finds it in a file, and has no right to any other Secret for it.

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

/// The chart makes it, empty, and mounts it where REST looks.
const NAME: &str = "slipway-relay";
const KEY: &str = "key";
const ATTEMPTS: usize = 5;
/// How long a key that was read from the file is believed; a missing one is looked for as often.
const READ_INTERVAL: Duration = Duration::from_secs(30);

/// The key of this platform, made where there is none.
pub(crate) async fn open(client: Client, namespace: &str) -> anyhow::Result<Signer> {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let context = || format!("Secret {NAME} in namespace {namespace}");
    for _ in 0..ATTEMPTS {
        let found = api.get_opt(NAME).await.with_context(context)?;
        if let Some(bytes) = found.as_ref().and_then(|secret| secret.data.as_ref()?.get(KEY)) {
            return read(&bytes.0)
                .with_context(|| format!("{}: take `{KEY}` out, and a new one is made (agents then restart once)", context()));
        }
        let key = Signer::generate().context("no randomness to make a key from")?;
        let data = BTreeMap::from([(KEY.to_owned(), ByteString(key.clone()))]);
        let written = match &found {
            Some(secret) => {
                let version = &secret.metadata.resource_version;
                let added = json!({"metadata": {"resourceVersion": version}, "data": data});
                api.patch(NAME, &PatchParams::default(), &Patch::Merge(added)).await
            }
            None => api.create(&PostParams::default(), &fresh(data)).await,
        };
        match written {
            Ok(_) => return read(&key),
            // Another replica was faster; its key is the key.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).with_context(context),
        }
    }
    bail!("{}: others kept changing it while a key was to be added", context())
}

/// For a cluster without the chart.
fn fresh(data: BTreeMap<String, ByteString>) -> Secret {
    let labels = BTreeMap::from([(labels::PART_OF.to_owned(), labels::PLATFORM.to_owned())]);
    let metadata = ObjectMeta { name: Some(NAME.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    Secret { metadata, type_: Some("Opaque".to_owned()), data: Some(data), ..Secret::default() }
}

fn read(bytes: &[u8]) -> anyhow::Result<Signer> {
    Signer::from_pkcs8(bytes).context("it is no Ed25519 key in PKCS #8")
}

/// The key as REST has it: in a file, which is there, or there anew, whenever the operator has made it.
pub(crate) struct KeyFile {
    path: PathBuf,
    read: Mutex<Option<(Instant, Option<Signer>)>>,
}

impl KeyFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, read: Mutex::default() }
    }

    /// A token for the agent with that id; none while there is no key.
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
        assert!(file.token("ag_1").is_none(), "it is not looked for at every call");
        assert!(KeyFile::new(path.clone()).token("ag_1").is_some());
        std::fs::write(&path, "hunter2").unwrap();
        assert!(KeyFile::new(path).token("ag_1").is_none());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
