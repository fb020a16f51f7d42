//! Guardrail policies: made once, found by id and name, replaced whole, and written only by who may.

use reqwest::Method;
use serde_json::{Value, json};
use slipway_rest::Authentication;

use crate::{Api, ApiAnswer, settings};

const POLICIES: &str = "/governance/policies";
const STORED: &str = "/apis/agents.slipway.dev/v1/namespaces/team-a/guardrailpolicies";
const ADA: [(&str, &str); 2] = [("authorization", "Bearer ada@example.com"), ("x-team", "a")];

fn tokens(value: &str) -> Value {
    json!([{"type": "max_tokens", "operator": "lt", "value": value}])
}

fn body() -> Value {
    json!({"name": "Short Answers", "description": "Nobody reads novels.", "severity": "critical", "rules": tokens("2048")})
}

async fn call(api: &Api, method: Method, path: &str, body: Option<Value>) -> ApiAnswer {
    api.call(method, path, &[], body).await
}

#[track_caller]
fn says(answer: &ApiAnswer, status: u16, words: &str) {
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert!(answer.status == status && message.contains(words), "{} should say {words:?}: {}", answer.status, answer.body);
}

#[tokio::test]
async fn a_policy_is_made_replaced_listed_and_deleted() {
    let api = Api::open().await;
    let made = call(&api, Method::POST, POLICIES, Some(body())).await;
    let view = &made.body["data"];
    assert_eq!((made.status.as_u16(), &view["id"], &view["slug"]), (201, &json!("gp_short_answers"), &json!("short-answers")), "{view}");
    assert_eq!((&view["enabled"], &view["rollback"], &view["agents"]), (&json!(true), &json!(false), &Value::Null));
    let stored = api.cluster.objects("/guardrailpolicies/").remove(0);
    assert_eq!((&stored["spec"]["severity"], &stored["metadata"]["namespace"]), (&json!("critical"), &json!("team-a")));
    says(&call(&api, Method::POST, POLICIES, Some(body())).await, 409, "already a policy short-answers");

    for named in ["short-answers", "gp_short_answers"] {
        let path = format!("{POLICIES}/{named}");
        let replaced = json!({"name": "Short Answers", "severity": "warning", "enabled": false, "rules": tokens("1024")});
        let answer = call(&api, Method::PUT, &path, Some(replaced)).await;
        let view = &answer.body["data"];
        assert_eq!((answer.status.as_u16(), &view["severity"], &view["enabled"]), (200, &json!("warning"), &json!(false)), "{view}");
        assert_eq!((&view["description"], &view["rules"][0]["value"]), (&Value::Null, &json!("1024")), "what is left out is reset");
        let stored = api.cluster.objects("/guardrailpolicies/").remove(0);
        assert!(stored["spec"].get("description").is_none(), "{stored}");
        assert_eq!(call(&api, Method::GET, &path, None).await.body["data"]["id"], "gp_short_answers");
        assert_eq!(call(&api, Method::PUT, &path, Some(body())).await.status, 200);
    }
    let violator = json!({"agent": "helper", "rule": "max_tokens", "count": 2, "blocked": 2});
    api.cluster.set(
        &format!("{STORED}/short-answers"),
        json!({"status": {"agents": 1, "violations": {"total": 2, "blocked": 2}, "violators": [violator]}}),
    );
    let shown = call(&api, Method::GET, "/governance/policies/short-answers", None).await;
    assert_eq!((&shown.body["data"]["violations"]["total"], &shown.body["data"]["violators"][0]["count"]), (&json!(2), &json!(2)));
    let version = shown.headers["x-resource-version"].to_str().unwrap();
    let listed = api.call(Method::GET, POLICIES, &[("x-resource-version", version)], None).await.body;
    assert_eq!((&listed["data"][0]["violations"]["total"], &listed["data"][0]["violators"]), (&json!(2), &json!([])), "{listed}");

    let deleted = call(&api, Method::DELETE, "/governance/policies/gp_short_answers", None).await;
    assert_eq!((deleted.status.as_u16(), &deleted.body["data"]), (200, &json!({"id": "gp_short_answers", "deleted": true})));
    let version = deleted.headers["x-resource-version"].to_str().unwrap();
    assert_eq!(api.call(Method::GET, POLICIES, &[("x-resource-version", version)], None).await.body["data"], json!([]));
    for (method, body) in [(Method::GET, None), (Method::PUT, Some(body())), (Method::DELETE, None)] {
        says(&call(&api, method, "/governance/policies/short-answers", body).await, 404, "there is no policy short-answers");
    }
    says(&call(&api, Method::GET, "/governance/policies/No.Name", None).await, 404, "there is no policy No.Name");
}

#[tokio::test]
async fn a_policy_with_a_fault_is_not_written() {
    let api = Api::open().await;
    assert_eq!(call(&api, Method::POST, POLICIES, Some(body())).await.status, 201);
    let before = api.cluster.objects("/guardrailpolicies/");
    for (method, path) in [(Method::POST, POLICIES), (Method::PUT, "/governance/policies/short-answers")] {
        for (change, words) in [
            (json!({"rules": [{"type": "max_tokens", "operator": "contains", "value": "1"}]}), "rules[0].operator: max_tokens"),
            (json!({"rules": tokens("0")}), "rules[0].value: max_tokens"),
            (json!({"rules": [{"type": "max_weight", "operator": "lt", "value": "1"}]}), "rules[0].type"),
            (json!({"severity": "fatal"}), "severity"),
            (json!({"colour": "red"}), "there is no field `colour`"),
        ] {
            let mut wrong = body();
            wrong.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            says(&call(&api, method.clone(), path, Some(wrong)).await, 400, words);
        }
    }
    assert_eq!(api.cluster.objects("/guardrailpolicies/"), before);
}

#[tokio::test]
async fn a_policy_that_gitops_owns_is_left_to_it() {
    let api = Api::open().await;
    assert_eq!(call(&api, Method::POST, POLICIES, Some(body())).await.status, 201);
    api.cluster.set(&format!("{STORED}/short-answers"), json!({"metadata": {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}}));
    for (method, body) in [(Method::PUT, Some(body())), (Method::DELETE, None)] {
        says(&call(&api, method, "/governance/policies/short-answers", body).await, 409, "policy short-answers belongs to Flux");
    }
    assert_eq!(api.cluster.objects("/guardrailpolicies/")[0]["spec"]["rules"], tokens("2048"));
}

#[tokio::test]
async fn a_repeated_creation_of_a_policy_makes_one() {
    let api = Api::open().await;
    let key = [("idempotency-key", "k")];
    let post = |body: Value| api.call(Method::POST, POLICIES, &key, Some(body));
    let (one, two) = (post(body()).await, post(body()).await);
    assert_eq!((one.status.as_u16(), two.status.as_u16(), &one.body), (201, 201, &two.body));
    let mut other = body();
    other["severity"] = json!("warning");
    says(&post(other).await, 409, "Idempotency-Key");
    assert_eq!(api.cluster.objects("/guardrailpolicies/").len(), 1);
}

#[tokio::test]
async fn a_policy_is_written_only_by_those_who_may() {
    let api = Api::start(settings(), Authentication::On(None)).await;
    assert_eq!(api.call(Method::POST, POLICIES, &ADA, Some(body())).await.status, 201);
    let before = api.cluster.objects("/guardrailpolicies/");
    api.cluster.refuse(&[("create", "guardrailpolicies"), ("patch", "guardrailpolicies"), ("delete", "guardrailpolicies")]);
    // Until reviews of before are forgotten.
    tokio::time::sleep(std::time::Duration::from_millis(5_100)).await;
    let one = format!("{POLICIES}/short-answers");
    for (method, path, body) in [(Method::POST, POLICIES, Some(body())), (Method::PUT, &one, Some(body())), (Method::DELETE, &one, None)] {
        says(&api.call(method, path, &ADA, body).await, 403, "guardrailpolicies");
    }
    assert_eq!(api.call(Method::GET, &one, &ADA, None).await.status, 200);
    assert_eq!(api.cluster.objects("/guardrailpolicies/"), before);
}
