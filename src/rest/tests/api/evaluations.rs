//! Evaluations and datasets: made once, found by id and name, of one agent, and protected ones only by who may.

use reqwest::Method;
use serde_json::{Value, json};
use slipway_rest::Authentication;

use crate::{Api, ApiAnswer, settings};

const RUNS: &str = "/agents/helper/evaluations";
const SETS: &str = "/agents/helper/datasets";
const KINDS: &str = "/apis/agents.slipway.dev/v1/namespaces/team-a";
const ADA: [(&str, &str); 2] = [("authorization", "Bearer ada@example.com"), ("x-team", "a")];

async fn with_agents() -> Api {
    let api = Api::open().await;
    for name in ["helper", "other"] {
        assert_eq!(api.agent(name, &[]).await.status, 201);
    }
    api
}

async fn post(api: &Api, path: &str, body: Value) -> ApiAnswer {
    api.call(Method::POST, path, &[], Some(body)).await
}

async fn get(api: &Api, path: &str) -> ApiAnswer {
    api.call(Method::GET, path, &[], None).await
}

/// A list that knows of an answer.
async fn listed(api: &Api, path: &str, answer: &ApiAnswer) -> Vec<Value> {
    let version = answer.headers["x-resource-version"].to_str().unwrap();
    let list = api.call(Method::GET, path, &[("x-resource-version", version)], None).await;
    assert_eq!(list.status, 200, "{}", list.body);
    list.body["data"].as_array().unwrap().clone()
}

#[track_caller]
fn says(answer: &ApiAnswer, status: u16, words: &str) {
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert!(answer.status == status && message.contains(words), "{} should say {words:?}: {}", answer.status, answer.body);
}

fn run_path(made: &ApiAnswer) -> String {
    format!("{KINDS}/evaluationruns/{}", made.body["data"]["id"].as_str().unwrap().replace('_', "-"))
}

#[tokio::test]
async fn a_run_is_made_listed_cancelled_and_deleted() {
    let api = with_agents().await;
    let made = api.call(Method::POST, RUNS, &[], None).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let view = &made.body["data"];
    let id = view["id"].as_str().unwrap();
    assert!(id.len() == 29 && id.starts_with("ev_") && id.bytes().all(|byte| !byte.is_ascii_uppercase()), "{id}");
    assert_eq!((&view["status"], &view["dataset_name"], &view["agent_version"]), (&json!("pending"), &json!("helper-seed"), &json!("")));
    let stored = api.cluster.objects("/evaluationruns/").remove(0);
    assert_eq!((&stored["spec"]["agent"], &stored["spec"]["track"]), (&json!("helper"), &json!("stable")));
    assert!(stored["spec"].get("release").is_none() && stored["spec"].get("dataset").is_none(), "{stored}");

    for named in [id.to_owned(), id.to_uppercase().replace("EV_", "ev_"), id.replace('_', "-")] {
        let shown = get(&api, &format!("{RUNS}/{named}")).await;
        assert_eq!((shown.status.as_u16(), &shown.body["data"]["id"]), (200, &json!(id)), "{named}: {}", shown.body);
        assert_eq!(shown.body["data"]["dataset_name"], "helper-seed");
    }
    says(&get(&api, &format!("/agents/other/evaluations/{id}")).await, 404, "of agent other");
    assert_eq!(listed(&api, RUNS, &made).await.len(), 1);
    assert_eq!(listed(&api, "/agents/other/evaluations", &made).await, Vec::<Value>::new());

    let cancelled = api.call(Method::POST, &format!("{RUNS}/{id}/cancel"), &[], None).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.body);
    assert_eq!(api.cluster.objects("/evaluationruns/")[0]["spec"]["cancel"], true);
    api.cluster.set(&run_path(&made), json!({"status": {"phase": "Cancelled"}}));
    let again = api.call(Method::POST, &format!("{RUNS}/{id}/cancel"), &[], None).await;
    assert_eq!((again.status.as_u16(), &again.body["data"]["status"]), (200, &json!("cancelled")));
    for (status, count) in [("cancelled", 1), ("pending", 0), ("completed", 0)] {
        assert_eq!(listed(&api, &format!("{RUNS}?status={status}"), &again).await.len(), count, "{status}");
    }
    api.cluster.set(&run_path(&made), json!({"status": {"phase": "Completed"}}));
    says(&api.call(Method::POST, &format!("{RUNS}/{id}/cancel"), &[], None).await, 409, "completed already");
    let deleted = api.call(Method::DELETE, &format!("{RUNS}/{id}"), &[], None).await;
    assert_eq!(deleted.body["data"], json!({"id": id, "deleted": true}));
    says(&get(&api, &format!("{RUNS}/{id}")).await, 404, "there is no evaluation");
}

#[tokio::test]
async fn a_run_that_names_no_dataset_shows_the_one_it_will_have() {
    let api = with_agents().await;
    let cases = json!([{"input": "x"}]);
    let shared = json!({"metadata": {"name": "all"}, "spec": {"cases": cases}});
    api.cluster.make(&format!("{KINDS}/datasets"), shared);
    assert_eq!(post(&api, "/agents/other/datasets", json!({"name": "alien", "cases": cases})).await.status, 201);
    let own = post(&api, SETS, json!({"name": "golden", "cases": cases})).await;
    assert_eq!(listed(&api, SETS, &own).await.len(), 2, "lists have heard of all");
    let made = post(&api, RUNS, json!({})).await;
    assert_eq!((made.status.as_u16(), &made.body["data"]["dataset_name"]), (201, &json!("golden")), "{}", made.body);
    let shown = get(&api, &format!("{RUNS}/{}", made.body["data"]["id"].as_str().unwrap())).await;
    assert_eq!(shown.body["data"]["dataset_name"], "golden");
    let stored = api.cluster.objects("/evaluationruns/").remove(0);
    assert!(stored["spec"].get("dataset").is_none(), "which one it is, the operator decides: {stored}");
}

#[tokio::test]
async fn a_run_that_gitops_owns_is_left_to_it() {
    let api = with_agents().await;
    let made = post(&api, RUNS, json!({})).await;
    api.cluster.set(&run_path(&made), json!({"metadata": {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}}));
    let path = format!("{RUNS}/{}", made.body["data"]["id"].as_str().unwrap());
    says(&api.call(Method::POST, &format!("{path}/cancel"), &[], None).await, 409, "belongs to Flux");
    says(&api.call(Method::DELETE, &path, &[], None).await, 409, "belongs to Flux");
}

#[tokio::test]
async fn one_key_makes_one_run() {
    let api = with_agents().await;
    let key = [("idempotency-key", "7f3a")];
    let make = async |path: &str, body: Value| api.call(Method::POST, path, &key, Some(body)).await;
    let (one, two) = tokio::join!(make(RUNS, json!({})), make(RUNS, json!({})));
    assert_eq!((one.status.as_u16(), two.status.as_u16()), (201, 201), "{} {}", one.body, two.body);
    assert_eq!(one.body["data"]["id"], two.body["data"]["id"]);
    says(&make(RUNS, json!({"min_quality_score": 80})).await, 409, "another body");
    says(&make("/agents/other/evaluations", json!({})).await, 409, "another body");
    assert_eq!(api.cluster.objects("/evaluationruns/").len(), 1);
}

#[tokio::test]
async fn what_cannot_be_evaluated_is_refused() {
    let api = with_agents().await;
    let theirs = json!({"name": "Theirs", "cases": [{"input": "x"}]});
    assert_eq!(post(&api, "/agents/other/datasets", theirs).await.status, 201);
    for (path, body, status, words) in [
        ("/agents/nobody/evaluations", json!({}), 404, "there is no agent nobody"),
        (RUNS, json!({"version": "v3"}), 409, "no release is active"),
        (RUNS, json!({"version": 3}), 409, "only what agent helper runs"),
        (RUNS, json!({"version": "latest"}), 400, "version: must be the number"),
        (RUNS, json!({"dataset_name": "none"}), 400, "dataset_name: there is no dataset"),
        (RUNS, json!({"dataset_name": "../x\0"}), 400, "dataset_name: there is no dataset"),
        (RUNS, json!({"dataset_name": "ds_theirs"}), 400, "dataset_name: dataset theirs is for agent other alone"),
        (RUNS, json!({"colour": 1}), 400, "`colour`"),
    ] {
        says(&post(&api, path, body).await, status, words);
    }
    api.cluster.set(&format!("{KINDS}/agents/helper"), json!({"status": {"activeRelease": 3}}));
    for version in [json!(3), json!("3"), json!("v3")] {
        assert_eq!(post(&api, RUNS, json!({ "version": version })).await.status, 201);
    }
    says(&post(&api, RUNS, json!({"version": 2})).await, 409, "v3 is active");
    for (path, status, words) in [
        ("/agents/nobody/evaluations", 404, "there is no agent nobody"),
        ("/agents/helper/evaluations?status=done", 400, "`status` must be"),
        ("/agents/helper/evaluations?colour=1", 400, "`colour`"),
        ("/agents/helper/evaluations/ev_", 404, "there is no evaluation"),
        ("/agents/helper/evaluations/%00", 404, "there is no evaluation"),
        ("/agents/helper/evaluations/..%2fx", 404, "there is no evaluation"),
        ("/agents/helper/evaluations/compare", 400, "`a` is required"),
        ("/agents/helper/evaluations/compare?a=ev_1", 400, "`b` is required"),
        ("/agents/helper/evaluations/compare?a=ev_1&b=ev_2", 404, ": there is no evaluation"),
    ] {
        says(&get(&api, path).await, status, words);
    }
}

#[tokio::test]
async fn completed_runs_of_an_agent_are_compared() {
    let api = with_agents().await;
    let (a, b) = (post(&api, RUNS, json!({})).await, post(&api, RUNS, json!({})).await);
    let id = |made: &ApiAnswer| made.body["data"]["id"].as_str().unwrap().to_owned();
    let path = format!("{RUNS}/compare?a={}&b={}", id(&a), id(&b));
    let done = |safety: f64| json!({"status": {"phase": "Completed", "aggregateScores": {"safety/mean": safety}}});
    api.cluster.set(&run_path(&a), done(0.5));
    says(&get(&api, &path).await, 409, &format!("b: evaluation {} is pending", id(&b)));
    api.cluster.set(&run_path(&b), done(1.0));
    let compared = get(&api, &path).await;
    assert_eq!(compared.status, 200, "{}", compared.body);
    let data = &compared.body["data"];
    assert_eq!((&data["run_a"]["id"], &data["run_b"]["id"]), (&json!(id(&a)), &json!(id(&b))));
    assert_eq!(data["run_b"]["aggregate_scores"], json!({"safety/mean": 1.0}));
    let strange = path.replace("helper", "other");
    says(&get(&api, &strange).await, 404, "of agent other");
}

#[tokio::test]
async fn datasets_are_an_agents_own_or_everybodys() {
    let api = with_agents().await;
    let cases = json!([{"input": "1 + 1?", "expected_output": "2", "metadata": {"my_key": null}}]);
    let made = post(&api, SETS, json!({"name": "Hard Cases", "guidelines": ["Be kind."], "cases": cases})).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let view = &made.body["data"];
    assert_eq!((&view["id"], &view["name"], &view["case_count"]), (&json!("ds_hard_cases"), &json!("hard-cases"), &json!(1)));
    assert_eq!(view["cases"], cases);
    let shared = json!({"metadata": {"name": "shared"}, "spec": {"cases": [{"input": "x"}]}});
    let shared = api.cluster.make(&format!("{KINDS}/datasets"), shared);
    let names = |listed: Vec<Value>| listed.into_iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let mine = listed(&api, SETS, &shown_at(&api, &shared).await).await;
    assert!(mine.iter().all(|one| one.get("cases").is_none()), "{mine:?}");
    assert_eq!(names(mine), ["hard-cases", "shared"]);
    assert_eq!(names(listed(&api, "/agents/other/datasets", &made).await), ["shared"]);
    says(&get(&api, "/agents/other/datasets/hard-cases").await, 404, "no dataset hard-cases for agent other");
    says(&get(&api, &format!("{SETS}/%00")).await, 404, "there is no dataset");
    says(&post(&api, SETS, json!({"name": "hard cases", "cases": cases})).await, 409, "already a dataset hard-cases");
    says(&post(&api, SETS, json!({"name": "x", "cases": cases, "agent": "other"})).await, 400, "`agent`");

    let put = async |path: &str, body: Value| api.call(Method::PUT, path, &[], Some(body)).await;
    let replaced = put(&format!("{SETS}/ds_hard_cases"), json!({"cases": [{"input": "2 + 2?"}]})).await;
    assert_eq!(replaced.status, 200, "{}", replaced.body);
    let view = &replaced.body["data"];
    assert_eq!(
        (&view["guidelines"], &view["cases"], &view["agent_id"]),
        (&json!([]), &json!([{"input": "2 + 2?"}]), &made.body["data"]["agent_id"])
    );
    let of_all = put("/agents/other/datasets/shared", json!({"cases": [{"input": "y"}], "description": "Everybody's."})).await;
    assert_eq!((of_all.status.as_u16(), &of_all.body["data"]["agent_id"]), (200, &Value::Null), "{}", of_all.body);
    let deleted = api.call(Method::DELETE, &format!("{SETS}/hard-cases"), &[], None).await;
    assert_eq!(deleted.body["data"], json!({"id": "ds_hard_cases", "deleted": true}));
    says(&api.call(Method::DELETE, &format!("{SETS}/hard-cases"), &[], None).await, 404, "there is no dataset");
}

/// The answer that shows an object which somebody else made.
async fn shown_at(api: &Api, object: &Value) -> ApiAnswer {
    get(api, &format!("{SETS}/{}", object["metadata"]["name"].as_str().unwrap())).await
}

#[tokio::test]
async fn a_protected_dataset_is_written_by_who_may_govern() {
    let api = Api::start(settings(), Authentication::On(None)).await;
    assert_eq!(api.agent("helper", &ADA).await.status, 201);
    let cases = json!([{"input": "x"}]);
    let call = async |method: Method, path: &str, body: Option<Value>| api.call(method, path, &ADA, body).await;
    let kept = call(Method::POST, SETS, Some(json!({"name": "kept", "protected": true, "cases": cases}))).await;
    assert_eq!((kept.status.as_u16(), &kept.body["data"]["protected"]), (201, &json!(true)), "{}", kept.body);
    assert_eq!(call(Method::POST, SETS, Some(json!({"name": "free", "cases": cases}))).await.status, 201);
    api.cluster.refuse(&[("update", "agents")]);
    // Reviews are believed for seconds: somebody else asks from now on.
    let eve = [("authorization", "Bearer eve@example.com"), ("x-team", "a")];
    let call = async |method: Method, path: &str, body: Option<Value>| api.call(method, path, &eve, body).await;
    for (method, path, body) in [
        (Method::POST, SETS.to_owned(), Some(json!({"name": "more", "protected": true, "cases": cases}))),
        (Method::PUT, format!("{SETS}/kept"), Some(json!({"cases": cases}))),
        (Method::PUT, format!("{SETS}/free"), Some(json!({"cases": cases, "protected": true}))),
        (Method::DELETE, format!("{SETS}/kept"), None),
    ] {
        says(&call(method, &path, body).await, 403, "may not update agents/governance");
    }
    assert_eq!(call(Method::PUT, &format!("{SETS}/free"), Some(json!({"cases": cases}))).await.status, 200);
    assert_eq!(call(Method::DELETE, &format!("{SETS}/free"), None).await.status, 200);
    assert_eq!(api.cluster.objects("/datasets/").len(), 1);
}

#[tokio::test]
async fn a_gate_is_lowered_by_who_may_govern() {
    let api = Api::start(settings(), Authentication::On(None)).await;
    let body = json!({"name": "helper", "framework": "custom", "judge_model": "stub:/judge", "governance": {"min_quality_score": 80}});
    let made = api.call(Method::POST, "/agents", &ADA, Some(body)).await;
    assert_eq!((made.status.as_u16(), &made.body["data"]["config"]["judge_model"]), (201, &json!("stub:/judge")), "{}", made.body);
    api.cluster.refuse(&[("update", "agents")]);
    let change = async |body: Value| api.call(Method::PATCH, "/agents/helper/config", &ADA, Some(body)).await;
    for (body, field) in [
        (json!({"governance": {"min_quality_score": 79}}), "governance.min_quality_score"),
        (json!({"governance": null}), "governance.min_quality_score"),
        (json!({"judge_model": null}), "judge_model"),
        (json!({"governance": {"min_quality_score": 80, "eval_dataset": "easy"}}), "governance.eval_dataset"),
    ] {
        says(&change(body).await, 403, &format!("{field}: this lowers what releases of the agent are held to"));
    }
    for body in [json!({"governance": {"min_quality_score": 81}}), json!({"description": "x"})] {
        assert_eq!(change(body).await.status, 200);
    }
    api.cluster.refuse(&[]);
    let eve = [("authorization", "Bearer eve@example.com"), ("x-team", "a")];
    let lowered = api.call(Method::PATCH, "/agents/helper/config", &eve, Some(json!({"judge_model": null}))).await;
    assert_eq!(lowered.status, 200, "{}", lowered.body);
}

#[tokio::test]
async fn risk_profiles_are_listed() {
    let api = Api::open().await;
    let listed = get(&api, "/risk-profiles").await;
    let shown: Vec<_> = listed.body["data"].as_array().unwrap().iter().map(|one| (one["id"].clone(), one["min_score"].clone())).collect();
    assert_eq!(shown, [(json!("rp_low"), json!(60.0)), (json!("rp_standard"), json!(75.0)), (json!("rp_high"), json!(90.0))]);
}
