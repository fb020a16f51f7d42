//! Feedback over REST: an answer that is marked badly becomes a case of the agent's next evaluation, is marked there, and can be
//! left out; and nobody marks answers of another agent or team.

use serde_json::{Value, json};
use slipway_e2e::{Api, Call, Team, fresh, platform, poll};
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
    let Some(api) = Api::installed().filter(|_| platform::has_database()) else {
        skip("the platform has no database");
        return None;
    };
    let team = Team::new(&fresh(slug));
    let token = team.token("developer");
    team.agent("helper", &json!({"storage": "postgresql", "governance": {"riskProfile": "low"}})).ready();
    Some((team, Developer { api, token }))
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
    let (Some((_ours, api)), Some((_theirs, other))) = (with_agent("api-feedback-ours"), with_agent("api-feedback-theirs")) else { return };
    let trace = chat(&other, "helper", BAD);
    let body = json!({"agent_id": "helper", "trace_id": trace, "name": "helpful", "value": 0});
    api.call("POST", "/feedback").json(&body).expect(404);
    let theirs = evaluated(&other, "helper", &json!({"scorers": ["safety"]}));
    assert_eq!(theirs["feedback_cases"], 0, "{theirs:#}");
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
