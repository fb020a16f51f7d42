//! Port 8001, the control port: every request carries a token of the platform for this agent; all others are refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::json;
use slipway_api::ids;
use slipway_evaluation::wire;
use slipway_http::single_use::SingleUseAccess;
use slipway_http::token::Verifier;
use slipway_http::{Error, Method, Reply, Request};

use crate::agent::Agent;
use crate::evaluation::{self, EvaluationLimits, Evaluations};

const EVALUATIONS: &str = "/control/evaluations/";

/// A body that says where an agent is.
const MAX_TARGET_BYTES: usize = 4096;

pub(crate) struct Control {
    agent: Arc<Agent>,
    /// By tokens for the agent, or for those that evaluate it.
    access: SingleUseAccess,
    evaluations: Arc<Evaluations>,
}

impl Control {
    pub(crate) fn new(agent: Arc<Agent>, key: Verifier) -> Self {
        let evaluations = Evaluations::new(Arc::clone(&agent), EvaluationLimits::default());
        let id = &agent.identity.agent_id;
        let audience = if agent.evaluator.is_some() { ids::evaluator(id) } else { id.clone() };
        Self { agent, access: SingleUseAccess::new(audience, key), evaluations }
    }

    /// The process is to end.
    pub(crate) fn close(&self) {
        self.evaluations.close();
    }

    pub(crate) async fn answer(&self, request: Request) -> Result<Reply, Error> {
        let claims = self.access.check(request.headers(), SystemTime::now())?;
        match (request.path(), request.method()) {
            ("/control/status", &Method::GET) => self.status().await,
            ("/control/reload", &Method::POST) => {
                self.access.use_up(claims, SystemTime::now())?;
                self.reload().await
            }
            ("/control/evaluate", &Method::POST) => {
                self.access.use_up(claims, SystemTime::now())?;
                self.evaluations.begin(request.json_up_to(evaluation::MAX_BODY_BYTES).await?)
            }
            (path, &Method::GET) if let Some(run) = path.strip_prefix(EVALUATIONS) => self.evaluations.report(run, request.query()?),
            (path, &Method::PUT) if let Some(run) = path.strip_prefix(EVALUATIONS) => {
                self.access.use_up(claims, SystemTime::now())?;
                let run = run.to_owned();
                let wire::EvaluatorTarget { target } = request.json_up_to(MAX_TARGET_BYTES).await?;
                self.evaluations.turn(&run, &target)
            }
            (path, &Method::DELETE) if let Some(run) = path.strip_prefix(EVALUATIONS) => {
                self.access.use_up(claims, SystemTime::now())?;
                self.evaluations.cancel(run)
            }
            ("/control/status", _) => Err(Error::method_not_allowed(&[Method::GET])),
            ("/control/reload" | "/control/evaluate", _) => Err(Error::method_not_allowed(&[Method::POST])),
            (path, _) if path.starts_with(EVALUATIONS) => Err(Error::method_not_allowed(&[Method::GET, Method::PUT, Method::DELETE])),
            _ => Err(Error::not_found("control has /control/status, /control/reload, /control/evaluate and /control/evaluations/{run}")),
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
            "run_hash": agent.identity.run_hash,
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

    /// MCP servers are asked for their tools again.
    async fn reload(&self) -> Result<Reply, Error> {
        self.agent.toolbox.refresh().await;
        let tools = self.agent.toolbox.specs().await.len();
        Reply::json(&json!({"status": "reloaded", "tools": tools}))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use proptest::prelude::*;
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use slipway_http::token::{CONTROL_LIFE, MAX_SKEW};

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
        let key = Verifier::from_base64(&STANDARD.encode(pair().public_key())).unwrap();
        key.claims(token, NOW, CONTROL_LIFE).is_some_and(|claims| claims.aud == "ag_1")
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
            let expected = mine && alg == "EdDSA" && iat <= NOW + MAX_SKEW && exp > NOW && exp.checked_sub(iat).is_none_or(|life| life <= CONTROL_LIFE.as_secs());
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
            let _ = Verifier::from_base64(&text);
        }
    }
}
