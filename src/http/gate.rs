//! The credential by which Flagger asks for the verdict of a namespace's quality gates: HMAC-SHA256 over the namespace's name. The Team
//! controller puts it into the namespace and the state role verifies it; nobody has to keep it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

/// The shortest key.
const MIN_KEY_BYTES: usize = 32;
/// Keeps a signature from being one of another use of the same key.
const PURPOSE: &[u8] = b"slipway canary gate\0";

/// The key that makes credentials and verifies them.
#[derive(Clone)]
pub struct GateKey(hmac::Key);

/// Does not show the key.
impl fmt::Debug for GateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GateKey")
    }
}

impl GateKey {
    /// None if there are too few bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= MIN_KEY_BYTES).then(|| Self(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// The credential of a namespace.
    pub fn credential(&self, namespace: &str) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, &signed(namespace)))
    }

    /// Whether that is the namespace's credential.
    pub fn verify(&self, namespace: &str, credential: &str) -> bool {
        let signature = URL_SAFE_NO_PAD.decode(credential).ok();
        signature.is_some_and(|signature| hmac::verify(&self.0, &signed(namespace), &signature).is_ok())
    }
}

fn signed(namespace: &str) -> Vec<u8> {
    [PURPOSE, namespace.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_one_namespaces() {
        let key = GateKey::new(&[7; MIN_KEY_BYTES]).unwrap();
        let credential = key.credential("team-a");
        assert!(key.verify("team-a", &credential));
        for (namespace, other) in
            [("team-b", &*credential), ("team-a", ""), ("team-a", &credential[1..]), ("team-a", "?"), ("", &credential)]
        {
            assert!(!key.verify(namespace, other), "{namespace} {other}");
        }
        assert!(!GateKey::new(&[8; MIN_KEY_BYTES]).unwrap().verify("team-a", &credential));
        assert!(GateKey::new(&[7; MIN_KEY_BYTES - 1]).is_none());
    }
}
