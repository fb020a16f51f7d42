//! Whose token it is: by the issuer's signature where it names the issuer, else by the cluster's word. Whatever kubectl is
//! let in with, REST lets in.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::api::{Api, PostParams};
use slipway_http::Error;

use super::{Access, Caller};
use crate::fault;

/// What was found of a token, to be believed for seconds.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    /// None: it is not good.
    pub caller: Option<Arc<Caller>>,
    /// When it ends, if that is known.
    ends: Option<SystemTime>,
}

impl Judged {
    pub(super) fn holds(&self) -> bool {
        self.ends.is_none_or(|end| SystemTime::now() < end)
    }
}

impl Access {
    /// Whose token it is. What is wrong with an issuer's token is told, and not kept.
    pub(super) async fn judge(&self, token: &str, hash: [u8; 32], address: IpAddr) -> Result<Judged, Error> {
        let asked = Instant::now();
        let judged = match self.issuer().filter(|issuer| issuer.is_named_by(token)) {
            Some(issuer) => {
                let (caller, end) = issuer.caller(token, SystemTime::now()).await?;
                Judged { caller: Some(Arc::new(caller)), ends: Some(end) }
            }
            None => Judged { caller: self.known(token, hash, address).await?.map(Arc::new), ends: None },
        };
        self.tokens.put(hash, judged.clone(), asked);
        Ok(judged)
    }

    /// The owner of a token by the cluster's word, if it is good. Only so many may turn out not to be good, for each costs the
    /// API server a review.
    async fn known(&self, token: &str, hash: [u8; 32], address: IpAddr) -> Result<Option<Caller>, Error> {
        let asked = Instant::now();
        let was_good = self.good.get(&hash, asked).is_some();
        if !was_good {
            self.failures.attempt(address, asked)?;
        }
        let reviewed = self.review_of(token).await;
        let failed = matches!(reviewed, Ok(None));
        if !was_good && !failed {
            self.failures.succeeded(address);
        }
        let caller = reviewed?;
        if failed {
            self.good.forget(&hash);
        } else {
            self.good.put(hash, (), asked);
        }
        Ok(caller)
    }

    async fn review_of(&self, token: &str) -> Result<Option<Caller>, Error> {
        let review = TokenReview { spec: TokenReviewSpec { token: Some(token.to_owned()), audiences: None }, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await.map_err(|error| fault::of_cluster(error, "token"))?;
        let status = answer.status.filter(|status| status.authenticated == Some(true)).unwrap_or_default();
        Ok(status.user.and_then(caller))
    }
}

/// All that the cluster says of the owner, as an authorizer may look at any of it.
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
