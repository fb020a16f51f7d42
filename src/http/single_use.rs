//! Changes that the platform asks for: a token of the control key, in `Authorization`, that names whom it is for and is used once.
//! The control port of agents takes them, and the routes of a team's worker that connect to integrations.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use http::{HeaderMap, StatusCode, header};

use crate::error::Error;
use crate::token::{CONTROL_LIFE, Claims, Verifier, unix_seconds};

pub struct SingleUseAccess {
    /// Whom tokens are for: an agent, those that evaluate it, or a team.
    audience: String,
    key: Verifier,
    /// Tokens that were used for a change, by `jti`, with their expiry.
    used: Mutex<HashMap<String, u64>>,
}

impl SingleUseAccess {
    pub fn new(audience: String, key: Verifier) -> Self {
        Self { audience, key, used: Mutex::default() }
    }

    /// The claims of the request's token. What only reads needs no more.
    pub fn check(&self, headers: &HeaderMap, now: SystemTime) -> Result<Claims, Error> {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(|| refused("a token of the platform is needed"))?;
        let claims = self.key.claims(token.trim(), unix_seconds(now), CONTROL_LIFE);
        claims
            .filter(|claims| claims.aud == self.audience)
            .ok_or_else(|| refused("the token is not the platform's, not for this process, or no longer valid"))
    }

    /// A token is valid for one change.
    pub fn use_up(&self, claims: Claims, now: SystemTime) -> Result<(), Error> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let now = unix_seconds(now);
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use http::HeaderValue;

    use super::*;
    use crate::token::Signer;

    #[test]
    fn a_token_is_for_one_change_of_one_audience() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let signer = Signer::from_pkcs8(&Signer::generate().unwrap()).unwrap();
        let access = SingleUseAccess::new("tk_a".to_owned(), Verifier::from_base64(&signer.public_key()).unwrap());
        let of = |audience: &str| {
            let token = signer.token(audience, CONTROL_LIFE, now).unwrap();
            HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}")).unwrap())])
        };
        let headers = of("tk_a");
        let used = |headers: &HeaderMap, at| access.check(headers, at).and_then(|claims| access.use_up(claims, at));
        assert!(access.check(&headers, now).is_ok(), "to look uses nothing up");
        assert!(used(&headers, now).is_ok());
        assert_eq!(used(&headers, now).unwrap_err().message(), "the token was used before");
        assert!(used(&of("tk_a"), now).is_ok(), "another token");
        for refused in [of("tk_b"), HeaderMap::new()] {
            assert_eq!(used(&refused, now).unwrap_err().status(), StatusCode::UNAUTHORIZED);
        }
        let later = now + CONTROL_LIFE;
        assert!(used(&headers, later).is_err());
        assert!(used(&HeaderMap::new(), later).is_err());
        access.use_up(Claims { aud: "tk_a".to_owned(), exp: u64::MAX, iat: 0, jti: "another".to_owned() }, later).unwrap();
        assert_eq!(access.used.lock().unwrap().len(), 1, "tokens are forgotten that have ended");
    }
}
