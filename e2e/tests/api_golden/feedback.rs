//! Marks for answers.

use serde_json::json;
use slipway_e2e::{Api, Golden, Team, fresh, platform, poll};
use slipway_peers::skip;

#[test]
fn feedback_answers_as_written_down() {
    // The API that is installed has the database.
    let Some(api) = Api::installed().filter(|_| platform::has_database()) else {
        skip("the platform has no database");
        return;
    };
    let team = Team::new(&fresh("golden-feedback"));
    let token = team.token("developer");
    team.agent("helper", &json!({"storage": "postgresql"})).ready();
    let said = poll(20, || {
        let reply = api.call("POST", "/agents/helper/chat").token(&token).json(&json!({"message": "Hello!"})).send();
        if reply.status == 200 { Ok(reply.json()) } else { Err(format!("the agent should answer: {reply:?}")) }
    });
    let trace = said["data"]["trace_id"].clone();
    let mark = |value: f64| {
        let body = json!({"agent_id": "helper", "trace_id": trace, "name": "helpful", "value": value, "source": "human"});
        api.call("POST", "/feedback").token(&token).json(&body).send()
    };
    let mut golden = Golden::of("api_golden/feedback.json");
    golden.keep("POST /feedback", &mark(4.0));
    golden.keep("POST /feedback of a bad answer", &mark(2.5));
    golden.compare();
}
