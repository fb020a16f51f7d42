//! Tokens of an issuer, cached for seconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::{Method, StatusCode};
use serde_json::json;
use slipway_rest::{Authentication, Issuer, Oidc};

use crate::{Api, ApiAnswer, settings};

/// The tolerated clock skew.
const SKEW: Duration = Duration::from_secs(30);

async fn asks(api: &Api, token: &str) -> ApiAnswer {
    let bearer = format!("Bearer {token}");
    api.call(Method::GET, "/agents", &[("authorization", &bearer), ("x-team", "a")], None).await
}

#[tokio::test]
async fn an_issuers_token_is_not_believed_beyond_its_end() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let peer = slipway_peers::Issuer::start();
    let oidc = Oidc {
        issuer: peer.url().to_owned(),
        audience: "slipway".to_owned(),
        username_claim: "email".to_owned(),
        username_prefix: None,
        groups_claim: None,
        groups_prefix: String::new(),
    };
    let api = Api::start(settings(), Authentication::On(Some(Box::new(Issuer::new(oidc).unwrap())))).await;
    let token = |end: SystemTime| {
        let exp = (end - SKEW).duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        peer.token(&json!({"aud": "slipway", "email": "ada@example.com", "exp": exp}).to_string())
    };
    // Fetches the keys before time counts.
    assert_eq!(asks(&api, &token(SystemTime::now() + Duration::from_mins(1))).await.status, StatusCode::OK);
    let end = SystemTime::now() + Duration::from_secs(3);
    let token = token(end);
    for _ in 0..2 {
        let answer = asks(&api, &token).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    }
    tokio::time::sleep(end.duration_since(SystemTime::now()).unwrap_or_default() + Duration::from_millis(50)).await;
    let refused = asks(&api, &token).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert!(refused.body["message"].as_str().unwrap().contains("has expired"), "{}", refused.body);
    assert_eq!(api.cluster.reviews(), 0, "nobody asks the cluster about a token of the issuer");
}
