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
        if failed { self.good.forget(&hash) } else { self.good.put(hash, (), asked) }
        self.tokens.put(hash, caller.clone(), asked);
        Ok(caller)
    }

    async fn review_of(&self, token: &str) -> Result<Option<Caller>, Error> {
        let review = TokenReview { spec: TokenReviewSpec { token: Some(token.to_owned()), audiences: None }, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await.map_err(|error| fault::of_cluster(error, "token"))?;
        let status = answer.status.filter(|status| status.authenticated == Some(true)).unwrap_or_default();
        let caller = |user: UserInfo| {
            Some(Caller { name: user.username?, groups: user.groups.unwrap_or_default(), team: None, anyone: false })
        };
        Ok(status.user.and_then(caller))
    }
}
