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
/// The length of every credential: a digest in base 64. Others are refused unread.
pub const CREDENTIAL_BYTES: usize = 43;

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

    /// The same key, where another use of it has it already.
    pub(crate) fn of(key: hmac::Key) -> Self {
        Self(key)
    }

    /// The credential of a namespace.
    pub fn credential(&self, namespace: &str) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, &signed(namespace)))
    }

    /// Whether that is the namespace's credential.
    pub fn verify(&self, namespace: &str, credential: &str) -> bool {
        let signature = Some(credential).filter(|credential| credential.len() == CREDENTIAL_BYTES);
        let signature = signature.and_then(|credential| URL_SAFE_NO_PAD.decode(credential).ok());
        signature.is_some_and(|signature| hmac::verify(&self.0, &signed(namespace), &signature).is_ok())
    }
}

fn signed(namespace: &str) -> Vec<u8> {
    [PURPOSE, namespace.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;
    use crate::callback::{CallbackClaims, CallbackKey};

    const BYTES: [u8; MIN_KEY_BYTES] = [7; MIN_KEY_BYTES];

    fn key() -> GateKey {
        GateKey::new(&BYTES).unwrap()
    }

    #[test]
    fn a_credential_is_one_namespaces() {
        let credential = key().credential("team-a");
        assert!(key().verify("team-a", &credential));
        assert_eq!(credential.len(), CREDENTIAL_BYTES);
        assert!(credential.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "it fits into a URL: {credential}");
        for namespace in ["team-b", "team-a ", "Team-a", "team-a\0", "team-", ""] {
            assert!(!key().verify(namespace, &credential), "{namespace:?}");
        }
        assert!(!GateKey::new(&[8; MIN_KEY_BYTES]).unwrap().verify("team-a", &credential), "another key");
        assert!(GateKey::new(&BYTES[1..]).is_none(), "a short key is no key");
        assert_eq!(format!("{:?}", key()), "GateKey");
    }

    #[test]
    fn a_credential_has_one_length_and_one_spelling() {
        let credential = key().credential("team-a");
        let last = credential.chars().last().unwrap();
        for other in [
            String::new(),
            "?".to_owned(),
            credential[1..].to_owned(),
            format!("{credential}="),
            format!("{credential}A"),
            format!(" {credential}"),
            format!("{}\n", &credential[..CREDENTIAL_BYTES - 1]),
            "A".repeat(CREDENTIAL_BYTES),
            "é".repeat(CREDENTIAL_BYTES),
            // 43 characters say two bits more than a digest has.
            format!("{}{}", &credential[..CREDENTIAL_BYTES - 1], char::from_u32(u32::from(last) + 1).unwrap()),
        ] {
            assert!(!key().verify("team-a", &other), "{other}");
        }
    }

    #[test]
    fn signatures_of_another_use_of_the_key_are_none() {
        let callbacks = CallbackKey::new(&BYTES).unwrap();
        let plain = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &BYTES), b"team-a");
        assert!(!key().verify("team-a", &URL_SAFE_NO_PAD.encode(plain)), "without the purpose");
        let text = str::to_owned;
        let (path, namespace, run, uid) = (text("/p"), text("team-a"), text("ev-1"), text("u"));
        let claims = CallbackClaims { path, namespace, run, uid, run_id: text("ev_1"), attempt: 1, exp: 1_000 };
        let token = callbacks.sign(&claims).unwrap();
        let (signed, signature) = token.split_once('.').unwrap();
        assert!(!key().verify(signed, signature) && !key().verify("team-a", signature), "a callback's");
        // And the other way round.
        assert!(callbacks.verify(&format!("team-a.{}", key().credential("team-a")), UNIX_EPOCH + Duration::from_secs(1)).is_none());
        assert!(callbacks.gate().verify("team-a", &key().credential("team-a")), "the key itself is the same");
    }

    proptest! {
        #[test]
        fn no_text_is_a_credential_or_makes_it_panic(namespace in "[a-z-]{0,20}", text in "\\PC{0,60}|[A-Za-z0-9_-]{43}") {
            prop_assert!(!key().verify(&namespace, &text));
        }
    }
}
