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
        self.claims(token.trim(), now).ok_or_else(|| refused("the token is not the platform's, not for this agent, or no longer valid"))
    }

    /// The claims of a token that holds in every respect.
    fn claims(&self, token: &str, now: SystemTime) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        let head: Head = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).ok()?).ok()?;
        if head.alg != "EdDSA" {
            return None;
        }
        self.key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
        let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        let now = seconds(now);
        let timely = claims.iat <= now + SKEW && now < claims.exp && claims.exp <= claims.iat.saturating_add(LONGEST_LIFE);
        (timely && claims.aud == self.agent.identity.agent_id).then_some(claims)
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

fn refused(message: &str) -> Error {
    Error::new(StatusCode::UNAUTHORIZED, message)
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
