//! Port 8000 of agents and workers: whom a request is for. A relayed call carries a token of the platform that names the agent,
//! or the team of the worker, so that a Service cannot be pointed at another team's. Requests without a token are served,
//! because network policies guard the port, unless only the platform may call.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use http::{HeaderMap, StatusCode};
use ring::digest::{SHA256, digest};

use crate::error::Error;
use crate::token::{RELAY_LIFE, Verifier, unix_seconds};

/// Carries the token. `Authorization` is what clients of the chat completions protocol send, with values of their own.
pub const HEADER: &str = "x-slipway-token";
/// Each replica of the REST API has a token of its own.
const MAX_CACHED_TOKENS: usize = 64;

pub struct Access {
    audience: String,
    key: Option<Verifier>,
    /// Whether a request without a token is refused.
    platform_only: bool,
    /// Valid tokens by digest, with their expiry: to verify a signature takes longer than many answers.
    cached: Mutex<HashMap<[u8; 32], u64>>,
}

impl Access {
    pub fn new(audience: String, key: Option<Verifier>, platform_only: bool) -> Self {
        Self { audience, key, platform_only, cached: Mutex::default() }
    }

    /// Refuses a request for another, or without a valid token where one is needed.
    pub fn check(&self, headers: &HeaderMap, now: SystemTime) -> Result<(), Error> {
        let Some(key) = &self.key else { return Ok(()) };
        let Some(token) = headers.get(HEADER) else {
            return if self.platform_only { Err(refused("this answers the platform alone")) } else { Ok(()) };
        };
        let now = unix_seconds(now);
        let print = print(token.as_bytes());
        if print.is_some_and(|print| self.cached().get(&print).is_some_and(|until| now < *until)) {
            return Ok(());
        }
        let claims = token.to_str().ok().and_then(|token| key.claims(token, now, RELAY_LIFE));
        let Some(claims) = claims else { return Err(refused("the token is not the platform's, or no longer valid")) };
        if claims.aud != self.audience {
            return Err(Error::new(StatusCode::MISDIRECTED_REQUEST, "the request is meant for another"));
        }
        let mut cached = self.cached();
        cached.retain(|_, until| now < *until);
        if let Some(print) = print.filter(|_| cached.len() < MAX_CACHED_TOKENS) {
            cached.insert(print, claims.exp);
        }
        Ok(())
    }

    fn cached(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], u64>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn print(token: &[u8]) -> Option<[u8; 32]> {
    digest(&SHA256, token).as_ref().try_into().ok()
}

fn refused(message: &str) -> Error {
    Error::new(StatusCode::UNAUTHORIZED, message)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use http::HeaderValue;
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_000_000;

    fn pair(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn access(platform_only: bool) -> Access {
        Access::new("ag_1".to_owned(), Verifier::from_base64(&STANDARD.encode(pair(7).public_key())), platform_only)
    }

    fn token(seed: u8, aud: &str, iat: u64, exp: u64) -> String {
        let parts = [json!({"alg": "EdDSA"}), json!({"aud": aud, "iat": iat, "exp": exp, "jti": "x"})];
        let signed = parts.map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(pair(seed).sign(signed.as_bytes())))
    }

    fn status(access: &Access, token: Option<&str>, now: u64) -> u16 {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(HEADER, HeaderValue::from_str(token).unwrap());
        }
        let checked = access.check(&headers, UNIX_EPOCH + Duration::from_secs(now));
        checked.err().map_or(200, |error| error.status().as_u16())
    }

    #[test]
    fn a_request_for_another_agent_is_refused() {
        let (open, closed) = (access(false), access(true));
        for (name, token, expected) in [
            ("for this agent", token(7, "ag_1", NOW, NOW + 120), 200),
            ("for another agent", token(7, "ag_2", NOW, NOW + 120), 421),
            ("somebody else's", token(8, "ag_1", NOW, NOW + 120), 401),
            ("expired", token(7, "ag_1", NOW - 120, NOW), 401),
            ("not yet", token(7, "ag_1", NOW + 11, NOW + 60), 401),
            ("too long", token(7, "ag_1", NOW, NOW + 121), 401),
            ("no token", "x".to_owned(), 401),
            ("empty", String::new(), 401),
        ] {
            for access in [&open, &closed] {
                assert_eq!([status(access, Some(&token), NOW), status(access, Some(&token), NOW)], [expected; 2], "{name}");
            }
        }
        assert_eq!((status(&open, None, NOW), status(&closed, None, NOW)), (200, 401));
        let without = Access::new("ag_1".to_owned(), None, false);
        assert_eq!((status(&without, None, NOW), status(&without, Some("x"), NOW)), (200, 200), "it knows nobody's key");
    }

    #[test]
    fn a_token_that_is_known_ends_when_it_should() {
        let access = access(true);
        let good = token(7, "ag_1", NOW, NOW + 120);
        assert_eq!([0, 119, 120].map(|later| status(&access, Some(&good), NOW + later)), [200, 200, 401]);
        for n in 0..200 {
            assert_eq!(status(&access, Some(&token(7, "ag_1", NOW - n % 100, NOW + 1 + n / 100)), NOW), 200);
        }
        assert!(access.cached().len() <= MAX_CACHED_TOKENS);
    }
}
