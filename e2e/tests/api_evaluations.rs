//! Evaluations over REST: an agent is asked, its answers are scored, runs are compared and cancelled; datasets are made,
//! replaced and deleted; and who may do that.

use std::time::Duration;

use serde_json::{Value, json};
use slipway_e2e::{Api, Team, fresh, poll};

use crate::api_contract::assert_error;

const RUNS: &str = "/agents/helper/evaluations";
const SETS: &str = "/agents/helper/datasets";
/// How long a run of a few cases may take until it has ended.
const SECONDS: u64 = 120;

/// Waits until a run has ended, and returns it.
#[track_caller]
fn ended(api: &Api, id: &str) -> Value {
    poll(SECONDS, || {
        let run = api.call("GET", &format!("{RUNS}/{id}")).expect(200)["data"].clone();
        if matches!(run["status"].as_str(), Some("pending" | "running")) { Err(format!("it should end: {run:#}")) } else { Ok(run) }
    })
}

#[track_caller]
fn begun(api: &Api, body: &Value) -> String {
    let made = api.call("POST", RUNS).json(body).expect(201)["data"].clone();
    assert_eq!(made["status"], "pending", "{made}");
    made["id"].as_str().unwrap().to_owned()
}

fn cases() -> Value {
    json!([{"input": "Hello!", "expected_output": "Echo: Hello!"}, {"input": "Good morning!", "expected_output": "Echo: Good morning!"}])
}

#[test]
fn an_agent_is_evaluated_and_two_runs_are_compared() {
    let team = Team::new(&fresh("api-evaluations"));
    let api = Api::of(&team);
    team.agent("helper", &json!({"storage": "memory"})).ready();
    let made = api.call("POST", RUNS).expect(201)["data"].clone();
    assert_eq!((&made["status"], &made["dataset_name"]), (&json!("pending"), &json!("helper-seed")), "{made}");
    let seeded = ended(&api, made["id"].as_str().unwrap());
    assert_eq!((&seeded["status"], &seeded["provider"]), (&json!("completed"), &json!("heuristic")), "{seeded:#}");
    assert_eq!((&seeded["total_cases"], &seeded["finished_cases"]), (&json!(5), &json!(5)), "{seeded:#}");
    assert!(seeded["score"].is_number() && seeded["threshold"].is_number() && seeded["verdict"].is_string(), "{seeded:#}");
    assert!(seeded["started_at"].is_string() && seeded["completed_at"].is_string(), "{seeded:#}");
    let seed = api.call("GET", &format!("{SETS}/helper-seed")).expect(200)["data"].clone();
    assert_eq!((&seed["case_count"], &seed["agent_id"]), (&json!(5), &seeded["agent_id"]), "{seed}");

    api.call("POST", SETS).json(&json!({"name": "Hellos", "cases": cases()})).expect(201);
    // What is newest is told by whole seconds.
    std::thread::sleep(Duration::from_secs(1));
    let second = ended(&api, &begun(&api, &json!({"dataset_name": "hellos", "min_quality_score": 1})));
    assert_eq!(
        (&second["status"], &second["total_cases"], &second["passed"]),
        (&json!("completed"), &json!(2), &json!(true)),
        "{second:#}"
    );
    let (a, b) = (seeded["id"].as_str().unwrap(), second["id"].as_str().unwrap());
    let compared = api.call("GET", &format!("{RUNS}/compare?a={a}&b={b}")).expect(200)["data"].clone();
    assert_eq!((&compared["run_a"]["id"], &compared["run_b"]["id"]), (&json!(a), &json!(b)), "{compared:#}");
    for (metric, told) in compared["metrics"].as_object().unwrap() {
        assert_eq!(told["a"], seeded["aggregate_scores"].get(metric).cloned().unwrap_or_default(), "{metric}: {told}");
        assert!(matches!(told["winner"].as_str(), Some("a" | "b" | "tie")), "{metric}: {told}");
    }
    assert!(compared["metrics"].as_object().is_some_and(|metrics| !metrics.is_empty()), "{compared:#}");

    // Newest first, without what only the single view has.
    let version = team.get("evaluationruns")["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let list = |query: &str| {
        let call = api.call("GET", &format!("{RUNS}{query}"));
        let call = if version.is_empty() { call } else { call.header("X-Resource-Version", &version) };
        call.expect(200)["data"].as_array().cloned().unwrap()
    };
    poll(10, || {
        let ids: Vec<Value> = list("").into_iter().map(|run| run["id"].clone()).collect();
        if ids == [json!(b), json!(a)] { Ok(()) } else { Err(format!("both should be listed, the newest first: {ids:?}")) }
    });
    assert!(list("").iter().all(|run| run.get("worst_cases").is_none()));
    assert_eq!(list("?status=failed"), Vec::<Value>::new());
    assert_eq!(list("?limit=1").len(), 1);
    api.call("DELETE", &format!("{RUNS}/{a}")).expect(200);
    api.call("GET", &format!("{RUNS}/{a}")).expect(404);
}

#[test]
fn progress_of_an_evaluation_comes_by_the_agents_events() {
    let team = Team::new(&fresh("api-evaluations-events"));
    let api = Api::of(&team);
    team.agent("helper", &json!({"storage": "memory", "modelId": "stub-script"})).ready();
    let slow: Vec<Value> = (0..24).map(|at| json!({"input": format!("sleep 2000\ntext {at}")})).collect();
    api.call("POST", SETS).json(&json!({"name": "slow", "cases": slow})).expect(201);
    let mut events = api.call("GET", "/agents/helper/events").stream();
    let id = begun(&api, &json!({"dataset_name": "slow", "min_quality_score": 1}));
    let object = json!({"kind": "EvaluationRun", "name": id.replace('_', "-")});
    let mut told: Vec<Value> = Vec::new();
    while told.last().is_none_or(|last| ["EvaluationStarted", "EvaluationProgressed"].iter().any(|reason| last["reason"] == **reason)) {
        let sent = events.event(60).unwrap_or_else(|| panic!("the stream ended before {id}: {told:#?}"));
        let event: Value = serde_json::from_str(&sent.data).unwrap();
        if event["object"] == object {
            told.push(event);
        }
    }
    assert!(told.iter().all(|event| event["agent_id"].as_str().unwrap().starts_with("ag_")), "{told:#?}");
    let reasons: Vec<&str> = told.iter().filter_map(|event| event["reason"].as_str()).collect();
    assert_eq!((reasons.first(), reasons.last()), (Some(&"EvaluationStarted"), Some(&"EvaluationCompleted")), "{told:#?}");
    let under_way = &told[1..told.len() - 1];
    assert!(under_way.iter().all(|event| event["payload"]["total"] == 24), "{under_way:#?}");
    let finished: Vec<i64> = under_way.iter().filter_map(|event| event["payload"]["finished"].as_i64()).collect();
    // How many of the quarters are seen apart depends on how busy the machine is.
    let quarters: Vec<i64> = finished.iter().map(|finished| finished * 4 / 24).collect();
    assert!(quarters.is_sorted_by(|a, b| a < b) && quarters.iter().all(|quarter| (1..4).contains(quarter)), "{finished:?}");
    assert!(!quarters.is_empty(), "24 cases take 12 s at least, and each 2 s are told: {told:#?}");
}

#[test]
fn an_agent_without_pods_has_a_failed_run_without_scores() {
    let team = Team::new(&fresh("api-evaluations-away"));
    let api = Api::of(&team);
    team.agent("helper", &json!({"suspend": true}));
    let run = ended(&api, &begun(&api, &json!({})));
    assert_eq!((&run["status"], &run["provider"]), (&json!("failed"), &json!("mock")), "{run:#}");
    assert_eq!((&run["aggregate_scores"], &run["score"], &run["passed_cases"]), (&json!({}), &Value::Null, &json!(0)), "{run:#}");
    assert!(run["message"].as_str().is_some_and(|message| !message.is_empty()), "{run:#}");
    let path = format!("{RUNS}/compare?a={0}&b={0}", run["id"].as_str().unwrap());
    assert_error("a failed run", &format!("/api/v1{path}"), &api.call("GET", &path).send(), 409, "is failed");
}

#[test]
fn a_run_that_is_cancelled_ends() {
    let team = Team::new(&fresh("api-evaluations-cancel"));
    let api = Api::of(&team);
    team.agent("helper", &json!({"storage": "memory"})).ready();
    let many: Vec<Value> = (0..500).map(|at| json!({"input": format!("Question {at}?")})).collect();
    api.call("POST", SETS).json(&json!({"name": "many", "cases": many})).expect(201);
    let id = begun(&api, &json!({"dataset_name": "ds_many"}));
    let cancelled = api.call("POST", &format!("{RUNS}/{id}/cancel")).send();
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    let run = ended(&api, &id);
    assert_eq!(run["status"], "cancelled", "{run:#}");
    assert_eq!(api.call("POST", &format!("{RUNS}/{id}/cancel")).expect(200)["data"]["status"], "cancelled", "once more is no news");
    assert_eq!(team.get(&format!("evaluationrun/{}", id.replace('_', "-")))["spec"]["cancel"], true, "kubectl sees the same");
}

#[test]
fn a_callback_takes_its_own_token_and_is_not_believed() {
    let Some(installed) = Api::installed() else { return };
    let team = Team::new(&fresh("api-evaluations-callback"));
    let api = Api::of(&team);
    team.agent("helper", &json!({"storage": "memory"})).ready();
    let many: Vec<Value> = (0..300).map(|at| json!({"input": format!("Question {at}?"), "expected_output": "something else"})).collect();
    api.call("POST", SETS).json(&json!({"name": "many", "cases": many})).expect(201);
    let body = json!({"dataset_name": "many", "scorers": ["safety", "correctness"], "min_quality_score": 100});

    // Lies while it is under way, without the token of the call.
    let id = begun(&api, &body);
    let lies = json!({"run_id": id, "status": "completed", "scores": {"correctness/mean": 1.0}, "passed": true, "verdict": "PASSED"});
    let user = team.token("admin");
    let paths = [
        format!("{RUNS}/{id}/result"),
        "/agents/nobody/evaluations/ev_1/result".to_owned(),
        "/agents/helper/releases/1/eval-result".to_owned(),
        "/agents/nobody/releases/1/eval-result".to_owned(),
    ];
    for path in &paths {
        for token in ["eyJ9.c2ln", &user] {
            let answer = installed.call("POST", path).token(token).json(&lies).send();
            let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
            assert_eq!((answer.status, message.as_str()), (401, "the token is not valid for this callback, or no longer"), "{path}");
        }
        assert_eq!(installed.call("POST", path).json(&lies).send().status, 401, "{path}");
    }
    let run = ended(&api, &id);
    assert_eq!((&run["status"], &run["passed"]), (&json!("completed"), &json!(false)), "{run:#}");

    // The pod's own callback is heard. Should the operator have asked just then, the next run is the one.
    let heard = (0..3).any(|_| {
        let id = begun(&api, &body);
        ended(&api, &id);
        let status = team.get(&format!("evaluationrun/{}", id.replace('_', "-")))["status"].clone();
        assert_eq!(status["passed"], false, "{status:#}");
        let callback = &status["callback"];
        assert!(callback.is_null() || callback["attempt"] == 1 && callback["status"] == "completed", "{status:#}");
        callback["receivedAt"].is_string()
    });
    assert!(heard, "no pod has reported the end of its run");
}

#[test]
fn datasets_are_made_listed_replaced_and_deleted() {
    let team = Team::new(&fresh("api-datasets"));
    let api = Api::of(&team);
    for name in ["helper", "other"] {
        team.agent(name, &json!({"suspend": true}));
    }
    let body = json!({"name": "Hard Cases", "description": "What went wrong.", "guidelines": ["Be kind."], "cases": cases()});
    let made = api.call("POST", SETS).json(&body).send();
    let view = made.json()["data"].clone();
    assert_eq!(
        (made.status, &view["id"], &view["name"], &view["case_count"]),
        (201, &json!("ds_hard_cases"), &json!("hard-cases"), &json!(2))
    );
    let stored = team.get("dataset/hard-cases");
    assert_eq!(
        (&stored["spec"]["agent"], &stored["spec"]["cases"][0]["expectedOutput"]),
        (&json!("helper"), &json!("Echo: Hello!")),
        "{stored}"
    );
    poll(30, || {
        let shown = api.call("GET", &format!("{SETS}/ds_hard_cases")).expect(200)["data"].clone();
        if shown["status"] == "available" { Ok(()) } else { Err(format!("it should become available: {shown}")) }
    });
    let names = |agent: &str| -> Vec<String> {
        let call = api.call("GET", &format!("/agents/{agent}/datasets")).header("X-Resource-Version", made.header("x-resource-version"));
        let list = call.expect(200);
        assert!(list["data"].as_array().unwrap().iter().all(|one| one.get("cases").is_none()), "{list}");
        list["data"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((names("helper"), names("other")), (vec!["hard-cases".to_owned()], Vec::new()));

    let replaced = api.call("PUT", &format!("{SETS}/hard-cases")).json(&json!({"cases": [{"input": "x"}]})).expect(200)["data"].clone();
    assert_eq!(
        (&replaced["cases"], &replaced["guidelines"], &replaced["description"]),
        (&json!([{"input": "x"}]), &json!([]), &Value::Null)
    );
    for (method, path, body, status, says) in [
        ("POST", SETS, json!({"name": "hard cases", "cases": cases()}), 409, "already a dataset hard-cases"),
        ("POST", SETS, json!({"name": "!!", "cases": cases()}), 400, "name: "),
        ("POST", SETS, json!({"name": "a"}), 400, "cases: is required"),
        ("POST", SETS, json!({"name": "a", "cases": [{"input": ""}]}), 400, "cases[0].input"),
        ("POST", SETS, json!({"name": "a", "cases": cases(), "agent": "other"}), 400, "`agent`"),
        ("PUT", "/agents/helper/datasets/none", json!({"cases": cases()}), 404, "there is no dataset none"),
        ("PUT", "/agents/other/datasets/hard-cases", json!({"cases": cases()}), 404, "for agent other"),
        ("POST", "/agents/nobody/datasets", json!({"name": "a", "cases": cases()}), 404, "there is no agent nobody"),
        ("POST", RUNS, json!({"dataset_name": "none"}), 400, "dataset_name: there is no dataset"),
        ("POST", RUNS, json!({"version": "v9"}), 409, "only what agent helper runs"),
        ("POST", RUNS, json!({"judge_model": "nonsense"}), 400, "judge_model"),
        ("POST", RUNS, json!({"min_quality_score": 101}), 400, "min_quality_score"),
        ("POST", RUNS, json!({"track": "candidate"}), 400, "`track`"),
    ] {
        let reply = api.call(method, path).json(&body).send();
        assert_error(&format!("{method} {path} {body}"), &format!("/api/v1{path}"), &reply, status, says);
    }
    team.kubectl("label dataset hard-cases kustomize.toolkit.fluxcd.io/name=apps").ok();
    for (method, body) in [("PUT", json!({"cases": cases()})), ("DELETE", json!({}))] {
        let path = format!("{SETS}/hard-cases");
        assert_error(method, &format!("/api/v1{path}"), &api.call(method, &path).json(&body).send(), 409, "belongs to Flux");
    }
    team.kubectl("label dataset hard-cases kustomize.toolkit.fluxcd.io/name-").ok();
    assert_eq!(api.call("DELETE", &format!("{SETS}/hard-cases")).expect(200)["data"], json!({"id": "ds_hard_cases", "deleted": true}));
    assert_eq!(team.kubectl("get dataset/hard-cases --ignore-not-found -o name").ok(), "", "it is gone from the cluster");
}

#[test]
fn a_viewer_reads_a_developer_evaluates_and_only_a_governor_writes_what_is_protected() {
    let team = Team::new(&fresh("api-evaluations-roles"));
    let foreign = team.beside("api-evaluations-foreign");
    let api = Api::start(&[]);
    team.agent("helper", &json!({"suspend": true}));
    let (viewer, developer, stranger) = (team.token("viewer"), team.token("developer"), foreign.token("admin"));
    let call = |method: &str, path: &str, token: &str| api.call(method, path).token(token).header("X-Team", &*team.slug);
    let set = json!({"name": "kept", "cases": cases()});
    assert_eq!(call("POST", SETS, &viewer).json(&set).send().status, 403);
    assert_eq!(call("POST", RUNS, &viewer).json(&json!({})).send().status, 403);
    call("POST", SETS, &developer).json(&set).expect(201);
    let made = call("POST", RUNS, &developer).json(&json!({})).expect(201);
    let run = format!("{RUNS}/{}", made["data"]["id"].as_str().unwrap());
    for path in [RUNS, SETS, &run, &format!("{SETS}/kept")] {
        assert_eq!(call("GET", path, &viewer).send().status, 200, "{path}");
        assert_eq!(call("GET", path, &stranger).send().status, 403, "{path}");
        // The same path in the stranger's own team, where there is no such agent.
        let own = api.call("GET", path).token(&stranger).header("X-Team", &*foreign.slug).send();
        assert_eq!(own.status, 404, "{path}: {own:?}");
    }
    assert_eq!(call("POST", &format!("{run}/cancel"), &viewer).send().status, 403);

    team.kubectl("patch dataset kept --type=merge").arg("-p").arg(json!({"spec": {"protected": true}}).to_string()).ok();
    let refused = call("PUT", &format!("{SETS}/kept"), &developer).json(&json!({"cases": cases()})).send();
    assert!(refused.status == 403 && refused.body.contains("agents/governance"), "{refused:?}");
    let refused = call("POST", SETS, &developer).json(&json!({"name": "mine", "protected": true, "cases": cases()})).send();
    assert_eq!(refused.status, 403, "{refused:?}");
    let rule = json!({"apiGroups": ["agents.slipway.dev"], "resources": ["agents/governance"], "verbs": ["update"]});
    let rbac = "rbac.authorization.k8s.io";
    team.apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": {"name": "governor"}, "rules": [rule]}));
    team.apply(&json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": "governor"},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "governor"},
        "subjects": [{"kind": "ServiceAccount", "name": "e2e-developer", "namespace": team.namespace}],
    }));
    poll(20, || match call("PUT", &format!("{SETS}/kept"), &developer).json(&json!({"cases": cases(), "protected": true})).send() {
        reply if reply.status == 200 => Ok(()),
        reply => Err(format!("a governor should be let in: {reply:?}")),
    });
}

#[test]
fn one_key_begins_one_run() {
    let team = Team::new(&fresh("api-evaluations-once"));
    let api = Api::of(&team);
    team.agent("helper", &json!({"suspend": true}));
    let ask = |body: Value| api.call("POST", RUNS).header("Idempotency-Key", "one").json(&body);
    let first = ask(json!({})).expect(201)["data"]["id"].clone();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(ask(json!({})).expect(201)["data"]["id"], first);
    assert_error("another body", &format!("/api/v1{RUNS}"), &ask(json!({"min_quality_score": 80})).send(), 409, "another body");
}
