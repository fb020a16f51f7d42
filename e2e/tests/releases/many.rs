//! Many releases at once.

use std::thread;

use serde_json::json;
use slipway_e2e::{condition, poll, until};

use super::Ground;

const AGENTS: usize = 10;
const EACH: usize = 20;

#[test]
fn two_hundred_releases_over_ten_agents_leave_no_gap_and_no_double() {
    let ground = Ground::new("releases-many");
    let agents: Vec<String> = (0..AGENTS).map(|at| format!("agent-{at}")).collect();
    for agent in &agents {
        ground.agent(agent, &json!({"systemPrompt": "one"}));
    }
    for agent in &agents {
        poll(60, || if ground.history(agent).len() == 1 { Ok(()) } else { Err(format!("{agent} should have its first release")) });
    }
    thread::scope(|scope| {
        for agent in &agents {
            let ground = &ground;
            scope.spawn(move || {
                // Stopped, it has no release that nobody asked for; each that is asked for is of another content.
                for at in 0..EACH {
                    let spec = json!({"suspend": true, "systemPrompt": format!("prompt {at}")});
                    ground.team.kubectl(format!("patch agent {agent} --type=merge -p")).arg(json!({"spec": spec}).to_string()).ok();
                    let name = format!("{agent}-asked-{at}");
                    let ask = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "AgentRelease", "metadata": {"name": name},
                        "spec": {"agent": agent, "changelog": format!("asked {at}")}});
                    // This number at once meets the quota that counts them; kubectl does not try again by itself.
                    poll(10, || {
                        let made = ground.team.kubectl("create -f -").input(&ask).run();
                        if made.code == Some(0) || !made.stderr.contains("resourcequotas") { Ok(()) } else { Err(made.stderr) }
                    });
                    until(&format!("agentreleases -n {} --field-selector metadata.name={name}", ground.team.namespace), 30, |found| {
                        let is_ready = found.iter().any(|release| condition(release, "Ready")["status"] == "True");
                        is_ready.then_some(()).ok_or_else(|| format!("{name} should be ready"))
                    });
                }
            });
        }
    });
    for agent in &agents {
        poll(120, || match ground.history(agent).len() {
            all if all == EACH + 1 => Ok(()),
            some => Err(format!("{agent} should have {} versions, and has {some}", EACH + 1)),
        });
        let history = ground.history(agent);
        let versions: Vec<u64> = history.iter().filter_map(|entry| entry["version"].as_u64()).collect();
        assert_eq!(versions, (1..=EACH as u64 + 1).rev().collect::<Vec<_>>(), "{agent}");
        let mut said: Vec<&str> = history.iter().filter_map(|entry| entry["changelog"].as_str()).collect();
        said.sort_unstable();
        said.dedup();
        assert_eq!(said.len(), EACH + 1, "each was recorded once: {said:?}");
        assert!(history.iter().skip(1).all(|entry| entry["status"] == "archived") && history[0]["status"] == "active", "{agent}");
        let last = EACH as u64 + 1;
        ground.shows(agent, &[(last - 2, "archived"), (last - 1, "archived"), (last, "active")]);
    }
    if ground.state.is_own() {
        let path = ground.folder.path().join(format!("{}.git", ground.team.namespace));
        let said = std::process::Command::new("git").arg("-C").arg(path).args(["fsck", "--strict", "--full"]).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }
}
