//! Identifies the caller of a token: by the issuer's signature if it names the issuer, otherwise by TokenReview, like
//! kubectl.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::api::{Api, PostParams};
use slipway_http::Error;

use super::{Access, Caller};
use crate::cluster_error;

/// The identity behind a token, cached for seconds.
#[derive(Debug, Clone)]
pub(super) struct TokenIdentity {
    /// None for an invalid token.
    pub caller: Option<Arc<Caller>>,
    /// The expiry, if it is known.
    expires: Option<SystemTime>,
}

impl TokenIdentity {
    pub(super) fn is_valid(&self) -> bool {
        self.expires.is_none_or(|end| SystemTime::now() < end)
    }
}

impl Access {
    /// Identifies the caller. Errors of an issuer's token are not cached.
    pub(super) async fn authenticate(&self, token: &str, hash: [u8; 32], address: IpAddr) -> Result<TokenIdentity, Error> {
        let asked = Instant::now();
        let identity = match self.issuer().filter(|issuer| issuer.is_named_by(token)) {
            Some(issuer) => {
                let (caller, end) = issuer.caller(token, SystemTime::now()).await?;
                TokenIdentity { caller: Some(Arc::new(caller)), expires: Some(end) }
            }
            None => TokenIdentity { caller: self.review_token(token, hash, address).await?.map(Arc::new), expires: None },
        };
        self.tokens.put(hash, identity.clone(), asked);
        Ok(identity)
    }

    /// The caller by TokenReview; none for an invalid token. Invalid tokens are limited, because each costs the API server
    /// a review.
    async fn review_token(&self, token: &str, hash: [u8; 32], address: IpAddr) -> Result<Option<Caller>, Error> {
        let asked = Instant::now();
        let was_good = self.known_good.get(&hash, asked).is_some();
        if !was_good {
            self.failures.attempt(address, asked)?;
        }
        let reviewed = self.token_review(token).await;
        let failed = matches!(reviewed, Ok(None));
        if !was_good && !failed {
            self.failures.succeeded(address);
        }
        let caller = reviewed?;
        if failed {
            self.known_good.forget(&hash);
        } else {
            self.known_good.put(hash, (), asked);
        }
        Ok(caller)
    }

    async fn token_review(&self, token: &str) -> Result<Option<Caller>, Error> {
        let review = TokenReview { spec: TokenReviewSpec { token: Some(token.to_owned()), audiences: None }, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await.map_err(|error| cluster_error::from_kube(error, "token"))?;
        let status = answer.status.filter(|status| status.authenticated == Some(true)).unwrap_or_default();
        Ok(status.user.and_then(caller))
    }
}

/// All attributes of the user, as authorizers may use any of them.
fn caller(user: UserInfo) -> Option<Caller> {
    let UserInfo { username, groups, uid, extra } = user;
    Some(Caller {
        name: username?,
        groups: groups.unwrap_or_default(),
        uid: uid.filter(|uid| !uid.is_empty()),
        extra: extra.unwrap_or_default(),
        team: None,
        anyone: false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_the_cluster_says_of_a_caller_is_kept() {
        let user = json!({"username": "u", "uid": "7", "groups": ["g"], "extra": {"example.com/scopes": ["a", "b"]}});
        let caller = caller(serde_json::from_value(user).unwrap()).unwrap();
        assert_eq!((caller.uid.as_deref(), &caller.extra["example.com/scopes"]), (Some("7"), &vec!["a".to_owned(), "b".to_owned()]));
        assert!(super::caller(UserInfo::default()).is_none(), "who has no name is nobody");
    }
}
