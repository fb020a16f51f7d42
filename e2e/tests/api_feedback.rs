//! Feedback over REST: an answer that is marked badly becomes a case of the agent's next evaluation, is marked there, and can be
//! left out; marks reach MLflow; and nobody marks answers of another agent or team.

use serde_json::{Value, json};
use slipway_e2e::{Api, Call, Team, fresh, kubectl, platform, poll};
use slipway_peers::skip;

const BAD: &str = "What is coffee?";

/// A developer of a team, who calls the API that is installed, as that has the database.
struct Developer {
    api: Api,
    token: String,
}

impl Developer {
    fn call(&self, method: &str, path: &str) -> Call {
        self.api.call(method, path).token(&self.token)
    }
}

/// None where there is no database.
fn with_agent(slug: &str) -> Option<(Team, Developer)> {
    let api = with_database()?;
    let team = Team::new(&fresh(slug));
    let token = furnished(&team);
    Some((team, Developer { api, token }))
}

fn with_database() -> Option<Api> {
    let api = Api::installed().filter(|_| platform::has_database());
    if api.is_none() {
        skip("the platform has no database");
    }
    api
}

/// Gives the team an agent, and returns the token of a developer.
#[track_caller]
fn furnished(team: &Team) -> String {
    team.agent("helper", &json!({"storage": "postgresql", "governance": {"riskProfile": "low"}})).ready();
    team.token("developer")
}

/// Says something to the agent, and returns the trace of its answer.
#[track_caller]
fn chat(api: &Developer, agent: &str, message: &str) -> String {
    let said = poll(20, || {
        let reply = api.call("POST", &format!("/agents/{agent}/chat")).json(&json!({"message": message})).send();
        if reply.status == 200 { Ok(reply.json()) } else { Err(format!("an answer should come: {reply:?}")) }
    });
    said["data"]["trace_id"].as_str().unwrap().to_owned()
}

/// Evaluates an agent, and returns the run with its scores.
#[track_caller]
fn evaluated(api: &Developer, agent: &str, body: &Value) -> Value {
    let runs = format!("/agents/{agent}/evaluations");
    let id = api.call("POST", &runs).json(body).expect(201)["data"]["id"].as_str().unwrap().to_owned();
    poll(120, || {
        let run = api.call("GET", &format!("{runs}/{id}")).expect(200)["data"].clone();
        if run["status"] == "completed" { Ok(run) } else { Err(format!("it should be completed: {run:#}")) }
    })
}

#[test]
fn a_bad_mark_makes_a_case_of_the_next_evaluation() {
    let Some((team, api)) = with_agent("api-feedback") else { return };
    let id = team.get("agent/helper")["status"]["id"].clone();
    team.agent("other", &json!({"storage": "postgresql"})).ready();
    let (liked, disliked) = (chat(&api, "helper", "What is tea?"), chat(&api, "helper", BAD));
    let cases = json!([{"input": "Good morning", "expected_output": "Echo: Good morning"}]);
    api.call("POST", "/agents/helper/datasets").json(&json!({"name": "golden", "cases": cases})).expect(201);
    // Nothing is expected of what feedback appends, so that it has no score here and is shown among the worst.
    let wanted = json!({"dataset_name": "golden", "scorers": ["correctness"]});
    let before = evaluated(&api, "helper", &wanted);
    assert_eq!((&before["total_cases"], &before["feedback_cases"]), (&json!(1), &json!(0)), "{before:#}");

    let mark = |body: Value| api.call("POST", "/feedback").json(&body);
    let good = mark(json!({"agent_id": "helper", "trace_id": liked, "name": "helpful", "value": 5, "source": "human"})).expect(200);
    assert_eq!(
        good,
        json!({"status": "recorded", "trace_id": liked, "name": "helpful", "value": 5.0, "proxied": false, "dataset_appended": false})
    );
    let bad = json!({"agent_id": id, "trace_id": disliked, "name": "helpful", "value": 0, "comment": "It only repeats."});
    assert_eq!(mark(bad.clone()).expect(200)["dataset_appended"], true);
    assert_eq!(mark(bad).expect(200)["dataset_appended"], false, "once a trace");
    for (agent, trace) in [("other", &*disliked), ("helper", "tr_00000000000000000000000000"), ("nobody", &*disliked)] {
        mark(json!({"agent_id": agent, "trace_id": trace, "name": "helpful", "value": 0})).expect(404);
    }
    let unknown = mark(json!({"agent_id": "helper", "trace_id": liked, "name": "helpful", "value": 1, "input": "planted"})).expect(400);
    assert!(unknown["message"].as_str().unwrap().contains("`input`"), "{unknown}");

    let with = evaluated(&api, "helper", &wanted);
    assert_eq!((&with["total_cases"], &with["finished_cases"], &with["feedback_cases"]), (&json!(2), &json!(2), &json!(1)), "{with:#}");
    let marked: Vec<_> = with["worst_cases"].as_array().unwrap().iter().filter(|case| case["source"] == "negative_feedback").collect();
    assert!(marked.len() == 1 && marked[0]["case"] == 1 && marked[0]["input"] == BAD, "{with:#}");
    let mut excluding = wanted;
    excluding["exclude_feedback"] = json!(true);
    let without = evaluated(&api, "helper", &excluding);
    assert_eq!((&without["total_cases"], &without["feedback_cases"]), (&json!(1), &json!(0)), "{without:#}");
    assert!(without["worst_cases"].as_array().unwrap().iter().all(|case| case["input"] != BAD), "{without:#}");
    let others = evaluated(&api, "other", &json!({"scorers": ["safety"]}));
    assert_eq!(others["feedback_cases"], 0, "{others:#}");
}

#[test]
fn an_answer_of_another_team_cannot_be_marked() {
    let Some((ours, api)) = with_agent("api-feedback-ours") else { return };
    // Beside it, as who has a place and waits for another one waits for long.
    let theirs = ours.beside(&fresh("api-feedback-theirs"));
    let Some(installed) = with_database() else { return };
    let other = Developer { token: furnished(&theirs), api: installed };
    let trace = chat(&other, "helper", BAD);
    let body = json!({"agent_id": "helper", "trace_id": trace, "name": "helpful", "value": 0});
    api.call("POST", "/feedback").json(&body).expect(404);
    let run = evaluated(&other, "helper", &json!({"scorers": ["safety"]}));
    assert_eq!(run["feedback_cases"], 0, "{run:#}");
    assert_eq!(other.call("POST", "/feedback").json(&body).expect(200)["dataset_appended"], true, "their own mark does");
}

#[test]
fn an_answer_that_is_not_kept_cannot_be_marked() {
    let team = Team::new(&fresh("api-feedback-memory"));
    let api = Api::of(&team);
    team.agent("helper", &json!({"storage": "memory"})).until("there", 30, |agent| agent["status"]["observedGeneration"].is_i64());
    let body = json!({"agent_id": "helper", "trace_id": "tr_1", "name": "helpful", "value": 0});
    let refused = poll(20, || {
        let reply = api.call("POST", "/feedback").json(&body).send();
        if reply.status == 503 { Ok(reply.json()) } else { Err(format!("it should be refused: {reply:?}")) }
    });
    assert!(refused["message"].as_str().unwrap().contains("storage is memory"), "{refused}");
}

/// The platform's database as it is reached from here. None where it is not one that hack/up has made.
#[track_caller]
fn database_url() -> Option<String> {
    let of = format!("-n {} --ignore-not-found", platform::NAMESPACE);
    let url = kubectl(format!("get secret slipway-database {of} -o go-template={{{{.data.url|base64decode}}}}")).ok();
    let address = kubectl(format!("get service postgres {of} -o jsonpath={{.spec.clusterIP}}")).ok();
    let reached = url.trim().replace("@postgres:", &format!("@{}:", address.trim()));
    (!address.trim().is_empty() && reached != url.trim()).then_some(reached)
}

/// The trace id of spans, of the id that an answer names: Crockford's base 32.
fn span_id(trace: &str) -> String {
    let digit = |letter| "0123456789ABCDEFGHJKMNPQRSTVWXYZ".find(letter).unwrap();
    format!("{:032x}", trace.strip_prefix("tr_").unwrap().chars().fold(0u128, |id, letter| (id << 5) | digit(letter) as u128))
}

#[test]
fn a_mark_reaches_mlflow_when_the_trace_is_there_and_stays_one() {
    let Some((team, developer)) = with_agent("api-feedback-mlflow") else { return };
    let Some(database) = database_url() else {
        skip("the platform's database cannot be reached from here");
        return;
    };
    let trace = chat(&developer, "helper", "What is tea?");
    let agent_id = team.get("agent/helper")["status"]["id"].clone();
    // An API of the test's own, since that in the cluster does not reach this MLflow.
    let mlflow = slipway_peers::mlflow();
    let api = Api::start(&[
        ("AUTH_ENABLED", "false"),
        ("SLIPWAY_DEFAULT_NAMESPACE", &team.namespace),
        ("SLIPWAY_DATABASE_URL", &database),
        ("SLIPWAY_MLFLOW_URI", mlflow.url()),
    ]);
    let mark = |value: f64| {
        let body = json!({"agent_id": "helper", "trace_id": trace, "name": "helpful", "value": value, "scale": 5, "comment": "Well."});
        api.call("POST", "/feedback").json(&body).expect(200)["proxied"].clone()
    };
    assert_eq!(mark(1.0), false, "MLflow has no trace of it");
    let tag = json!({"key": "mlflow.traceTag.slipway.agent_id", "value": {"stringValue": agent_id}});
    let span = json!({"traceId": span_id(&trace), "spanId": "00f067aa0ba902b7", "name": "invoke_agent", "kind": 1, "attributes": [tag],
        "startTimeUnixNano": "1795625611000000000", "endTimeUnixNano": "1795625612000000000"});
    let spans = json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]});
    let address = mlflow.url().trim_start_matches("http://").trim_end_matches('/');
    let traces = Api::at(address.parse().unwrap());
    let sent = traces.whole("POST", "/v1/traces").header("host", address).header("x-mlflow-experiment-id", "0").json(&spans).send();
    assert_eq!(sent.status, 200, "{}", sent.body);
    for value in [2.0, 4.0] {
        poll(30, || if mark(value) == true { Ok(()) } else { Err("MLflow should take the mark".to_owned()) });
    }
    let script = slipway_peers::repository().join("src/mlflow/tests/read.py");
    let output = slipway_peers::python(&script, &[mlflow.url(), "Default"], &[]);
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let found = &seen["traces"][format!("tr-{}", span_id(&trace))];
    assert_eq!(
        (found.as_array().map(Vec::len), &found[0]["value"], &found[0]["source"][0]),
        (Some(1), &json!(4.0), &json!("HUMAN")),
        "{seen:#}"
    );
}
