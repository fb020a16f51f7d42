//! The record of a Secret, without its values.

use hmac::{Hmac, KeyInit, Mac};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use sha2::Sha256;
use slipway_api::{agent::AGENT_ENV, integration::given_for, labels};

/// A Secret of a team's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretState {
    /// Whether agents may use it.
    pub readable: bool,
    pub keys: Vec<String>,
    /// The host that the login in it was given for, if the Secret says so: [`labels::ORIGIN`].
    pub origin: Option<String>,
    /// A keyed hash over names and values, and over what says that they were written anew.
    pub hash: [u8; 32],
}

impl SecretState {
    pub(crate) fn of(secret: &Secret, key: &[u8]) -> Self {
        let labelled = secret.labels().get(labels::AGENT_READABLE).is_some_and(|value| value == "true");
        let data = secret.data.iter().flatten();
        let pairs = data.clone().map(|(name, ByteString(value))| (name.as_bytes(), value.as_slice()));
        // No key of a Secret has a slash in it.
        let written = secret.annotations().get(labels::WRITTEN).map(|text| (labels::WRITTEN.as_bytes(), text.as_bytes()));
        Self {
            readable: labelled || secret.name_any() == AGENT_ENV,
            keys: data.map(|(name, _)| name.clone()).collect(),
            origin: given_for(secret.annotations()),
            hash: keyed_hash(key, pairs.chain(written)),
        }
    }
}

/// HMAC-SHA-256 over pairs, each part with its length before it, so that no two lists give the same bytes.
pub(crate) fn keyed_hash<'a>(key: &[u8], pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> [u8; 32] {
    // HMAC takes keys of any length, so the error cannot occur; an empty key is the harmless answer to it.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    for part in pairs.flat_map(|(name, value)| [name, value]) {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(yaml: &str) -> Secret {
        serde_yaml::from_str(yaml).unwrap()
    }

    #[test]
    fn the_hash_depends_on_key_names_and_values() {
        let of = |yaml: &str, key: &[u8]| SecretState::of(&secret(yaml), key).hash;
        let one = of("{metadata: {name: s}, data: {a: eA==}}", b"k");
        assert_eq!(one, of("{metadata: {name: s}, data: {a: eA==}}", b"k"));
        let anew = "{metadata: {annotations: {agents.slipway.dev/written: '1'}}, data: {a: eA==}}";
        for (yaml, key) in [("{data: {a: eQ==}}", b"k"), ("{data: {b: eA==}}", b"k"), ("{data: {a: eA==}}", b"l"), (anew, b"k")] {
            assert_ne!(one, of(yaml, key), "{yaml}");
        }
        assert_eq!(one, of("{metadata: {annotations: {example.com/a: '1'}}, data: {a: eA==}}", b"k"));
    }

    #[test]
    fn the_host_is_the_one_that_the_secret_says() {
        let of = |text: &str| {
            let state = SecretState::of(&secret(&format!("{{metadata: {{annotations: {{agents.slipway.dev/origin: '{text}'}}}}}}")), b"k");
            state.origin.unwrap()
        };
        assert_eq!(of("https://metrics.example.com"), "https://metrics.example.com");
        assert_eq!(of("https://METRICS.example.com:443/api"), "https://metrics.example.com", "however it is spelled");
        assert_eq!(of("metrics"), "metrics", "which is no host's");
        assert_eq!(of(&"é".repeat(2000)).len(), 1024);
        assert_eq!(SecretState::of(&secret("{metadata: {name: s}}"), b"k").origin, None);
    }

    #[test]
    fn agents_read_what_is_labelled_and_agent_env() {
        let readable = |yaml: &str| SecretState::of(&secret(yaml), b"k").readable;
        assert!(readable("{metadata: {name: agent-env}}"));
        assert!(readable("{metadata: {name: s, labels: {agents.slipway.dev/agent-readable: 'true'}}}"));
        assert!(!readable("{metadata: {name: s, labels: {agents.slipway.dev/agent-readable: 'yes'}}}"));
        assert!(!readable("{metadata: {name: s}}"));
    }
}
