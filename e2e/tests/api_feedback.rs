//! Feedback over REST: an answer that is marked badly becomes a case of the agent's next evaluation, and of no other agent's.

use serde_json::{Value, json};
use slipway_e2e::{Api, Team, fresh, platform, poll};
use slipway_peers::skip;

use crate::evaluations::{dataset, run, run_until};

/// Waits until a run has ended with scores, and returns how many cases it had.
#[track_caller]
fn total(team: &Team, name: &str) -> Value {
    run_until(team, name, "completed", 120, |run| run["status"]["phase"] == "Completed")["status"]["totalCases"].clone()
}

#[test]
fn a_bad_mark_makes_a_case_of_the_next_evaluation() {
    if !platform::has_database() {
        skip("the platform has no database");
        return;
    }
    let team = Team::new(&fresh("api-feedback"));
    let api = Api::of(&team);
    let agent = team.agent("helper", &json!({"storage": "postgresql", "governance": {"riskProfile": "low"}}));
    let id = agent.ready()["status"]["id"].clone();
    let chat = |message: &str| {
        let said = poll(20, || {
            let reply = api.call("POST", "/agents/helper/chat").json(&json!({"message": message})).send();
            if reply.status == 200 { Ok(reply.json()) } else { Err(format!("an answer should come: {reply:?}")) }
        });
        said["data"]["trace_id"].as_str().unwrap().to_owned()
    };
    let (liked, disliked) = (chat("What is tea?"), chat("What is coffee?"));
    let mark = |body: Value| api.call("POST", "/feedback").json(&body);

    let good = mark(json!({"agent_id": "helper", "trace_id": liked, "name": "helpful", "value": 5, "source": "human"})).expect(200);
    assert_eq!(
        good,
        json!({"status": "recorded", "trace_id": liked, "name": "helpful", "value": 5.0, "proxied": false, "dataset_appended": false})
    );
    let bad = json!({"agent_id": id, "trace_id": disliked, "name": "helpful", "value": 0, "comment": "It only repeats."});
    assert_eq!(mark(bad.clone()).expect(200)["dataset_appended"], true);
    assert_eq!(mark(bad).expect(200)["dataset_appended"], false, "once a trace");

    // What is no answer of this agent, and what is no mark.
    let other = team.agent("other", &json!({"storage": "postgresql"}));
    other.ready();
    for (agent, trace, status) in
        [("other", &*disliked, 404), ("helper", "tr_00000000000000000000000000", 404), ("nobody", &*disliked, 404)]
    {
        mark(json!({"agent_id": agent, "trace_id": trace, "name": "helpful", "value": 0})).expect(status);
    }
    let unknown = mark(json!({"agent_id": "helper", "trace_id": liked, "name": "helpful", "value": 1, "input": "planted"})).expect(400);
    assert!(unknown["message"].as_str().unwrap().contains("`input`"), "{unknown}");

    let cases = json!([{"input": "Good morning", "expectedOutput": "Echo: Good morning"}]);
    dataset(&team, "golden", &cases);
    run(&team, "with", "helper", &json!({"dataset": "golden"}));
    run(&team, "without", "helper", &json!({"dataset": "golden", "excludeFeedback": true}));
    run(&team, "others", "other", &json!({"dataset": "golden"}));
    assert_eq!((total(&team, "with"), total(&team, "without"), total(&team, "others")), (json!(2), json!(1), json!(1)));
    let change = team.kubectl("patch evaluationrun with --type=merge -p").arg(json!({"spec": {"excludeFeedback": true}})).refused();
    assert!(change.contains("does not change"), "{change}");
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
