//! Port 8001: what the platform may ask of an agent. Every request carries a token that the platform
//! signed for this agent and for a moment; nobody else is heard.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::json;
use slipway_http::{Error, HeaderMap, Method, Reply, Request, StatusCode, header};

use crate::agent::Agent;

/// Tokens live no longer than this, so that a lost one is soon worth nothing.
const LONGEST_LIFE: u64 = 60;
/// How far two clocks may be apart.
const SKEW: u64 = 10;
const KEY_BYTES: usize = 32;

pub(crate) struct Control {
    agent: Arc<Agent>,
    key: UnparsedPublicKey<Vec<u8>>,
    /// Tokens that were used to change something, until they would have expired anyway.
    used: Mutex<HashMap<String, u64>>,
}

#[derive(Debug, Deserialize)]
struct Head {
    alg: String,
}

#[derive(Debug, Deserialize)]
struct Claims {
    aud: String,
    exp: u64,
    iat: u64,
    jti: String,
}

/// Reads the platform's key; the words say what is wrong with it.
pub(crate) fn key(text: &str) -> Result<Vec<u8>, String> {
    let bytes = STANDARD.decode(text.trim()).ok().filter(|bytes| bytes.len() == KEY_BYTES);
    bytes.ok_or_else(|| format!("RUNTIME_CONTROL_PUBLIC_KEY must be an Ed25519 public key, {KEY_BYTES} bytes in base64"))
}

impl Control {
    pub(crate) fn new(agent: Arc<Agent>, key: Vec<u8>) -> Self {
        Self { agent, key: UnparsedPublicKey::new(&ED25519, key), used: Mutex::default() }
    }

    pub(crate) async fn answer(&self, request: Request) -> Result<Reply, Error> {
        let claims = self.verified(request.headers(), SystemTime::now())?;
        match (request.path(), request.method()) {
            ("/control/status", &Method::GET) => self.status().await,
            ("/control/reload", &Method::POST) => {
                self.use_up(claims, SystemTime::now())?;
                self.reload().await
            }
            ("/control/status", _) => Err(Error::method_not_allowed(&[Method::GET])),
            ("/control/reload", _) => Err(Error::method_not_allowed(&[Method::POST])),
            _ => Err(Error::not_found("control has /control/status and /control/reload")),
        }
    }

    async fn status(&self) -> Result<Reply, Error> {
        let agent = &self.agent;
        let tools: Vec<_> = agent.toolbox.specs().await.into_iter().map(|spec| spec.name).collect();
        let skills: Vec<_> = agent.skills.listed().iter().map(|skill| &skill.name).collect();
        let skill_digests: BTreeMap<_, _> =
            agent.skills.listed().iter().filter_map(|skill| Some((&skill.name, skill.digest.as_ref()?))).collect();
        Reply::json(&json!({
            "agent_id": agent.identity.agent_id,
            "version": agent.identity.version,
            "runtime": env!("CARGO_PKG_VERSION"),
            "model": format!("{}:{}", agent.model.provider(), agent.model.id()),
            "storage": agent.store.backend(),
            "tools": tools,
            "tool_digests": agent.toolbox.digests(),
            "tool_changes": agent.toolbox.changes(),
            "skills": skills,
            "skill_digests": skill_digests,
        }))
    }

    /// Forgets what was learned of the world: MCP servers are asked for their tools again.
    async fn reload(&self) -> Result<Reply, Error> {
        self.agent.toolbox.refresh().await;
        let tools = self.agent.toolbox.specs().await.len();
        Reply::json(&json!({"status": "reloaded", "tools": tools}))
    }

    fn verified(&self, headers: &HeaderMap, now: SystemTime) -> Result<Claims, Error> {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(|| refused("a token of the platform is needed"))?;
        claims(&self.key, &self.agent.identity.agent_id, token.trim(), seconds(now))
            .ok_or_else(|| refused("the token is not the platform's, not for this agent, or no longer valid"))
    }

    /// A token changes something once.
    fn use_up(&self, claims: Claims, now: SystemTime) -> Result<(), Error> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let now = seconds(now);
        used.retain(|_, expires| *expires > now);
        match used.insert(claims.jti, claims.exp) {
            None => Ok(()),
            Some(_) => Err(refused("the token was used before")),
        }
    }
}

/// The claims of a token that holds in every respect: the platform's, for this agent, now.
fn claims(key: &UnparsedPublicKey<Vec<u8>>, agent: &str, token: &str, now: u64) -> Option<Claims> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (head, claims) = signed.split_once('.')?;
    let head: Head = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).ok()?).ok()?;
    if head.alg != "EdDSA" {
        return None;
    }
    key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
    let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    let timely = claims.iat <= now + SKEW && now < claims.exp && claims.exp <= claims.iat.saturating_add(LONGEST_LIFE);
    (timely && claims.aud == agent).then_some(claims)
}

fn refused(message: &str) -> Error {
    Error::new(StatusCode::UNAUTHORIZED, message)
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::*;

    const NOW: u64 = 1_000_000;

    fn pair() -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
    }

    fn token(head: &str, claims: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(pair().sign(signed.as_bytes()).as_ref());
        format!("{signed}.{signature}")
    }

    fn held(token: &str) -> bool {
        claims(&UnparsedPublicKey::new(&ED25519, pair().public_key().as_ref().to_vec()), "ag_1", token, NOW).is_some()
    }

    /// Moments around now, and those at the ends of what numbers can say.
    fn moment() -> impl Strategy<Value = u64> {
        prop_oneof![4 => NOW - 75..NOW + 75, 1 => prop::sample::select(vec![0, 1, u64::MAX, u64::MAX - 1, u64::MAX - 60])]
    }

    proptest! {
        #[test]
        fn a_token_holds_for_its_agent_within_its_time_and_no_longer_than_a_minute(mine: bool, iat in moment(), exp in moment(), alg in "EdDSA|none|HS256|eddsa") {
            let aud = if mine { "ag_1" } else { "ag_2" };
            let token = token(&json!({"alg": alg}).to_string(), &json!({"aud": aud, "iat": iat, "exp": exp, "jti": "x"}).to_string());
            let expected = mine && alg == "EdDSA" && iat <= NOW + SKEW && exp > NOW && exp.checked_sub(iat).is_none_or(|life| life <= LONGEST_LIFE);
            prop_assert_eq!(held(&token), expected);
        }

        #[test]
        fn no_other_token_holds_than_the_one_that_was_signed(at in any::<prop::sample::Index>(), byte in "[A-Za-z0-9_.=+/-]", what in 0_usize..4) {
            let good = token(r#"{"alg":"EdDSA","typ":"JWT"}"#, &json!({"aud": "ag_1", "iat": NOW, "exp": NOW + 60, "jti": "abc"}).to_string());
            prop_assert!(held(&good));
            let at = at.index(good.len());
            let mut other = good.clone();
            match what {
                0 => other.replace_range(at..=at, &byte),
                1 => other.insert_str(at, &byte),
                2 => drop(other.remove(at)),
                _ => other.truncate(at),
            }
            prop_assert_eq!(held(&other), other == good, "{}", other);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}|[A-Za-z0-9_-]{0,20}\\.[A-Za-z0-9_-]{0,20}\\.[A-Za-z0-9_-]{0,20}", claims in "\\PC{0,40}|\\{(\"(aud|exp|iat|jti)\":(\"ag_1\"|-?[0-9]{1,22}|null),?){0,5}\\}") {
            prop_assert!(!held(&text));
            let token = token(r#"{"alg":"EdDSA"}"#, &claims);
            let mine = serde_json::from_str::<serde_json::Value>(&claims).is_ok_and(|claims| claims["aud"] == "ag_1");
            prop_assert!(mine || !held(&token));
            let _ = key(&text);
        }
    }
}
