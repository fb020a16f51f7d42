//! Canaries: started once, weighed, promoted and rolled back, each by one write that tells the operator what was asked.
//!
//! `chats` sends chats to agents that have one. How a canary stands is written here as the operator would write it.

mod chats;

use reqwest::Method;
use serde_json::{Value, json};
use slipway_rest::Authentication;

use crate::{Api, ApiAnswer, settings};

const AGENT: &str = "/apis/agents.slipway.dev/v1/namespaces/team-a/agents/helper";
const CANARY: &str = "/agents/helper/canary";
const PROMOTE: &str = "/agents/helper/canary/promote";
const ROLL_BACK: &str = "/agents/helper/canary/rollback";
const ACTION: &str = "agents.slipway.dev/canary-action";
const WEIGHT: &str = "agents.slipway.dev/canary-weight";
const ADA: [(&str, &str); 2] = [("authorization", "Bearer ada@example.com"), ("x-team", "a")];

async fn call(api: &Api, method: Method, path: &str, body: Option<Value>) -> ApiAnswer {
    api.call(method, path, &[], body).await
}

async fn start(api: &Api, config: Value) -> ApiAnswer {
    call(api, Method::POST, CANARY, Some(json!({"config": config}))).await
}

#[track_caller]
fn says(answer: &ApiAnswer, status: u16, words: &str) {
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert!(answer.status == status && message.contains(words), "{} should say {words:?}: {}", answer.status, answer.body);
}

fn stored(api: &Api) -> Value {
    api.cluster.objects("/agents/helper").remove(0)
}

/// The operator's word.
fn stands(api: &Api, canary: &Value) {
    api.cluster.set(AGENT, json!({"status": {"canary": canary}}));
}

async fn with_agent(fields: Value) -> Api {
    let api = Api::open().await;
    let mut body = json!({"name": "Helper", "framework": "custom"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let made = call(&api, Method::POST, "/agents", Some(body)).await;
    assert_eq!(made.status, 201, "{}", made.body);
    api
}

#[tokio::test]
async fn a_canary_is_started_weighed_and_promoted() {
    let api = with_agent(json!({"version": "1", "system_prompt": "Be brief."})).await;
    let none = call(&api, Method::GET, CANARY, None).await;
    let data = &none.body["data"];
    assert_eq!((none.status.as_u16(), &data["enabled"], &data["config"]), (200, &json!(false), &json!({})), "{}", none.body);
    assert_eq!((&data["stable_version"], &data["canary_version"]), (&json!("1"), &json!("")));
    api.cluster.set(AGENT, json!({"metadata": {"annotations": {ACTION: "rollback", WEIGHT: "0"}}}));

    let config = json!({"system_prompt": "Be kind.", "version": "2", "description": "Kinder.", "replicas": 2, "weight": 10});
    let made = start(&api, config.clone()).await;
    let data = &made.body["data"];
    assert_eq!((made.status.as_u16(), &data["enabled"], &data["config"]), (201, &json!(true), &config), "{}", made.body);
    assert_eq!((&data["weight"], &data["desired_weight"], &data["phase"]), (&json!(0), &json!(10), &Value::Null));
    let expected = json!({
        "enabled": true, "weight": 10, "systemPrompt": "Be kind.", "version": "2", "replicas": 2, "overrides": {"description": "Kinder."},
    });
    let agent = stored(&api);
    assert_eq!((&agent["spec"]["canary"], &agent["spec"]["systemPrompt"]), (&expected, &json!("Be brief.")));
    let annotations = &agent["metadata"]["annotations"];
    assert!(annotations.get(ACTION).is_none() && annotations.get(WEIGHT).is_none(), "what was asked of an earlier one: {annotations}");
    says(&call(&api, Method::POST, PROMOTE, None).await, 409, "has not begun yet");

    stands(&api, &json!({"phase": "Serving", "weight": 10, "desiredWeight": 10, "stableVersion": "1"}));
    let weighed = call(&api, Method::PATCH, CANARY, Some(json!({"weight": 25.0}))).await;
    let data = &weighed.body["data"];
    assert_eq!((weighed.status.as_u16(), &data["weight"], &data["desired_weight"]), (200, &json!(10), &json!(25)), "{}", weighed.body);
    assert_eq!(stored(&api)["spec"]["canary"]["weight"], 25);
    let shown = call(&api, Method::GET, CANARY, None).await.body;
    assert_eq!((&shown["data"]["phase"], &shown["data"]["config"]["weight"]), (&json!("serving"), &json!(25)));

    let promoted = call(&api, Method::POST, PROMOTE, None).await;
    let id = call(&api, Method::GET, "/agents/helper", None).await.body["data"]["id"].clone();
    assert_eq!((promoted.status.as_u16(), &promoted.body), (200, &json!({"status": "promoted", "agent_id": id})));
    assert!(promoted.headers.contains_key("etag"));
    let agent = stored(&api);
    let spec = &agent["spec"];
    assert_eq!((&spec["systemPrompt"], &spec["description"], &spec["version"]), (&json!("Be kind."), &json!("Kinder."), &json!("2")));
    assert!(spec.get("canary").is_none() && spec["replicas"] != 2, "{spec}");
    assert_eq!(agent["metadata"]["annotations"][ACTION], "promote");
    says(&call(&api, Method::POST, PROMOTE, None).await, 409, "has no canary");
}

#[tokio::test]
async fn a_canary_is_rolled_back_and_the_agent_stays() {
    let api = with_agent(json!({"system_prompt": "Be brief."})).await;
    for (method, path, body) in
        [(Method::PATCH, CANARY, Some(json!({"weight": 5}))), (Method::POST, PROMOTE, None), (Method::POST, ROLL_BACK, None)]
    {
        says(&call(&api, method, path, body).await, 409, "agent helper has no canary");
    }
    let before = stored(&api)["spec"].clone();
    assert_eq!(start(&api, json!({"system_prompt": "Be rude.", "weight": 100})).await.status, 201);
    stands(&api, &json!({"phase": "Progressing", "evaluation": "ev-01abc"}));
    let waits = json!({
        "type": "CanaryReady", "status": "Unknown", "reason": "AwaitingEvaluation", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    api.cluster.set(AGENT, json!({"status": {"conditions": [waits]}}));
    says(&call(&api, Method::POST, PROMOTE, None).await, 409, "waits for its evaluation");
    assert_eq!(call(&api, Method::GET, CANARY, None).await.body["data"]["evaluation"], "ev_01abc");
    let rolled_back = call(&api, Method::POST, ROLL_BACK, None).await;
    assert_eq!((rolled_back.status.as_u16(), &rolled_back.body["status"]), (200, &json!("rolled_back")), "{}", rolled_back.body);
    let agent = stored(&api);
    assert_eq!((&agent["spec"], &agent["metadata"]["annotations"][ACTION]), (&before, &json!("rollback")));
    says(&start(&api, json!({"weight": 5})).await, 409, "on its way out");
    stands(&api, &Value::Null);
    assert_eq!(start(&api, json!({"weight": 5})).await.status, 201);
}

#[tokio::test]
async fn a_canary_is_started_once() {
    let api = with_agent(json!({})).await;
    let key = [("idempotency-key", "k")];
    let begin = |weight: i32| api.call(Method::POST, CANARY, &key, Some(json!({"config": {"model_id": "m", "weight": weight}})));
    let (one, two) = (begin(10).await, begin(10).await);
    assert_eq!((one.status.as_u16(), two.status.as_u16(), &one.body["data"]), (201, 201, &two.body["data"]), "{}", two.body);
    says(&begin(20).await, 409, "a canary is active");
    says(&start(&api, json!({"model_id": "m", "weight": 10})).await, 409, "a canary is active");
    assert_eq!(stored(&api)["spec"]["canary"]["weight"], 10);
    let spaced = api.call(Method::POST, CANARY, &[("idempotency-key", "a b")], Some(json!({"config": {"weight": 5}}))).await;
    says(&spaced, 400, "Idempotency-Key");
}

#[tokio::test]
async fn a_canary_changes_only_in_the_version_that_was_read() {
    let api = with_agent(json!({})).await;
    let made = start(&api, json!({"weight": 10})).await;
    let old = made.headers["etag"].to_str().unwrap().to_owned();
    let weigh = |tag: String, weight: i32| {
        let api = &api;
        async move { api.call(Method::PATCH, CANARY, &[("if-match", &tag)], Some(json!({"weight": weight}))).await }
    };
    let weighed = weigh(old.clone(), 20).await;
    assert_eq!(weighed.status, 200, "{}", weighed.body);
    says(&weigh(old.clone(), 30).await, 409, "If-Match");
    for path in [PROMOTE, ROLL_BACK] {
        says(&api.call(Method::POST, path, &[("if-match", &old)], None).await, 409, "If-Match");
    }
    assert_eq!(stored(&api)["spec"]["canary"]["weight"], 20);
    let new = weighed.headers["etag"].to_str().unwrap();
    assert_eq!(api.call(Method::POST, ROLL_BACK, &[("if-match", new)], None).await.status, 200);
}

#[tokio::test]
async fn what_a_canary_cannot_be_is_refused_and_not_written() {
    let api = with_agent(json!({})).await;
    let before = stored(&api);
    for (body, words) in [
        (json!({}), "config"),
        (json!({"config": null}), "expected a map"),
        (json!({"config": {"weight": 5}, "weight": 5}), "unknown field `weight`"),
        (json!({"config": {"model_id": "m"}}), "config.weight: is needed"),
        (json!({"config": {"weight": 0}}), "config.weight"),
        (json!({"config": {"weight": 5, "suspend": true}}), "config.suspend: is the agent's own"),
        (json!({"config": {"weight": 5, "description": null}}), "config.description: a canary sets"),
        (json!({"config": {"weight": 5, "colour": 1}}), "there is no field `colour`"),
        (json!({"config": {"weight": 5, "model_type": "openai"}}), "canary.model_id: must name a model of the provider in model_type"),
        (json!({"config": {"weight": 5, "suggestions": "[]"}}), "canary.overrides.suggestions_provider: is required"),
    ] {
        says(&call(&api, Method::POST, CANARY, Some(body)).await, 400, words);
    }
    assert_eq!(stored(&api), before);
    assert_eq!(start(&api, json!({"weight": 5})).await.status, 201);
    for (body, words) in [
        (json!({}), "weight"),
        (json!({"weight": 0}), "weight: must be from 1 to 100"),
        (json!({"weight": 101}), "weight: must be from 1 to 100"),
        (json!({"weight": "5"}), "expected a JSON number"),
        (json!({"weight": 5.5}), "5.5 is no integer"),
        (json!({"weight": 5, "model_id": "m"}), "unknown field `model_id`"),
    ] {
        says(&call(&api, Method::PATCH, CANARY, Some(body)).await, 400, words);
    }
    assert_eq!(stored(&api)["spec"]["canary"], json!({"enabled": true, "weight": 5}));
    let missing = call(&api, Method::POST, "/agents/nobody/canary", Some(json!({"config": {"weight": 5}}))).await;
    says(&missing, 404, "there is no agent nobody");
}

#[tokio::test]
async fn of_a_block_a_canary_says_what_is_different() {
    let api = with_agent(json!({"governance": {"min_quality_score": 80, "guards": ["pii-detection"]}})).await;
    // Of one that is turned off nothing stays.
    let old =
        json!({"enabled": false, "weight": 5, "modelId": "old", "overrides": {"description": "old", "governance": {"evalDataset": "old"}}});
    api.cluster.set(AGENT, json!({"spec": {"canary": old}}));
    let made = start(&api, json!({"governance": {"risk_profile": "high"}, "weight": 7})).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let whole = json!({"minQualityScore": 80, "guards": ["pii-detection"], "riskProfile": "high"});
    assert_eq!(stored(&api)["spec"]["canary"], json!({"enabled": true, "weight": 7, "overrides": {"governance": whole}}));
}

#[tokio::test]
async fn under_gitops_annotations_weigh_and_end_a_canary() {
    let api = with_agent(json!({})).await;
    let canary = json!({"enabled": true, "weight": 10, "modelId": "m"});
    api.cluster.set(AGENT, json!({"metadata": {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}}));
    says(&start(&api, json!({"weight": 5})).await, 409, "belongs to Flux");
    api.cluster.set(AGENT, json!({"spec": {"canary": canary}}));
    let spec = stored(&api)["spec"].clone();

    for (weight, annotation) in [(30, json!("30")), (10, Value::Null)] {
        let weighed = call(&api, Method::PATCH, CANARY, Some(json!({"weight": weight}))).await;
        assert_eq!((weighed.status.as_u16(), &weighed.body["data"]["desired_weight"]), (200, &json!(weight)), "{}", weighed.body);
        assert_eq!(stored(&api)["metadata"]["annotations"][WEIGHT], annotation);
    }
    says(&call(&api, Method::POST, PROMOTE, None).await, 409, "belongs to Flux");
    says(&call(&api, Method::POST, ROLL_BACK, None).await, 409, "has not begun yet");
    stands(&api, &json!({"phase": "Serving", "weight": 10}));
    says(&call(&api, Method::POST, PROMOTE, None).await, 409, "belongs to Flux");
    assert_eq!(call(&api, Method::POST, ROLL_BACK, None).await.status, 200);
    assert_eq!((&stored(&api)["spec"], &stored(&api)["metadata"]["annotations"][ACTION]), (&spec, &json!("rollback")));
    stands(&api, &json!({"phase": "RolledBack"}));
    for (method, path, body) in [(Method::POST, ROLL_BACK, None), (Method::PATCH, CANARY, Some(json!({"weight": 5})))] {
        says(&call(&api, method, path, body).await, 409, "was rolled back");
    }
}

#[tokio::test]
async fn an_archived_agent_starts_no_canary_and_loses_its_own() {
    let api = with_agent(json!({})).await;
    let archive = |status: &'static str| call(&api, Method::PATCH, "/agents/helper/status", Some(json!({"status": status})));
    assert_eq!(archive("archived").await.status, 200);
    says(&start(&api, json!({"weight": 5})).await, 409, "is archived");
    assert_eq!(archive("active").await.status, 200);
    assert_eq!(start(&api, json!({"weight": 5})).await.status, 201);
    stands(&api, &json!({"phase": "Serving", "weight": 5}));
    assert_eq!(archive("archived").await.status, 200);
    for (method, path, body) in [(Method::PATCH, CANARY, Some(json!({"weight": 9}))), (Method::POST, PROMOTE, None)] {
        says(&call(&api, method, path, body).await, 409, "is archived");
    }
    assert_eq!(call(&api, Method::GET, CANARY, None).await.body["data"]["enabled"], true);
    assert_eq!(call(&api, Method::POST, ROLL_BACK, None).await.status, 200);
    assert!(stored(&api)["spec"].get("canary").is_none());
}

#[tokio::test]
async fn a_canary_that_lowers_the_gate_takes_the_right() {
    let api = Api::start(settings(), Authentication::On(None)).await;
    let gated = json!({"name": "Helper", "framework": "custom", "governance": {"min_quality_score": 80}});
    assert_eq!(api.call(Method::POST, "/agents", &ADA, Some(gated)).await.status, 201);
    api.cluster.refuse(&[("update", "agents")]);
    let start = |config: Value| api.call(Method::POST, CANARY, &ADA, Some(json!({"config": config})));
    let before = stored(&api);
    for governance in [json!({"min_quality_score": 10}), json!({"min_quality_score": null})] {
        says(&start(json!({"weight": 5, "governance": governance})).await, 403, "canary.governance.min_quality_score: this lowers");
    }
    let by_config = json!({"canary": {"enabled": true, "weight": 5, "overrides": {"governance": {"min_quality_score": 10}}}});
    says(&api.call(Method::PATCH, "/agents/helper/config", &ADA, Some(by_config)).await, 403, "canary.governance.min_quality_score");
    assert_eq!(stored(&api), before);
    for config in [json!({"weight": 5, "governance": {"min_quality_score": 90}}), json!({"weight": 5, "system_prompt": "Be kind."})] {
        let made = start(config).await;
        assert_eq!(made.status, 201, "{}", made.body);
        assert_eq!(api.call(Method::POST, ROLL_BACK, &ADA, None).await.status, 200);
    }
    // By somebody who may.
    let lower = json!({"enabled": true, "weight": 5, "overrides": {"governance": {"minQualityScore": 10}}});
    api.cluster.set(AGENT, json!({"spec": {"canary": lower}, "status": {"canary": {"phase": "Serving", "weight": 5}}}));
    assert_eq!(api.call(Method::PATCH, CANARY, &ADA, Some(json!({"weight": 50}))).await.status, 200);
    says(&api.call(Method::POST, PROMOTE, &ADA, None).await, 403, "governance.min_quality_score: this lowers");
    assert_eq!(stored(&api)["spec"]["governance"], json!({"minQualityScore": 80}));
    api.cluster.refuse(&[]);
    // Until reviews of before are forgotten.
    tokio::time::sleep(std::time::Duration::from_millis(5_100)).await;
    assert_eq!(api.call(Method::POST, PROMOTE, &ADA, None).await.status, 200);
    assert_eq!(stored(&api)["spec"]["governance"], json!({"minQualityScore": 10}));
}

#[tokio::test]
async fn a_canary_of_a_changed_config_has_the_weight_of_the_config() {
    let api = with_agent(json!({})).await;
    api.cluster.set(AGENT, json!({"metadata": {"annotations": {WEIGHT: "0", ACTION: "promote"}}}));
    let change = |canary: Value| call(&api, Method::PATCH, "/agents/helper/config", Some(json!({"canary": canary})));
    assert_eq!(change(Value::Null).await.status, 200);
    assert_eq!(stored(&api)["metadata"]["annotations"][ACTION], "promote", "it tells how the one before ended");
    assert_eq!(change(json!({"enabled": true, "weight": 40, "model_id": "m"})).await.status, 200);
    assert!(stored(&api)["metadata"]["annotations"].get(ACTION).is_none(), "this one is not promoted for that");
    let shown = call(&api, Method::GET, CANARY, None).await.body;
    assert_eq!((&shown["data"]["desired_weight"], &shown["data"]["config"]), (&json!(40), &json!({"model_id": "m", "weight": 40})));
}

#[tokio::test]
async fn without_a_cluster_a_canary_is_unavailable() {
    let api = with_agent(json!({})).await;
    api.cluster.go_away();
    for (method, path, body) in [
        (Method::GET, CANARY, None),
        (Method::POST, CANARY, Some(json!({"config": {"weight": 5}}))),
        (Method::PATCH, CANARY, Some(json!({"weight": 5}))),
        (Method::POST, PROMOTE, None),
        (Method::POST, ROLL_BACK, None),
    ] {
        let answer = call(&api, method.clone(), path, body).await;
        assert!(answer.headers.contains_key("retry-after"), "{method} {path}");
        says(&answer, 503, "the cluster does not answer");
    }
}
