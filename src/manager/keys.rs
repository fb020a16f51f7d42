//! The platform's keys: generated once, stored in a Secret of the platform's namespace, shared by all replicas. The chart
//! creates the Secret empty, because the permission to create Secrets would let the manager request tokens of other
//! ServiceAccounts. Without the chart, a manager with that permission creates it.
//!
//! One key is for the keyed hashes of Secrets. Another signs the platform's calls to agents' control ports; agents get its
//! public half, so that no agent can impersonate the platform. The third signs the tokens of callbacks; the state role, which
//! verifies them, is given that one alone.

pub(crate) mod callback;
pub(crate) mod relay;

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use slipway_api::labels;
use slipway_http::callback::CallbackKey;
use slipway_http::token::Signer;

const SECRET_NAME: &str = "slipway-keys";
const OPAQUE: &str = "Opaque";
const SECRETS_HASH_KEY: &str = "secrets-hash";
const CONTROL_KEY: &str = "control";
const CALLBACK_KEY: &str = "callback";
/// The attempts of a replica that loses the race for the first key.
const MAX_ATTEMPTS: usize = 5;

/// All keys. There is no `Debug`, which would show them.
pub(crate) struct Keys {
    pub secrets_hash: Vec<u8>,
    pub signer: Signer,
    pub callback: CallbackKey,
}

impl Keys {
    /// The public half of the signing key, in base 64.
    pub(crate) fn control_public(&self) -> String {
        self.signer.public_key()
    }
}

/// The keys of this platform; missing ones are generated.
pub(crate) async fn open(client: Client, namespace: &str) -> anyhow::Result<Keys> {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let context = || format!("Secret {SECRET_NAME} in namespace {namespace}");
    for _ in 0..MAX_ATTEMPTS {
        let found = api.get_opt(SECRET_NAME).await.with_context(context)?;
        if let Some(problem) = found.as_ref().and_then(rejection) {
            bail!("{}: {problem}", context());
        }
        let data = found.as_ref().and_then(|secret| secret.data.clone()).unwrap_or_default();
        let missing = generate_missing(&data)?;
        if missing.is_empty() {
            return read(&data);
        }
        let written = match &found {
            None => api.create(&PostParams::default(), &new_secret(missing)).await,
            Some(secret) => {
                // Conditional on the version: a key that another replica wrote in the meantime is in use.
                let added = json!({"metadata": {"resourceVersion": secret.metadata.resource_version}, "data": missing});
                api.patch(SECRET_NAME, &PatchParams::default(), &Patch::Merge(added)).await
            }
        };
        match written {
            Ok(secret) => return read(&secret.data.unwrap_or_default()),
            // Another replica was faster; its keys count.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(kube::Error::Api(status)) if status.code == 403 && found.is_none() => {
                bail!("{} is missing; the chart creates it, so install the chart again ({})", context(), status.message);
            }
            Err(error) => return Err(error).with_context(context),
        }
    }
    bail!("{}: a key could not be added because of concurrent changes", context())
}

/// The reason not to use a Secret of this name.
fn rejection(secret: &Secret) -> Option<String> {
    let kind = secret.type_.as_deref().unwrap_or(OPAQUE);
    (kind != OPAQUE)
        .then(|| format!("its type is {kind} and not {OPAQUE}, so that Kubernetes fills it; delete it, and install the chart again"))
}

fn new_secret(data: BTreeMap<String, ByteString>) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(SECRET_NAME.to_owned()),
            labels: Some(BTreeMap::from([(labels::PART_OF.to_owned(), labels::PLATFORM.to_owned())])),
            ..ObjectMeta::default()
        },
        type_: Some(OPAQUE.to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

/// Generates the keys that `data` does not have.
fn generate_missing(data: &BTreeMap<String, ByteString>) -> anyhow::Result<BTreeMap<String, ByteString>> {
    let mut made = BTreeMap::new();
    for name in [SECRETS_HASH_KEY, CALLBACK_KEY] {
        if !data.contains_key(name) {
            let mut bytes = [0; 32];
            getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness to make a key from: {error}"))?;
            made.insert(name.to_owned(), ByteString(bytes.to_vec()));
        }
    }
    if !data.contains_key(CONTROL_KEY) {
        let key = Signer::generate().context("no randomness to make a key from")?;
        made.insert(CONTROL_KEY.to_owned(), ByteString(key));
    }
    Ok(made)
}

fn read(data: &BTreeMap<String, ByteString>) -> anyhow::Result<Keys> {
    let bytes = |name: &str| data.get(name).map(|ByteString(bytes)| bytes.as_slice()).unwrap_or_default();
    let secrets_hash = bytes(SECRETS_HASH_KEY);
    if secrets_hash.len() < 16 {
        bail!(
            "Secret {SECRET_NAME} has no usable key {SECRETS_HASH_KEY}; delete it, and a new one is generated (agents that use Secrets then restart once)"
        );
    }
    let Some(signer) = Signer::from_pkcs8(bytes(CONTROL_KEY)) else {
        bail!("Secret {SECRET_NAME} has no usable key {CONTROL_KEY}; remove it, and a new one is generated (agents then restart once)");
    };
    let Some(callback) = CallbackKey::new(bytes(CALLBACK_KEY)) else {
        bail!("Secret {SECRET_NAME} has no usable key {CALLBACK_KEY}; remove it, and a new one is generated");
    };
    Ok(Keys { secrets_hash: secrets_hash.to_vec(), signer, callback })
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn missing_keys_are_generated_and_present_ones_are_kept() {
        let old = BTreeMap::from([(SECRETS_HASH_KEY.to_owned(), ByteString(vec![7; 32]))]);
        let added = generate_missing(&old).unwrap();
        assert_eq!(added.keys().collect::<Vec<_>>(), [CALLBACK_KEY, CONTROL_KEY], "what an earlier release made stays");
        let all: BTreeMap<_, _> = old.into_iter().chain(added).collect();
        let keys = read(&all).unwrap();
        assert_eq!(keys.secrets_hash, [7; 32]);
        assert_eq!(keys.control_public(), read(&all).unwrap().control_public(), "every replica has the same");
        assert_eq!(STANDARD.decode(keys.control_public()).unwrap().len(), 32);
        assert!(generate_missing(&all).unwrap().is_empty());
        assert_ne!(generate_missing(&BTreeMap::new()).unwrap(), generate_missing(&BTreeMap::new()).unwrap());
    }

    #[test]
    fn a_secret_that_kubernetes_fills_is_refused() {
        let of = |kind: Option<&str>| Secret { type_: kind.map(str::to_owned), ..Secret::default() };
        assert!(
            rejection(&of(None)).is_none() && rejection(&of(Some("Opaque"))).is_none() && rejection(&new_secret(BTreeMap::new())).is_none()
        );
        assert!(rejection(&of(Some("kubernetes.io/service-account-token"))).unwrap().contains("delete it"));
    }

    #[test]
    fn an_unusable_key_is_named_and_not_shown() {
        let good = generate_missing(&BTreeMap::new()).unwrap();
        for name in [SECRETS_HASH_KEY, CONTROL_KEY, CALLBACK_KEY] {
            let mut bad = good.clone();
            bad.insert(name.to_owned(), ByteString(b"hunter2".to_vec()));
            let error = read(&bad).err().unwrap().to_string();
            assert!(error.contains(name) && !error.contains("hunter2"), "{error}");
        }
    }
}
