//! Whose token it is, by the cluster's word: whatever kubectl is let in with, REST lets in.

use std::net::IpAddr;
use std::time::Instant;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use slipway_http::Error;

use super::{Access, Caller};
use crate::fault;

impl Access {
    /// The owner of `token`, if it is good. Tokens themselves are not kept, only their hashes. Only so many may turn out not
    /// to be good, for each costs the API server a review.
    pub(super) async fn known(&self, token: &str, address: IpAddr) -> Result<Option<Caller>, Error> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let asked = Instant::now();
        if let Some(known) = self.tokens.get(&hash, asked) {
            return Ok(known);
        }
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
        self.tokens.put(hash, caller.clone(), asked);
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
