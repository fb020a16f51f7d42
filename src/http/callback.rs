//! Tokens by which a runtime reports the end of an evaluation: HMAC-SHA256 over claims that name one call of one run. The operator
//! signs and the state role verifies. That a token is used once is told by the run's status, and not by the token.

use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::gate::GateKey;
use crate::token::unix_seconds;

/// The longest validity of a token: a run has to end within it, or the platform polls for its end.
pub const CALLBACK_LIFE: Duration = Duration::from_hours(24);
/// Longer tokens are refused unread.
pub const MAX_TOKEN_BYTES: usize = 2048;
/// The shortest key.
const MIN_KEY_BYTES: usize = 32;
/// Keeps a signature from being one of another use of the same key.
const PURPOSE: &[u8] = b"slipway evaluation callback\0";

/// What a token allows: one call, at this path, about this attempt of this run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackClaims {
    /// The path of the call, which names the agent by its id, and the release or the run.
    pub path: String,
    /// The EvaluationRun.
    pub namespace: String,
    pub run: String,
    pub uid: String,
    /// The id by which the runtime knows the run.
    pub run_id: String,
    pub attempt: i32,
    /// In seconds since 1970.
    pub exp: u64,
}

/// The key that signs and verifies.
#[derive(Clone)]
pub struct CallbackKey(hmac::Key);

/// Does not show the key.
impl fmt::Debug for CallbackKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackKey")
    }
}

impl CallbackKey {
    /// None if there are too few bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= MIN_KEY_BYTES).then(|| Self(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// The key of gates' credentials, whose signatures are none of callbacks.
    pub fn gate(&self) -> GateKey {
        GateKey::of(self.0.clone())
    }

    /// The claims and their signature.
    pub fn sign(&self, claims: &CallbackClaims) -> Option<String> {
        let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(claims).ok()?);
        let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, &signed(&claims)));
        Some(format!("{claims}.{signature}"))
    }

    /// The claims of a token that this key signed and that has not expired.
    pub fn verify(&self, token: &str, now: SystemTime) -> Option<CallbackClaims> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (claims, signature) = token.split_once('.')?;
        hmac::verify(&self.0, &signed(claims), &URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
        let claims: CallbackClaims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        (unix_seconds(now) < claims.exp).then_some(claims)
    }
}

fn signed(claims: &str) -> Vec<u8> {
    [PURPOSE, claims.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::*;

    const EXP: u64 = 1_000;

    fn key(byte: u8) -> CallbackKey {
        CallbackKey::new(&[byte; 32]).unwrap()
    }

    fn claims() -> CallbackClaims {
        let text = str::to_owned;
        let path = text("/api/v1/agents/ag_1/evaluations/ev_1/result");
        CallbackClaims { path, namespace: text("team-a"), run: text("ev-1"), uid: text("u"), run_id: text("ev_1"), attempt: 1, exp: EXP }
    }

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second)
    }

    #[test]
    fn a_token_holds_for_its_key_until_it_expires() {
        let token = key(1).sign(&claims()).unwrap();
        assert_eq!(key(1).verify(&token, at(EXP - 1)), Some(claims()));
        assert_eq!(key(1).verify(&token, at(EXP)), None);
        assert_eq!(key(2).verify(&token, at(0)), None);
        assert!(CallbackKey::new(&[1; 31]).is_none() && CallbackKey::new(&[]).is_none(), "a short key is no key");
        assert_eq!(format!("{:?}", key(1)), "CallbackKey");
        let long = CallbackClaims { namespace: "x".repeat(MAX_TOKEN_BYTES), ..claims() };
        assert_eq!(key(1).verify(&key(1).sign(&long).unwrap(), at(0)), None);
    }

    #[test]
    fn claims_of_another_use_of_the_key_are_refused() {
        let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims()).unwrap());
        let plain = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]), claims.as_bytes());
        assert_eq!(key(1).verify(&format!("{claims}.{}", URL_SAFE_NO_PAD.encode(plain)), at(0)), None);
    }

    proptest! {
        #[test]
        fn no_other_token_holds_than_the_one_that_was_signed(at_byte in any::<prop::sample::Index>(), byte in "[A-Za-z0-9_.=-]", what in 0_usize..4) {
            let good = key(1).sign(&claims()).unwrap();
            let place = at_byte.index(good.len());
            let mut other = good.clone();
            match what {
                0 => other.replace_range(place..=place, &byte),
                1 => other.insert_str(place, &byte),
                2 => drop(other.remove(place)),
                _ => other.truncate(place),
            }
            prop_assert_eq!(key(1).verify(&other, at(0)).is_some(), other == good, "{}", other);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}|[A-Za-z0-9_-]{0,30}\\.[A-Za-z0-9_-]{0,43}") {
            prop_assert!(key(1).verify(&text, at(0)).is_none());
        }
    }
}
