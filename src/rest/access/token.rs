//! Whose token it is, by the cluster's word: whatever kubectl is let in with, REST lets in.

use std::time::Instant;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use slipway_http::Error;

use super::{Access, Caller};
use crate::fault;

impl Access {
    /// The owner of `token`, if it is good. Tokens themselves are not kept, only their hashes.
    pub(super) async fn known(&self, token: &str) -> Result<Option<Caller>, Error> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let asked = Instant::now();
        if let Some(known) = self.tokens.get(&hash, asked) {
            return Ok(known);
        }
        let review = TokenReview { spec: TokenReviewSpec { token: Some(token.to_owned()), audiences: None }, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await.map_err(|error| fault::of_cluster(error, "token"))?;
        let status = answer.status.filter(|status| status.authenticated == Some(true)).unwrap_or_default();
        let caller = status
            .user
            .and_then(|user| Some(Caller { name: user.username?, groups: user.groups.unwrap_or_default(), team: None, anyone: false }));
        self.tokens.put(hash, caller.clone(), asked);
        Ok(caller)
    }
}
