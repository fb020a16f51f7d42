//! Tokens by which agents know the platform: a compact JWS, signed with Ed25519, for one agent and for a moment.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde::Serialize;

/// No token lives longer; agents refuse one that would.
pub(crate) const LONGEST_LIFE: Duration = Duration::from_mins(1);
/// For calls that REST passes on: it uses a token for a minute, so that one more is left for what is under way.
const RELAY_LIFE: Duration = Duration::from_mins(2);
const HEAD: &str = r#"{"alg":"EdDSA","typ":"JWT"}"#;

pub(crate) struct Signer(Ed25519KeyPair);

#[derive(Serialize)]
struct Claims<'a> {
    /// The agent's id; no other agent takes the token.
    aud: &'a str,
    exp: u64,
    iat: u64,
    /// Lets the agent refuse a token that comes twice.
    jti: String,
}

impl Signer {
    pub(super) fn new(pair: Ed25519KeyPair) -> Self {
        Self(pair)
    }

    pub(super) fn public(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    /// A token for the agent with that id, from now on for `life` or [`LONGEST_LIFE`], whichever ends first.
    pub(crate) fn token(&self, agent: &str, life: Duration, now: SystemTime) -> anyhow::Result<String> {
        self.signed(agent, life.min(LONGEST_LIFE), now)
    }

    /// A token by which the agent with that id knows that a call is meant for it.
    pub(crate) fn relay_token(&self, agent: &str, now: SystemTime) -> anyhow::Result<String> {
        self.signed(agent, RELAY_LIFE, now)
    }

    fn signed(&self, agent: &str, life: Duration, now: SystemTime) -> anyhow::Result<String> {
        let iat = now.duration_since(UNIX_EPOCH).context("the clock stands before 1970")?.as_secs();
        let mut unique = [0; 16];
        getrandom::fill(&mut unique).map_err(|error| anyhow::anyhow!("no randomness to make a token from: {error}"))?;
        let exp = iat + life.as_secs();
        let claims = serde_json::to_vec(&Claims { aud: agent, exp, iat, jti: URL_SAFE_NO_PAD.encode(unique) })?;
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEAD), URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes()).as_ref());
        Ok(format!("{signed}.{signature}"))
    }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ED25519, UnparsedPublicKey};
    use serde_json::Value;

    use super::*;

    fn signer() -> Signer {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Signer::new(Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap())
    }

    fn parts(token: &str) -> (String, Vec<u8>, Value) {
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap();
        (signed.to_owned(), URL_SAFE_NO_PAD.decode(signature).unwrap(), serde_json::from_slice(&claims).unwrap())
    }

    #[test]
    fn a_token_holds_for_one_agent_and_a_minute_at_most() {
        let (ours, now) = (signer(), UNIX_EPOCH + Duration::from_secs(1_000));
        let token = ours.token("ag_1", Duration::from_hours(1), now).unwrap();
        let (signed, signature, claims) = parts(&token);
        UnparsedPublicKey::new(&ED25519, ours.public()).verify(signed.as_bytes(), &signature).unwrap();
        assert_eq!((&claims["aud"], &claims["iat"], &claims["exp"]), (&"ag_1".into(), &1_000.into(), &1_060.into()));
        let (_, _, relayed) = parts(&ours.relay_token("ag_1", now).unwrap());
        assert_eq!((&relayed["aud"], &relayed["exp"]), (&"ag_1".into(), &1_120.into()));
        let (_, _, short) = parts(&ours.token("ag_1", Duration::from_secs(5), now).unwrap());
        assert_eq!(short["exp"], 1_005);
        assert_ne!(short["jti"], claims["jti"], "no two tokens are the same");
    }

    #[test]
    fn another_platforms_token_does_not_hold() {
        let (signed, signature, _) = parts(&signer().token("ag_1", LONGEST_LIFE, SystemTime::now()).unwrap());
        assert!(UnparsedPublicKey::new(&ED25519, signer().public()).verify(signed.as_bytes(), &signature).is_err());
    }
}
