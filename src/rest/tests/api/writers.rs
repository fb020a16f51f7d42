//! Impersonation of callers in writes.

use reqwest::Method;
use serde_json::json;
use slipway_rest::{Authentication, RestSettings};

use crate::{Api, settings};

const ADA: [(&str, &str); 2] = [("authorization", "Bearer ada@example.com"), ("x-team", "a")];

async fn written(impersonate: bool, authentication: Authentication) -> Vec<(String, Vec<String>)> {
    let api = Api::start(RestSettings { impersonate, ..settings() }, authentication).await;
    let key = [ADA[0], ADA[1], ("idempotency-key", "k")];
    assert_eq!(api.agent("Helper", &key).await.status, 201);
    let body = Some(json!({"description": "x"}));
    assert_eq!(api.call(Method::PATCH, "/agents/helper/config", &ADA, body).await.status, 200);
    // Repeats until two calls really meet, and one is undone.
    let mut round = 0;
    while !api.cluster.writers("/agents/").iter().any(|(method, _)| method == "DELETE") {
        round += 1;
        assert!(round < 20, "the calls never met");
        let (one, other, key) = (format!("One {round}"), format!("Other {round}"), format!("r-{round}"));
        let race = [ADA[0], ADA[1], ("idempotency-key", key.as_str())];
        let (one, other) = tokio::join!(api.agent(&one, &race), api.agent(&other, &race));
        assert_eq!(one.status.as_u16() + other.status.as_u16(), 201 + 409);
    }
    assert_eq!(api.call(Method::DELETE, "/agents/helper", &ADA, None).await.status, 200);
    assert!(api.cluster.objects("/namespaces/team-a/agents/helper").is_empty());
    let body = Some(json!({"email": "eve@example.com", "role": "viewer"}));
    assert_eq!(api.call(Method::POST, "/teams/a/members", &ADA, body).await.status, 201);
    assert_eq!(api.call(Method::PUT, "/platform/config", &ADA, Some(json!({"mlflow_uri": "http://mlflow"}))).await.status, 200);
    assert!(api.cluster.writers("configmaps").iter().all(|(_, told)| told.is_empty()), "the platform's own are REST's to write");
    let agents = api.cluster.objects("/agents/");
    assert!(agents.iter().all(|agent| agent["metadata"]["annotations"]["agents.slipway.dev/changed-by"].is_string()));
    let writers = api.cluster.writers("/namespaces/team-a/");
    assert!(writers.len() >= 6, "{writers:?}");
    writers
}

#[tokio::test]
async fn what_a_caller_writes_is_written_as_the_caller_if_the_chart_says_so() {
    let ada = ["ada@example.com", "engineers", "system:authenticated"].map(str::to_owned).to_vec();
    let mut own = 0;
    for (method, told) in written(true, Authentication::On(None)).await {
        // REST undoes as itself: the right to create an agent does not include the right to delete it.
        assert!(told == ada || (method == "DELETE" && told.is_empty()), "{method} as {told:?}");
        own += usize::from(told.is_empty());
    }
    assert_eq!(own, 1);
}

#[tokio::test]
async fn otherwise_and_where_nobody_says_who_they_are_rest_writes_as_itself() {
    for (impersonate, authentication) in [(false, Authentication::On(None)), (true, Authentication::Off)] {
        for (method, told) in written(impersonate, authentication).await {
            assert!(told.is_empty(), "{method} as {told:?}");
        }
    }
}
