//! The platform's keys: made once, kept in a Secret of the platform's namespace, shared by all replicas. The chart makes
//! the Secret, without any: who may make Secrets may make one that the cluster fills with an account's token. Where there is
//! no chart, a manager that may do so makes it.
//!
//! One keys the hashes over Secrets. The other signs what the platform tells agents on their control port; agents
//! are given its public half, so that no agent can speak for the platform.

pub(crate) mod relay;

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use slipway_api::labels;
use slipway_http::token::Signer;

const NAME: &str = "slipway-keys";
const OPAQUE: &str = "Opaque";
const SECRETS_HASH: &str = "secrets-hash";
const CONTROL: &str = "control";
/// How often a replica that loses the race for a first key tries again.
const ATTEMPTS: usize = 5;

/// All keys, usable. Their `Debug` would show them, so that there is none.
pub(crate) struct Keys {
    pub secrets_hash: Vec<u8>,
    pub signer: Signer,
}

impl Keys {
    /// The public half of the signing key, in base 64.
    pub(crate) fn control_public(&self) -> String {
        self.signer.public_key()
    }
}

/// The keys of this platform; those that are missing are made.
pub(crate) async fn open(client: Client, namespace: &str) -> anyhow::Result<Keys> {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let context = || format!("Secret {NAME} in namespace {namespace}");
    for _ in 0..ATTEMPTS {
        let found = api.get_opt(NAME).await.with_context(context)?;
        if let Some(problem) = found.as_ref().and_then(unfit) {
            bail!("{}: {problem}", context());
        }
        let data = found.as_ref().and_then(|secret| secret.data.clone()).unwrap_or_default();
        let missing = missing(&data)?;
        if missing.is_empty() {
            return read(&data);
        }
        let written = match &found {
            None => api.create(&PostParams::default(), &fresh(missing)).await,
            Some(secret) => {
                // Only if nobody has written in the meantime: a key that was there for a moment is in use.
                let added = json!({"metadata": {"resourceVersion": secret.metadata.resource_version}, "data": missing});
                api.patch(NAME, &PatchParams::default(), &Patch::Merge(added)).await
            }
        };
        match written {
            Ok(secret) => return read(&secret.data.unwrap_or_default()),
            // Another replica was faster; its keys are the keys.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(kube::Error::Api(status)) if status.code == 403 && found.is_none() => {
                bail!("{} is missing, which the chart makes; install the chart anew ({})", context(), status.message);
            }
            Err(error) => return Err(error).with_context(context),
        }
    }
    bail!("{}: others kept changing it while a key was to be added", context())
}

/// Why a Secret of our name is not ours.
fn unfit(secret: &Secret) -> Option<String> {
    let kind = secret.type_.as_deref().unwrap_or(OPAQUE);
    (kind != OPAQUE)
        .then(|| format!("its type is {kind} and not {OPAQUE}, so that somebody else fills it; delete it, and install the chart anew"))
}

fn fresh(data: BTreeMap<String, ByteString>) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            labels: Some(BTreeMap::from([(labels::PART_OF.to_owned(), labels::PLATFORM.to_owned())])),
            ..ObjectMeta::default()
        },
        type_: Some(OPAQUE.to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

/// New keys in the place of those that `data` does not have.
fn missing(data: &BTreeMap<String, ByteString>) -> anyhow::Result<BTreeMap<String, ByteString>> {
    let mut made = BTreeMap::new();
    if !data.contains_key(SECRETS_HASH) {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness to make a key from: {error}"))?;
        made.insert(SECRETS_HASH.to_owned(), ByteString(bytes.to_vec()));
    }
    if !data.contains_key(CONTROL) {
        let key = Signer::generate().context("no randomness to make a key from")?;
        made.insert(CONTROL.to_owned(), ByteString(key));
    }
    Ok(made)
}

fn read(data: &BTreeMap<String, ByteString>) -> anyhow::Result<Keys> {
    let bytes = |name: &str| data.get(name).map(|ByteString(bytes)| bytes.as_slice()).unwrap_or_default();
    let secrets_hash = bytes(SECRETS_HASH);
    if secrets_hash.len() < 16 {
        bail!(
            "Secret {NAME} has no usable key {SECRETS_HASH}; delete it, and a new one is made (agents that use Secrets then restart once)"
        );
    }
    let Some(signer) = Signer::from_pkcs8(bytes(CONTROL)) else {
        bail!("Secret {NAME} has no usable key {CONTROL}; take it out, and a new one is made (agents then restart once)");
    };
    Ok(Keys { secrets_hash: secrets_hash.to_vec(), signer })
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn missing_keys_are_made_and_present_ones_are_kept() {
        let old = BTreeMap::from([(SECRETS_HASH.to_owned(), ByteString(vec![7; 32]))]);
        let added = missing(&old).unwrap();
        assert_eq!(added.keys().collect::<Vec<_>>(), [CONTROL], "what an earlier release made stays");
        let all: BTreeMap<_, _> = old.into_iter().chain(added).collect();
        let keys = read(&all).unwrap();
        assert_eq!(keys.secrets_hash, [7; 32]);
        assert_eq!(keys.control_public(), read(&all).unwrap().control_public(), "every replica has the same");
        assert_eq!(STANDARD.decode(keys.control_public()).unwrap().len(), 32);
        assert!(missing(&all).unwrap().is_empty());
        assert_ne!(missing(&BTreeMap::new()).unwrap(), missing(&BTreeMap::new()).unwrap());
    }

    #[test]
    fn a_secret_that_the_cluster_fills_is_not_ours() {
        let of = |kind: Option<&str>| Secret { type_: kind.map(str::to_owned), ..Secret::default() };
        assert!(unfit(&of(None)).is_none() && unfit(&of(Some("Opaque"))).is_none() && unfit(&fresh(BTreeMap::new())).is_none());
        assert!(unfit(&of(Some("kubernetes.io/service-account-token"))).unwrap().contains("delete it"));
    }

    #[test]
    fn an_unusable_key_is_named_and_not_shown() {
        let good = missing(&BTreeMap::new()).unwrap();
        for name in [SECRETS_HASH, CONTROL] {
            let mut bad = good.clone();
            bad.insert(name.to_owned(), ByteString(b"hunter2".to_vec()));
            let error = read(&bad).err().unwrap().to_string();
            assert!(error.contains(name) && !error.contains("hunter2"), "{error}");
        }
    }
}
