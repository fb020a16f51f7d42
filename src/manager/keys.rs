//! The key for hashes over Secrets: made once, kept in a Secret of the platform's namespace.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use slipway_api::labels;

const NAME: &str = "slipway-keys";
const SECRETS_HASH: &str = "secrets-hash";

pub(crate) async fn secrets_hash(client: Client, namespace: &str) -> anyhow::Result<Vec<u8>> {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let context = || format!("Secret {NAME} in namespace {namespace}");
    if let Some(secret) = api.get_opt(NAME).await.with_context(context)? {
        return key(&secret);
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness to make a key from: {error}"))?;
    let fresh = Secret {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            labels: Some(BTreeMap::from([(labels::PART_OF.to_owned(), labels::PLATFORM.to_owned())])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(SECRETS_HASH.to_owned(), ByteString(bytes.to_vec()))])),
        ..Secret::default()
    };
    match api.create(&PostParams::default(), &fresh).await {
        Ok(secret) => key(&secret),
        // Another replica was faster; its key is the key.
        Err(kube::Error::Api(status)) if status.code == 409 => key(&api.get(NAME).await.with_context(context)?),
        Err(error) => Err(error).with_context(context),
    }
}

fn key(secret: &Secret) -> anyhow::Result<Vec<u8>> {
    match secret.data.as_ref().and_then(|data| data.get(SECRETS_HASH)) {
        Some(ByteString(key)) if key.len() >= 16 => Ok(key.clone()),
        _ => bail!(
            "Secret {NAME} has no usable key {SECRETS_HASH}; delete it, and a new one is made (agents that use Secrets then restart once)"
        ),
    }
}
