//! A state role that is killed at each of its writes, once before it and once after: the next one comes to the same end.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use slipway_e2e::{Agent, Gate, State, Team, When, poll};

use super::gate::{HEURISTIC, gate as gated};
use super::{Ground, runs};

/// A state role that may die at any time.
struct Doomed(Child);

impl Doomed {
    fn start(gate: &Gate, folder: &Path, team: &Team, write: usize, when: When) -> Self {
        let kubeconfig = folder.join("kubeconfig");
        gate.kubeconfig(&kubeconfig);
        let mut command = State::command(folder, &team.namespace);
        command.env("KUBECONFIG", &kubeconfig).stdout(Stdio::null()).stderr(Stdio::null());
        // This says nothing to agents without a gate.
        command.envs(HEURISTIC);
        // It looks around before it writes, so that this comes in time.
        let child = command.spawn().unwrap();
        gate.arm(child.id(), write, when);
        Self(child)
    }

    /// Waits until it was killed; false if there was no such write.
    fn dies(&mut self, mut is_done: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_mins(2);
        while Instant::now() < deadline {
            if self.0.try_wait().unwrap().is_some() {
                return true;
            }
            if is_done() {
                // Whatever it still wants to write, it writes within this.
                std::thread::sleep(Duration::from_secs(2));
                return self.0.try_wait().unwrap().is_some();
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("the state role neither died nor came to an end");
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Does something, kills the state role on that side of each write that it makes of it, and looks at what the next one makes
/// of that.
fn killed_everywhere(test: &str, pinned: bool, when: When) {
    // In the order in which they are given back, the last first.
    let Ground { team, folder, _without, state } = Ground::alone(test);
    let gate = Gate::before_the_cluster();
    let agent =
        if pinned { owned(&team) } else { team.agent("helper", &json!({"replicas": 0, "storage": "memory", "systemPrompt": "p1"})) };
    runs(&agent, 1);
    for at in 2..=5 {
        change(&agent, &format!("p{at}"), pinned);
        runs(&agent, at);
    }
    drop(state);
    for write in 1.. {
        // Back and forth, so that each time there is something to do.
        let target = if agent.get()["status"]["activeRelease"] == 3 { 5 } else { 3 };
        agent.kubectl("annotate").arg(format!("agents.slipway.dev/deploy-release={target}")).ok();
        let died = finish(&gate, folder.path(), &team, &agent, target, (write, when));
        let state = State::start(&team, folder.path(), &team.namespace);
        runs(&agent, target);
        let history = versions(&state, &team);
        assert_eq!(history.len(), 5, "rolling back makes no version, killed {when:?} write {write}: {:?}", gate.writes());
        // The cluster may have heard of it before the one that was killed had written it down; the next one does.
        poll(60, || {
            let active: Vec<u64> = versions(&state, &team).into_iter().filter(|(_, status)| status == "active").map(|(at, _)| at).collect();
            if active == [target] { Ok(()) } else { Err(format!("{target} should be the active one, not {active:?}")) }
        });
        drop(state);
        fsck(folder.path(), &team);
        if !died {
            assert!(write > 3, "a rollback takes more than {:?}", gate.writes());
            break;
        }
    }
    // The same for a change.
    for (write, made) in (1..).zip(6..) {
        change(&agent, &format!("{when:?} {write}"), pinned);
        let died = finish(&gate, folder.path(), &team, &agent, made, (write, when));
        let state = State::start(&team, folder.path(), &team.namespace);
        runs(&agent, made);
        assert_eq!(versions(&state, &team).len() as u64, made, "one change is one version, killed {when:?} write {write}");
        drop(state);
        fsck(folder.path(), &team);
        if !died {
            assert!(write > 3, "a release takes more than {:?}", gate.writes());
            break;
        }
    }
}

/// The same for changes that a gate holds until they have passed: each is evaluated once, and then active.
fn killed_in_a_gate(test: &str, when: When) {
    let Ground { team, folder, _without, state } = Ground::gated(test);
    let gate = Gate::before_the_cluster();
    let mut spec = gated(1);
    spec["storage"] = json!("memory");
    let agent = team.agent("helper", &spec);
    runs(&agent, 1);
    drop(state);
    for (write, made) in (1..).zip(2..) {
        change(&agent, &format!("{when:?} {write}"), false);
        let died = finish(&gate, folder.path(), &team, &agent, made, (write, when));
        let state = State::with(&team, folder.path(), &team.namespace, &HEURISTIC);
        runs(&agent, made);
        let killed = || format!("killed {when:?} write {write} of {:?}", gate.writes());
        assert_eq!(versions(&state, &team).len() as u64, made, "one change is one version, {}", killed());
        poll(60, || {
            let active: Vec<u64> = versions(&state, &team).into_iter().filter(|(_, status)| status == "active").map(|(at, _)| at).collect();
            let all = |kinds: &str| team.kubectl(format!("get {kinds}")).json()["items"].as_array().cloned().unwrap_or_default();
            let release = all("agentreleases").into_iter().find(|release| release["status"]["version"] == made).unwrap_or_default();
            let (status, name) = (&release["status"], &release["metadata"]["name"]);
            let runs = all("evaluationruns").iter().filter(|run| run["spec"]["release"] == *name).count();
            let is_evaluated = status["evaluation"]["passed"] == true && status["evaluation"]["attempt"] == 1 && runs == 1;
            if active == [made] && status["phase"] == "active" && is_evaluated {
                Ok(())
            } else {
                Err(format!("v{made} should be the active one by its only evaluation, {}: {active:?} {runs} {release:#}", killed()))
            }
        });
        drop(state);
        fsck(folder.path(), &team);
        if !died {
            assert!(write > 5, "a release that waits takes more than {:?}", gate.writes());
            break;
        }
    }
}

fn finish(gate: &Gate, folder: &Path, team: &Team, agent: &Agent, version: u64, (write, when): (usize, When)) -> bool {
    let mut doomed = Doomed::start(gate, folder, team, write, when);
    doomed.dies(|| {
        let now = agent.get();
        now["status"]["activeRelease"] == version && now["metadata"]["annotations"]["agents.slipway.dev/deploy-release"].is_null()
    })
}

fn versions(state: &State, team: &Team) -> Vec<(u64, String)> {
    let history = state.call("GET", &format!("/releases/{}/helper?limit=500", team.namespace)).expect(200);
    let line = |entry: &serde_json::Value| (entry["version"].as_u64().unwrap(), entry["status"].as_str().unwrap().to_owned());
    history["data"].as_array().unwrap().iter().map(line).collect()
}

fn fsck(folder: &Path, team: &Team) {
    let path = folder.join(format!("{}.git", team.namespace));
    let said = std::process::Command::new("git").arg("-C").arg(path).args(["fsck", "--strict", "--full"]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

fn owned(team: &Team) -> Agent<'_> {
    let agent = Agent { team, name: "helper".to_owned() };
    change(&agent, "p1", true);
    agent
}

/// A change by whoever owns the spec.
fn change(agent: &Agent, prompt: &str, pinned: bool) {
    if !pinned {
        return agent.patch(&json!({"systemPrompt": prompt}));
    }
    let manifest = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "Agent",
        "metadata": {"name": "helper", "labels": {"kustomize.toolkit.fluxcd.io/name": "bots"}},
        "spec": {"name": "H", "framework": "custom", "storage": "memory", "replicas": 0, "systemPrompt": prompt},
    });
    agent.team.kubectl("apply --server-side --field-manager=kustomize-controller -f -").input(manifest).ok();
}

#[test]
fn a_rollback_and_a_change_survive_a_kill_before_every_write() {
    killed_everywhere("releases-kills-before", false, When::Before);
}

#[test]
fn a_rollback_and_a_change_survive_a_kill_after_every_write() {
    killed_everywhere("releases-kills-after", false, When::After);
}

#[test]
fn a_pinned_rollback_survives_a_kill_before_every_write() {
    killed_everywhere("releases-kills-pinned-before", true, When::Before);
}

#[test]
fn a_pinned_rollback_survives_a_kill_after_every_write() {
    killed_everywhere("releases-kills-pinned-after", true, When::After);
}

/// Its candidates run, so that it needs a node: `hack/test` knows that by its name.
#[test]
fn gated_changes_survive_a_kill_after_every_write() {
    killed_in_a_gate("gate-kills-after", When::After);
}
