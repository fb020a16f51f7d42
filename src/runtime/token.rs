//! Tokens by which the platform says for which agent a request is meant: a compact JWS, signed with Ed25519, for a moment.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;

/// How far two clocks may be apart.
pub(crate) const SKEW: u64 = 10;
const KEY_BYTES: usize = 32;

/// The public half of a key that the platform signs with.
pub(crate) struct Key(UnparsedPublicKey<Vec<u8>>);

#[derive(Debug, Deserialize)]
struct Head {
    alg: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Claims {
    /// The id of the agent that is meant.
    pub(crate) aud: String,
    pub(crate) exp: u64,
    pub(crate) iat: u64,
    pub(crate) jti: String,
}

impl Key {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(UnparsedPublicKey::new(&ED25519, bytes))
    }

    /// Reads the value of `variable`; the words say what is wrong with it.
    pub(crate) fn read(variable: &str, text: &str) -> Result<Self, String> {
        let bytes = STANDARD.decode(text.trim()).ok().filter(|bytes| bytes.len() == KEY_BYTES);
        bytes.map(Self::new).ok_or_else(|| format!("{variable} must be an Ed25519 public key, {KEY_BYTES} bytes in base64"))
    }

    /// The claims of a token that this key has signed, that holds now, and that lives for `life` seconds at most.
    pub(crate) fn claims(&self, token: &str, now: u64, life: u64) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        let head: Head = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).ok()?).ok()?;
        if head.alg != "EdDSA" {
            return None;
        }
        self.0.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
        let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        let timely = claims.iat <= now.saturating_add(SKEW) && now < claims.exp && claims.exp <= claims.iat.saturating_add(life);
        timely.then_some(claims)
    }
}

/// Seconds since 1970.
pub(crate) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
