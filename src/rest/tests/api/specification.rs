//! Lines of the specification that concern all of the API and no resource of it: identifiers, timestamps, and who calls.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use slipway_rest::Authentication;

use crate::{Api, settings};

/// What an id is after its prefix.
enum After {
    Hex(usize),
    Ulid,
    Name(&'static str),
}

impl After {
    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Hex(digits) => text.len() == *digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
            Self::Ulid => text.len() == 26 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z')),
            Self::Name(name) => text == *name,
        }
    }
}

/// Conversations, traces and chunks are made elsewhere.
#[tokio::test]
async fn each_kind_has_its_prefix_and_times_are_in_utc() {
    let api = Api::open().await;
    let rule = json!({"type": "max_tokens", "operator": "lt", "value": "2048"});
    for (path, body, prefix, after) in [
        ("/teams", json!({"name": "Night Shift"}), "tk_", After::Name("night-shift")),
        ("/teams/a/members", json!({"email": "ada@example.com", "role": "viewer"}), "user_", After::Hex(16)),
        ("/agents", json!({"name": "Helper", "framework": "custom"}), "ag_", After::Hex(20)),
        ("/knowledge-bases", json!({"name": "Product Docs"}), "kb_", After::Name("product_docs")),
        (
            "/integrations",
            json!({"name": "Our Metrics", "type": "prometheus", "config": {"url": "https://metrics.example.com"}}),
            "in_",
            After::Name("our_metrics"),
        ),
        ("/agents/helper/evaluations", json!({}), "ev_", After::Ulid),
        ("/agents/helper/datasets", json!({"name": "golden", "cases": [{"input": "Hello!"}]}), "ds_", After::Name("golden")),
        (
            "/governance/policies",
            json!({"name": "Short Answers", "severity": "critical", "rules": [rule]}),
            "gp_",
            After::Name("short_answers"),
        ),
        ("/skills", json!({"name": "filing", "description": "Files.", "instructions": "File it."}), "sk_", After::Name("filing")),
    ] {
        let made = api.call(Method::POST, path, &[], Some(body)).await;
        assert_eq!(made.status, StatusCode::CREATED, "{path}: {}", made.body);
        let data = &made.body["data"];
        let id = data["id"].as_str().unwrap_or_default();
        assert!(id.strip_prefix(prefix).is_some_and(|text| after.fits(text)), "{path}: {id} should begin with {prefix}");
        assert!(made.body.as_object().is_some_and(|body| body.len() == 1), "the payload stands in data: {}", made.body);
        assert_eq!(data["created_at"], "2026-01-01T00:00:00Z", "{path}: {data}");
    }
    let profiles = api.call(Method::GET, "/risk-profiles", &[], None).await.body;
    let ids: Vec<&Value> = profiles["data"].as_array().unwrap().iter().map(|profile| &profile["id"]).collect();
    assert_eq!(ids, ["rp_low", "rp_standard", "rp_high"]);
}

/// `a` stands for `default` here: the chart's value says which team it is.
#[tokio::test]
async fn without_authentication_all_calls_are_the_default_teams() {
    let api = Api::open().await;
    assert_eq!(api.call(Method::POST, "/teams", &[], Some(json!({"name": "b"}))).await.status, StatusCode::CREATED);
    for (name, headers) in [
        ("none", &[] as &[(&str, &str)]),
        ("other-team", &[("x-team", "b")]),
        ("other-id", &[("x-team-id", "tk_b")]),
        ("token", &[("authorization", "Bearer bad")]),
        ("two-teams", &[("x-team", "a"), ("x-team-id", "tk_b")]),
    ] {
        let made = api.agent(name, headers).await;
        assert_eq!((made.status, &made.body["data"]["team_id"]), (StatusCode::CREATED, &json!("tk_a")), "{headers:?}: {}", made.body);
    }
    let namespaces: Vec<Value> = api.cluster.objects("/agents/").iter().map(|agent| agent["metadata"]["namespace"].clone()).collect();
    assert_eq!(namespaces, vec![json!("team-a"); 5]);
    assert_eq!(api.cluster.reviews(), 0, "nobody is asked who they are");
}

#[tokio::test]
async fn with_authentication_only_health_at_the_root_is_open() {
    let api = Api::start(settings(), Authentication::On(None)).await;
    let root = api.http.get(format!("http://{}/healthz", api.address)).send().await.unwrap();
    assert_eq!((root.status(), root.text().await.unwrap()), (StatusCode::OK, "ok\n".to_owned()));
    for path in ["/health", "/agents", "/teams", "/risk-profiles", "/platform/config"] {
        for headers in [&[] as &[(&str, &str)], &[("authorization", "Bearer bad")]] {
            let refused = api.call(Method::GET, path, headers, None).await;
            assert_eq!((refused.status, &refused.body["error"]), (StatusCode::UNAUTHORIZED, &json!("Unauthorized")), "{path} {headers:?}");
            assert_eq!(refused.body["path"], format!("/api/v1{path}"));
        }
    }
    assert_eq!(api.call(Method::GET, "/health", &[("authorization", "Bearer ada@example.com")], None).await.status, StatusCode::OK);
}
