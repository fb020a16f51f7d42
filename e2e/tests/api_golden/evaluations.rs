//! Evaluations of agents, and the datasets that they are asked.

use serde_json::{Value, json};
use slipway_e2e::{Api, Golden, Team, fresh, poll};

#[test]
fn evaluations_and_datasets_answer_as_written_down() {
    let team = Team::new(&fresh("golden-evaluations"));
    let api = Api::of(&team);
    // What is scored, and how well, and whether the first release is there already, is other tests' matter.
    let scored = [
        "agent_version",
        "aggregate_scores",
        "score",
        "margin",
        "passed",
        "passed_cases",
        "verdict",
        "worst_cases",
        "conditions",
        "usage",
        "metrics",
        "winner",
    ];
    let mut golden = Golden::of("api_golden/evaluations.json").hiding(&["started_at", "completed_at"]).uncertain(&scored);
    let agent = team.agent("helper", &json!({"storage": "memory"})).ready();
    golden.name(agent["status"]["id"].as_str().unwrap_or_default(), "<agent>");
    let call = |method: &str, path: &str| api.call(method, &format!("/agents/helper{path}"));

    let cases = json!([{"input": "Hello!", "expected_output": "Echo: Hello!", "metadata": {"topic": "greetings"}}]);
    let made = call("POST", "/datasets")
        .json(&json!({"name": "Hellos", "description": "Greetings.", "guidelines": ["Be kind."], "cases": cases}))
        .send();
    golden.keep("POST /agents/{id}/datasets", &made);
    let available = poll(30, || {
        let shown = call("GET", "/datasets/ds_hellos").send();
        if shown.json()["data"]["status"] == "available" { Ok(shown) } else { Err(format!("it should become available: {shown:?}")) }
    });
    golden.keep("GET /agents/{id}/datasets/{name}", &available);
    let listed = call("GET", "/datasets").header("X-Resource-Version", available.header("x-resource-version")).send();
    golden.keep("GET /agents/{id}/datasets", &listed);
    let other = json!({"cases": [{"input": "Good morning!", "expected_output": "Echo: Good morning!"}]});
    golden.keep_but("PUT /agents/{id}/datasets/{name}", &call("PUT", "/datasets/hellos").json(&other).send(), &["status"]);

    let begun =
        call("POST", "/evaluations").json(&json!({"dataset_name": "hellos", "risk_profile": "low", "min_quality_score": 50})).send();
    golden.keep_but("POST /agents/{id}/evaluations", &begun, &["message"]);
    let path = format!("/evaluations/{}", begun.json()["data"]["id"].as_str().unwrap_or_default());
    let ended = poll(120, || {
        let shown = call("GET", &path).send();
        if shown.json()["data"]["status"] == "completed" { Ok(shown) } else { Err(format!("it should be completed: {shown:?}")) }
    });
    let fields = |value: &Value| value.as_object().map(|fields| fields.keys().cloned().collect::<Vec<_>>());
    let data = &ended.json()["data"];
    assert_eq!(
        fields(&data["worst_cases"][0]).unwrap_or_default(),
        ["case", "input", "output", "reason", "score", "source", "trace_id"],
        "{data:#}"
    );
    assert_eq!(fields(&data["usage"]).unwrap_or_default(), ["agent_tokens", "cost_usd", "judge_tokens"], "{data:#}");
    golden.keep("GET /agents/{id}/evaluations/{run_id}", &ended);
    let listed = call("GET", "/evaluations?status=completed").header("X-Resource-Version", ended.header("x-resource-version")).send();
    golden.keep("GET /agents/{id}/evaluations", &listed);
    let id = data["id"].as_str().unwrap_or_default();
    golden.keep("GET /agents/{id}/evaluations/compare", &call("GET", &format!("/evaluations/compare?a={id}&b={id}")).send());

    let waits = call("POST", "/evaluations").json(&json!({"dataset_name": "hellos"})).expect(201);
    let waiting = format!("/evaluations/{}", waits["data"]["id"].as_str().unwrap_or_default());
    // It may be under way already, or at its end.
    let cancelled = poll(30, || {
        let reply = call("POST", &format!("{waiting}/cancel")).send();
        if reply.status == 200 {
            return Ok(reply);
        }
        let next = call("POST", "/evaluations").json(&json!({"dataset_name": "hellos"})).expect(201);
        let reply = call("POST", &format!("/evaluations/{}/cancel", next["data"]["id"].as_str().unwrap_or_default())).send();
        if reply.status == 200 { Ok(reply) } else { Err(format!("one of the runs should be cancelled in time: {reply:?}")) }
    });
    let running = [
        "status",
        "message",
        "provider",
        "total_cases",
        "feedback_cases",
        "finished_cases",
        "started_at",
        "completed_at",
        "threshold",
        "judge_model",
        "risk_profile",
    ];
    golden.keep_but("POST /agents/{id}/evaluations/{run_id}/cancel", &cancelled, &running);
    golden.keep("DELETE /agents/{id}/evaluations/{run_id}", &call("DELETE", &path).send());
    golden.keep("DELETE /agents/{id}/datasets/{name}", &call("DELETE", "/datasets/hellos").send());
    golden.keep("GET /risk-profiles", &api.call("GET", "/risk-profiles").send());
    golden.compare();
}
