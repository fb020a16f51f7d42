//! What a deleted Agent leaves in the platform's database.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Team, http, kubectl, platform, poll, until};
use slipway_peers::skip;

fn conversations(agent: &Agent) -> Vec<Value> {
    let reply = poll(10, || http(&agent.team.namespace, &agent.name, 8000, "/conversations", None).map_err(|error| error.to_string()));
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["data"].as_array().cloned().unwrap_or_default()
}

#[test]
fn rows_go_with_their_agent_and_are_not_given_to_the_next_of_its_name() {
    if !platform::has_database() {
        skip("the platform has no database");
        return;
    }
    let team = Team::new("leftrows");
    let agents = ["goes", "returns"].map(|name| team.agent(name, &json!({"storage": "postgresql"})));
    for agent in &agents {
        agent.ready();
        agent.chat("hello");
        assert_eq!(conversations(agent).len(), 1, "{}", agent.name);
    }
    for agent in &agents {
        agent.kubectl("delete").ok();
    }
    // Made again at once, it begins with nothing.
    let returns = team.agent("returns", &json!({"storage": "postgresql"}));
    returns.ready();
    assert_eq!(conversations(&returns), [Value::Null; 0]);
    returns.chat("hello again");
    // By uid: an earlier run's team of that name has left its Events.
    let uid = kubectl(format!("get team {} -o jsonpath={{.metadata.uid}}", team.slug)).ok();
    let about = format!("events -A --field-selector reason=RowsDeleted,involvedObject.uid={uid}");
    until(&about, 90, |events| {
        let notes: Vec<_> = events.iter().filter_map(|event| event["message"].as_str()).collect();
        if notes.iter().any(|note| note.contains("agent goes")) { Ok(()) } else { Err(format!("the rows of goes should go: {notes:?}")) }
    });
    assert_eq!(conversations(&returns).len(), 1, "what it said itself stays");
    team.agent("goes", &json!({"storage": "postgresql"}));
    let [goes, _] = &agents;
    goes.ready();
    assert_eq!(conversations(goes), [Value::Null; 0]);
}
