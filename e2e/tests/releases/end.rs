//! Agents that are deleted, and what stays of them.

use serde_json::json;
use slipway_e2e::{State, poll};

use super::{Ground, runs};

#[test]
fn a_deleted_agent_gets_a_tombstone_and_one_that_comes_back_goes_on_counting() {
    let ground = Ground::new("releases-end");
    let agent = ground.agent("helper", &json!({"systemPrompt": "one"}));
    runs(&agent, 1);
    agent.patch(&json!({"systemPrompt": "two"}));
    runs(&agent, 2);
    agent.kubectl("delete").ok();
    let known = || ground.state.call("GET", &format!("/agents?namespace={}", ground.team.namespace)).expect(200)["data"][0].clone();
    poll(40, || if known()["deleted"] == true { Ok(()) } else { Err(format!("{} should be deleted", known())) });
    assert!(known()["active"].is_null() && known()["manifest"].is_null());
    assert_eq!(ground.versions("helper"), [(2, "deleted".to_owned()), (1, "deleted".to_owned())]);
    poll(40, || if ground.shown("helper").is_empty() { Ok(()) } else { Err("its AgentReleases should go with it".to_owned()) });
    let agent = ground.agent("helper", &json!({"systemPrompt": "one"}));
    runs(&agent, 3);
    assert_eq!(ground.history("helper").len(), 3);
    assert!(known()["manifest"].as_str().unwrap().contains("kind: Agent"));
}

#[test]
fn a_persons_release_says_that_its_agent_was_deleted() {
    let ground = Ground::new("releases-left");
    let agent = ground.agent("helper", &json!({}));
    runs(&agent, 1);
    let ask =
        json!({"apiVersion": "agents.slipway.dev/v1", "kind": "AgentRelease", "metadata": {"name": "mine"}, "spec": {"agent": "helper"}});
    agent.kubectl("patch --type=merge").arg("-p").arg(json!({"spec": {"suspend": true, "systemPrompt": "More."}}).to_string()).ok();
    ground.team.kubectl("create -f -").input(&ask).ok();
    runs(&agent, 2);
    let status = || ground.team.get("agentrelease/mine")["status"].clone();
    let says = |phase: &str| if status()["phase"] == phase { Ok(()) } else { Err(format!("{phase}: {}", status())) };
    poll(20, || says("active"));
    agent.kubectl("delete").ok();
    poll(40, || says("deleted"));
    assert!(status()["artifact"].is_null() && status()["version"] == 2, "{}", status());
    // Each of its releases is marked, also the one that was archived.
    assert!(ground.history("helper").iter().all(|entry| entry["status"] == "deleted"), "{:?}", ground.history("helper"));
    let agent = ground.agent("helper", &json!({}));
    runs(&agent, 3);
    poll(20, || says("deleted"));
}

#[test]
fn an_agent_that_goes_while_nobody_looks_is_found_out() {
    let ground = Ground::alone("releases-missed");
    let agent = ground.agent("helper", &json!({}));
    runs(&agent, 1);
    let Ground { team, folder, _without, state } = ground;
    drop(state);
    team.kubectl("delete agent helper").ok();
    let state = State::start(&team, folder.path(), &team.namespace);
    poll(40, || match state.call("GET", &format!("/agents?namespace={}", team.namespace)).expect(200)["data"][0]["deleted"].clone() {
        deleted if deleted == true => Ok(()),
        _ => Err("its end should be written down".to_owned()),
    });
}
