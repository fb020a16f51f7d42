//! Every file in `config/samples` is applied: as it is, without effect, and for real in a team of the test's own.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, ROOT, Team, condition, kubectl, poll, together, until};

fn files() -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(format!("{ROOT}/config/samples")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "{files:?}");
    files
}

#[test]
fn the_api_server_accepts_each() {
    for file in files() {
        let outcome = kubectl("apply --server-side --force-conflicts --dry-run=server -f").arg(file.display()).run();
        assert_eq!(outcome.code, Some(0), "{}: {}", file.display(), outcome.stderr);
        // Nothing is said twice, and nothing unknown is warned of.
        assert_eq!(outcome.stderr, "", "{}", file.display());
    }
}

#[test]
fn together_they_run() {
    let team = Team::within(together(), "samples", &json!({}));
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        let mut sample: Value = serde_yaml::from_str(&text).unwrap();
        if sample["kind"] == "Team" {
            // Its spec, under the slug of this test.
            team.apply_spec(&sample["spec"]);
        } else {
            sample["metadata"]["namespace"] = json!(team.namespace);
            team.apply(&sample);
        }
    }
    team.ready();
    // The Secret that tickets names comes with no sample.
    for (tool, reason) in [("clock", "Valid"), ("weather", "Valid"), ("disk", "Valid"), ("tickets", "SecretMissing")] {
        until(&format!("tools -n {} --field-selector metadata.name={tool}", team.namespace), 10, |tools| {
            let told = tools.iter().any(|tool| condition(tool, "Ready")["reason"] == reason);
            if told { Ok(()) } else { Err(format!("tool {tool} should be told {reason}")) }
        });
    }
    until(&format!("skills -n {}", team.namespace), 10, |skills| {
        let available = skills.iter().any(|skill| skill["status"]["phase"] == "Available");
        if available { Ok(()) } else { Err("the skill should be Available".to_owned()) }
    });
    until(&format!("datasets -n {}", team.namespace), 10, |datasets| {
        let available = datasets.iter().any(|dataset| dataset["status"]["phase"] == "Available");
        if available { Ok(()) } else { Err("the dataset should be Available".to_owned()) }
    });
    until(&format!("guardrailpolicies -n {} --field-selector metadata.name=support-desk", team.namespace), 30, |policies| {
        let ready = policies.iter().any(|policy| condition(policy, "Ready")["status"] == "True");
        if ready { Ok(()) } else { Err("the policy should be ready".to_owned()) }
    });
    for (name, replicas) in [("hello", 1), ("concierge", 2), ("greeter", 1)] {
        let agent = Agent { team: &team, name: name.to_owned() };
        assert_eq!(agent.ready()["status"]["replicas"], replicas, "{name}");
    }
    let greeter = Agent { team: &team, name: "greeter".to_owned() };
    greeter.until("served by its canary as well", 60, |agent| agent["status"]["canary"]["weight"] == 10);
    assert!(Agent { team: &team, name: "hello".to_owned() }.chat("breakfast").contains("breakfast"));
    answers_the_platform_alone(&Agent { team: &team, name: "concierge".to_owned() });
}

/// What `access: platform` comes to: a caller of the agent itself is refused, and one of Slipway is answered.
#[track_caller]
fn answers_the_platform_alone(agent: &Agent) {
    let message = json!({"message": "breakfast"});
    let reply = agent.post("/chat", &message);
    assert_eq!(reply.status, 401, "{reply:?}");
    assert!(reply.body.contains("the platform alone"), "{reply:?}");
    let Some(rest) = Api::installed() else { return };
    let token = agent.team.token("developer");
    // REST's pods may have been there before the key by which agents know them.
    poll(90, || {
        let reply = rest.call("POST", &format!("/agents/{}/chat", agent.name)).token(&token).json(&message).send();
        if reply.status == 200 && reply.body.contains("breakfast") { Ok(()) } else { Err(format!("REST should be answered: {reply:?}")) }
    });
}
