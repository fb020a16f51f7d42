//! Tokens that authenticate the platform to agents: a compact JWS, signed with Ed25519, short-lived and for one agent. The
//! manager signs and the runtime verifies; both halves are in this module. Tokens of other systems (OIDC, AWS, Google) are
//! handled where they are used.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

/// The longest validity of a token for the control port.
pub const CONTROL_LIFE: Duration = Duration::from_mins(1);
/// The longest validity of a token for a relayed call.
pub const RELAY_LIFE: Duration = Duration::from_mins(2);
/// The clock skew that is tolerated for `iat`, in seconds.
pub const MAX_SKEW: u64 = 10;

const ALGORITHM: &str = "EdDSA";
const KEY_BYTES: usize = 32;

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    typ: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Claims {
    /// The id of the agent that the token is for.
    pub aud: String,
    pub exp: u64,
    pub iat: u64,
    /// Unique, so that a token can be refused the second time.
    pub jti: String,
}

/// The private half of a key.
pub struct Signer(Ed25519KeyPair);

/// The public half of a key.
pub struct Verifier(UnparsedPublicKey<Vec<u8>>);

impl Signer {
    /// A new private key, in PKCS #8. `None` if the system has no randomness.
    pub fn generate() -> Option<Vec<u8>> {
        Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).ok().map(|key| key.as_ref().to_vec())
    }

    pub fn from_pkcs8(bytes: &[u8]) -> Option<Self> {
        Ed25519KeyPair::from_pkcs8(bytes).ok().map(Self)
    }

    /// The public half, in base64, as [`Verifier::from_base64`] takes it.
    pub fn public_key(&self) -> String {
        STANDARD.encode(self.0.public_key())
    }

    /// A token for the agent with that id, valid from `now`. `None` without randomness, or with a clock before 1970.
    pub fn token(&self, agent: &str, life: Duration, now: SystemTime) -> Option<String> {
        let iat = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let mut unique = [0; 16];
        SystemRandom::new().fill(&mut unique).ok()?;
        let header = Header { alg: ALGORITHM.to_owned(), typ: "JWT".to_owned() };
        let claims = Claims { aud: agent.to_owned(), exp: iat + life.as_secs(), iat, jti: URL_SAFE_NO_PAD.encode(unique) };
        let parts = [serde_json::to_vec(&header).ok()?, serde_json::to_vec(&claims).ok()?];
        let signed = parts.map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes()));
        Some(format!("{signed}.{signature}"))
    }
}

impl Verifier {
    pub fn from_base64(key: &str) -> Option<Self> {
        let bytes = STANDARD.decode(key.trim()).ok().filter(|bytes| bytes.len() == KEY_BYTES)?;
        Some(Self(UnparsedPublicKey::new(&ED25519, bytes)))
    }

    /// The claims of a token that this key signed, that is valid at `now` (seconds since 1970), and whose validity is at most
    /// `max_life`. The caller checks `aud`.
    pub fn claims(&self, token: &str, now: u64, max_life: Duration) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header.alg != ALGORITHM {
            return None;
        }
        self.0.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
        let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        let Claims { exp, iat, .. } = claims;
        let valid = iat <= now.saturating_add(MAX_SKEW) && now < exp && exp <= iat.saturating_add(max_life.as_secs());
        valid.then_some(claims)
    }
}

/// Seconds since 1970.
pub fn unix_seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000;

    fn pair() -> (Signer, Verifier) {
        let signer = Signer::from_pkcs8(&Signer::generate().unwrap()).unwrap();
        let verifier = Verifier::from_base64(&signer.public_key()).unwrap();
        (signer, verifier)
    }

    fn token(signer: &Signer, life: Duration) -> String {
        signer.token("ag_1", life, UNIX_EPOCH + Duration::from_secs(NOW)).unwrap()
    }

    #[test]
    fn a_token_is_valid_for_its_life() {
        let (signer, verifier) = pair();
        for (life, now, valid) in [
            (CONTROL_LIFE, NOW, true),
            (CONTROL_LIFE, NOW + 59, true),
            (CONTROL_LIFE, NOW + 60, false),
            (CONTROL_LIFE, NOW - MAX_SKEW, true),
            (CONTROL_LIFE, NOW - MAX_SKEW - 1, false),
            (RELAY_LIFE, NOW, false),
        ] {
            assert_eq!(verifier.claims(&token(&signer, life), now, CONTROL_LIFE).is_some(), valid, "{life:?} at {now}");
        }
        let claims = |token: &str| verifier.claims(token, NOW, RELAY_LIFE).unwrap();
        let (one, other) = (claims(&token(&signer, RELAY_LIFE)), claims(&token(&signer, Duration::from_secs(5))));
        assert_eq!((one.aud.as_str(), one.iat, one.exp, other.exp), ("ag_1", NOW, NOW + 120, NOW + 5));
        assert_ne!(one.jti, other.jti, "no two tokens are the same");
    }

    #[test]
    fn a_token_of_another_key_is_refused() {
        let (signer, _) = pair();
        let (_, verifier) = pair();
        assert!(verifier.claims(&token(&signer, CONTROL_LIFE), NOW, CONTROL_LIFE).is_none());
    }

    #[test]
    fn invalid_keys_are_refused() {
        assert!(Signer::from_pkcs8(b"hunter2").is_none());
        for key in ["", "x", "aHVudGVyMg=="] {
            assert!(Verifier::from_base64(key).is_none(), "{key}");
        }
    }
}
