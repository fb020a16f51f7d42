//! Authenticates callers of the state role: other parts of Slipway, by ServiceAccount tokens with the audience of the state
//! role. Callers authorise their own users.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use slipway_api::platform::STATE_AUDIENCE;
use slipway_http::{Error, HeaderMap, HeaderValue, StatusCode, header};

/// The time that the result of a TokenReview is cached.
const CACHE_TTL: Duration = Duration::from_mins(1);
/// The cached results.
const MAX_CACHED: usize = 1024;

pub(super) struct Callers {
    client: Client,
    allowed: Vec<String>,
    /// By the hash of the token: whether it belongs to an allowed caller, and the time of the review.
    reviews: Mutex<HashMap<[u8; 32], (bool, Instant)>>,
}

impl Callers {
    pub(super) fn new(client: Client, allowed: Vec<String>) -> Self {
        Self { client, allowed, reviews: Mutex::default() }
    }

    /// Refuses a request without a token of an allowed caller.
    pub(super) async fn check(&self, headers: &HeaderMap) -> Result<(), Error> {
        let Some(token) = token(headers) else {
            return Err(unknown("this takes Authorization: Bearer, with a ServiceAccount's token for the audience slipway-state"));
        };
        let hash: [u8; 32] = Sha256::digest(token).into();
        let cached = self.reviews.lock().unwrap_or_else(PoisonError::into_inner).get(&hash).copied();
        let allowed = match cached.filter(|(_, reviewed)| reviewed.elapsed() < CACHE_TTL) {
            Some((allowed, _)) => allowed,
            None => self.review(token, hash).await?,
        };
        if allowed { Ok(()) } else { Err(unknown("the user of this token may not call this port; --state-callers lists the allowed ones")) }
    }

    async fn review(&self, token: &str, hash: [u8; 32]) -> Result<bool, Error> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![STATE_AUDIENCE.to_owned()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviewed = Instant::now();
        let answer = Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| Error::unavailable("the cluster cannot review the token").because(error))?;
        let status = answer.status.filter(|status| status.authenticated == Some(true)).unwrap_or_default();
        // An authenticator that does not support audiences returns none, and has not checked them.
        let has_audience = status.audiences.is_some_and(|audiences| audiences.iter().any(|audience| audience == STATE_AUDIENCE));
        let name = status.user.and_then(|user| user.username).filter(|_| has_audience);
        let allowed = name.is_some_and(|name| self.allowed.contains(&name));
        let mut reviews = self.reviews.lock().unwrap_or_else(PoisonError::into_inner);
        if reviews.len() >= MAX_CACHED {
            reviews.retain(|_, (_, reviewed)| reviewed.elapsed() < CACHE_TTL);
        }
        if reviews.len() < MAX_CACHED {
            reviews.insert(hash, (allowed, reviewed));
        }
        Ok(allowed)
    }
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn unknown(message: &'static str) -> Error {
    Error::new(StatusCode::UNAUTHORIZED, message).with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn only_allowed_callers_pass_and_reviews_are_cached() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let counted = counted.clone();
            async move {
                counted.fetch_add(1, Ordering::SeqCst);
                let body = request.into_body().collect_bytes().await.unwrap();
                let review: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let token = review["spec"]["token"].as_str().unwrap().to_owned();
                assert_eq!(review["spec"]["audiences"], json!([STATE_AUDIENCE]));
                let status = match token.strip_prefix("unaware-") {
                    _ if token == "bad" => json!({"authenticated": false}),
                    Some(user) => json!({"authenticated": true, "user": {"username": user}}),
                    None => json!({"authenticated": true, "user": {"username": token}, "audiences": [STATE_AUDIENCE]}),
                };
                let answer = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}, "status": status});
                Ok::<_, std::io::Error>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        let callers = Callers::new(Client::new(server, "default"), vec!["rest".to_owned()]);
        let with = |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
        for (value, allowed) in [
            ("Bearer rest", true),
            ("bearer rest", true),
            ("Bearer other", false),
            ("Bearer bad", false),
            ("Bearer unaware-rest", false),
            ("Basic rest", false),
            ("Bearer ", false),
        ] {
            assert_eq!(callers.check(&with(value)).await.is_ok(), allowed, "{value}");
        }
        assert_eq!(callers.check(&HeaderMap::new()).await.unwrap_err().status(), StatusCode::UNAUTHORIZED);
        assert_eq!(count.load(Ordering::SeqCst), 4, "one review per token");
    }
}
