//! Reads of one agent at a minimum version: from the cache if that is as new, otherwise from the cluster.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use slipway_rest::Authentication;

use crate::{Api, ApiAnswer, settings};

const AGENT: &str = "/apis/agents.slipway.dev/v1/namespaces/team-a/agents/helper";
/// No reply can have had it.
const LATEST: &str = "18446744073709551615";
const ADA: (&str, &str) = ("authorization", "Bearer ada@example.com");

fn version(answer: &ApiAnswer) -> String {
    answer.headers["x-resource-version"].to_str().unwrap().to_owned()
}

async fn get(api: &Api, path: &str, version: &str) -> ApiAnswer {
    let headers: &[_] = if version.is_empty() { &[] } else { &[("x-resource-version", version)] };
    api.call(Method::GET, path, headers, None).await
}

/// Creates an agent and waits for the cache. Returns its version.
async fn heard_of(api: &Api, headers: &[(&str, &str)]) -> String {
    let body = json!({"name": "Helper", "framework": "custom", "system_prompt": "Be brief."});
    let made = api.call(Method::POST, "/agents", headers, Some(body)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    heard(api, headers, &version(&made)).await
}

/// Waits until the list has a version.
async fn heard(api: &Api, headers: &[(&str, &str)], version: &str) -> String {
    let listed = api.call(Method::GET, "/agents", &[headers, &[("x-resource-version", version)]].concat(), None).await;
    assert_eq!(listed.status, StatusCode::OK, "{}", listed.body);
    version.to_owned()
}

#[tokio::test]
async fn an_agent_that_was_heard_of_is_shown_without_asking_the_cluster() {
    let api = Api::open().await;
    let known = heard_of(&api, &[]).await;
    let fresh = get(&api, "/agents/helper", "").await;
    assert_eq!((fresh.status, &fresh.body["data"]["config"]["system_prompt"]), (StatusCode::OK, &json!("Be brief.")), "{}", fresh.body);
    let reads = api.cluster.reads(AGENT);
    for named in ["helper", fresh.body["data"]["id"].as_str().unwrap()] {
        for version in [known.as_str(), "1"] {
            let kept = get(&api, &format!("/agents/{named}"), version).await;
            assert_eq!((kept.status, &kept.body), (StatusCode::OK, &fresh.body));
            for header in ["etag", "x-resource-version", "content-type"] {
                assert_eq!(kept.headers[header], fresh.headers[header], "{header}");
            }
        }
    }
    assert_eq!(api.cluster.reads(AGENT), reads);
    get(&api, "/agents/helper", "").await;
    assert_eq!(api.cluster.reads(AGENT), reads + 1, "who does not say how new it must be gets it as it is");
}

#[tokio::test]
async fn what_no_watch_has_told_of_is_read_from_the_cluster() {
    let api = Api::open().await;
    let old = heard_of(&api, &[]).await;
    api.cluster.fall_silent();
    let changed = api.call(Method::PATCH, "/agents/helper/config", &[], Some(json!({"description": "new"}))).await;
    let new = version(&changed);
    assert_ne!(old, new);
    for (wanted, description) in [("", json!("new")), (old.as_str(), Value::Null), (new.as_str(), json!("new")), (LATEST, json!("new"))] {
        let read = get(&api, "/agents/helper", wanted).await;
        assert_eq!((read.status, &read.body["data"]["description"]), (StatusCode::OK, &description), "{wanted:?} of {old} and {new}");
    }
    // A change with an outdated ETag is refused.
    let tag = get(&api, "/agents/helper", &old).await.headers["etag"].to_str().unwrap().to_owned();
    let late = api.call(Method::PATCH, "/agents/helper/config", &[("if-match", &tag)], Some(json!({"description": "x"}))).await;
    assert_eq!(late.status, StatusCode::CONFLICT, "{}", late.body);

    let deleted = api.call(Method::DELETE, "/agents/helper", &[], None).await;
    assert_eq!((deleted.status, api.cluster.objects(AGENT).len()), (StatusCode::OK, 0), "{}", deleted.body);
    for (wanted, status) in [("", 404), (version(&deleted).as_str(), 404), (old.as_str(), 200)] {
        assert_eq!(get(&api, "/agents/helper", wanted).await.status, status, "{wanted:?}");
    }
}

#[tokio::test]
async fn an_agent_that_is_being_deleted_is_no_longer_shown() {
    let api = Api::open().await;
    let old = heard_of(&api, &[]).await;
    api.cluster.set(AGENT, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let going = api.cluster.objects(AGENT)[0]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    heard(&api, &[], &going).await;
    for wanted in ["", &old, &going] {
        let gone = get(&api, "/agents/helper", wanted).await;
        assert_eq!(gone.status, StatusCode::NOT_FOUND, "{wanted:?}: {}", gone.body);
    }
}

#[tokio::test]
async fn a_version_that_is_none_is_refused_by_the_headers_name() {
    let api = Api::open().await;
    heard_of(&api, &[]).await;
    for wrong in ["new", "-1", "1.5", "7, 8", " ", "18446744073709551616"] {
        for path in ["/agents/helper", "/agents/nobody", "/agents"] {
            let refused = api.call(Method::GET, path, &[("x-resource-version", wrong)], None).await;
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{path} in {wrong:?}: {}", refused.body);
            assert!(refused.body["message"].as_str().unwrap().contains("X-Resource-Version"), "{}", refused.body);
        }
    }
}

#[tokio::test]
async fn the_cache_shows_nobody_what_they_may_not_read() {
    let api = Api::start(settings(), Authentication::On(None)).await;
    let known = heard_of(&api, &[ADA, ("x-team", "a")]).await;
    let read = async |team: &str| {
        let headers = [ADA, ("x-team", team), ("x-resource-version", &known)];
        let read = api.call(Method::GET, "/agents/helper", &headers, None).await;
        (read.status.as_u16(), read.body["message"].as_str().unwrap_or_default().to_owned())
    };
    let team = api.call(Method::POST, "/teams", &[ADA], Some(json!({"name": "B"}))).await;
    let heard = api.call(Method::GET, "/teams", &[ADA, ("x-resource-version", &version(&team))], None).await;
    assert_eq!(heard.status, StatusCode::OK, "{}", heard.body);
    assert_eq!(read("b").await, (404, "there is no agent helper".to_owned()));
    api.cluster.refuse(&[("get", "agents")]);
    let (status, message) = read("a").await;
    assert_eq!(status, 403, "{message}");
    assert_eq!(api.cluster.reads(AGENT), 0);
}
