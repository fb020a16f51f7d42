//! Metrics.

use reqwest::Method;
use serde_json::json;
use slipway_rest::{Authentication, RateLimit, RateLimits, RestSettings};

use crate::{Api, settings};

#[tokio::test]
async fn calls_are_counted_by_route_however_their_paths_differ() {
    let limits = RateLimits { agent: RateLimit { at_once: 0, per_second: 1, burst: 1 }, ..RateLimits::default() };
    let api = Api::start(RestSettings { limits, ..settings() }, Authentication::On(None)).await;
    let ada = [("authorization", "Bearer ada"), ("x-team", "a")];
    for name in ["a", "b", "c"] {
        api.call(Method::GET, &format!("/agents/{name}"), &ada, None).await;
        api.call(Method::GET, &format!("/made-up/{name}"), &ada, None).await;
        api.call(Method::GET, &format!("/agents/{name}"), &[], None).await;
    }
    assert_eq!(api.agent("Helper", &ada).await.status, 201);
    assert_eq!(api.agent("Helper", &ada).await.status, 409);
    let started = Some(json!({"replicas": 1, "suspend": false}));
    assert_eq!(api.call(Method::PATCH, "/agents/helper/config", &ada, started).await.status, 200);
    for expected in [502, 429] {
        let said = api.call(Method::POST, "/agents/helper/chat", &ada, Some(json!({"message": "hello"}))).await;
        assert_eq!(said.status, expected, "{}", said.body);
    }
    let text = api.rest.metrics();
    for line in [
        r#"slipway_rest_answers_total{method="GET",route="/agents/{id}",status="4xx"} 6"#,
        r#"slipway_rest_answers_total{method="GET",route="none",status="4xx"} 3"#,
        r#"slipway_rest_answers_total{method="POST",route="/agents",status="2xx"} 1"#,
        r#"slipway_rest_answers_total{method="POST",route="/agents/{id}/chat",status="5xx"} 1"#,
        r#"slipway_rest_refusals_total{method="GET",route="/agents/{id}",status="401"} 3"#,
        r#"slipway_rest_refusals_total{method="POST",route="/agents",status="409"} 1"#,
        r#"slipway_rest_refusals_total{method="POST",route="/agents/{id}/chat",status="429"} 1"#,
        "slipway_rest_relays_in_flight 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}
