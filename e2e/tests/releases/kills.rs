//! A state role that is killed at each of its writes, once before it and once after: the next one comes to the same end.
//!
//! Behind a gate a round takes a candidate, whose pod starts and answers. After each write there is a round; before each, one change has
//! many state roles, each of which gets one write further than the one before.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
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

/// Begins with an agent behind a gate whose first release is active, and without a state role: `rounds` starts those that are killed.
fn behind_a_gate(test: &str, rounds: impl FnOnce(&Gate, &Path, &Team, &Agent)) {
    // In the order in which they are given back, the last first.
    let Ground { team, folder, _without, state } = Ground::gated(test);
    let gate = Gate::before_the_cluster();
    let mut spec = gated(1);
    spec["storage"] = json!("memory");
    let agent = team.agent("helper", &spec);
    runs(&agent, 1);
    drop(state);
    rounds(&gate, folder.path(), &team, &agent);
}

/// The same for changes that a gate holds until they have passed: each is evaluated once, and then active.
fn killed_in_a_gate(test: &str, when: When) {
    behind_a_gate(test, |gate, folder, team, agent| {
        for (write, made) in (1..).zip(2..) {
            change(agent, &format!("{when:?} {write}"), false);
            let died = finish(gate, folder, team, agent, made, (write, when));
            let state = State::with(team, folder, &team.namespace, &HEURISTIC);
            runs(agent, made);
            let killed = format!("killed {when:?} write {write} of {:?}", gate.writes());
            assert_eq!(versions(&state, team).len() as u64, made, "one change is one version, {killed}");
            decided(team, &state, (made, made), &killed);
            drop(state);
            fsck(folder, team);
            if !died {
                assert!(write > 5, "a release that waits takes more than {:?}", gate.writes());
                break;
            }
        }
    });
}

/// Waits until history and cluster say that a version was decided on by its only evaluation, and that the other one is active.
#[track_caller]
fn decided(team: &Team, state: &State, (made, active): (u64, u64), killed: &str) {
    let phase = if made == active { "active" } else { "rejected" };
    poll(60, || {
        let found: Vec<u64> = versions(state, team).into_iter().filter(|(_, status)| status == "active").map(|(at, _)| at).collect();
        let all = |kinds: &str| team.kubectl(format!("get {kinds}")).json()["items"].as_array().cloned().unwrap_or_default();
        let release = all("agentreleases").into_iter().find(|release| release["status"]["version"] == made).unwrap_or_default();
        let (status, name) = (&release["status"], &release["metadata"]["name"]);
        let runs = all("evaluationruns").iter().filter(|run| run["spec"]["release"] == *name).count();
        let is_evaluated = status["evaluation"]["passed"] == (made == active) && status["evaluation"]["attempt"] == 1 && runs == 1;
        if found == [active] && status["phase"] == phase && is_evaluated {
            Ok(())
        } else {
            Err(format!("v{made} should be {phase} by its only evaluation, and v{active} active, {killed}: {found:?} {runs} {release:#}"))
        }
    });
}

/// Starts one state role after the other until all is done. Each is killed before the write that follows the one before which its
/// predecessor was, so that each write has a kill before it. Returns these writes.
fn killed_before_each(gate: &Gate, folder: &Path, team: &Team, mut is_done: impl FnMut() -> bool) -> Vec<String> {
    let (mut kills, mut last, mut write) = (Vec::new(), Vec::new(), 1);
    loop {
        let mut doomed = Doomed::start(gate, folder, team, write, When::Before);
        if !doomed.dies(&mut is_done) {
            return kills;
        }
        let writes = gate.writes();
        // An Event that is there already is sent again before the write of which it tells.
        write = if writes == last { write + 1 } else { 2 };
        kills.extend(writes.last().cloned());
        assert!(kills.len() < 60, "it never came to an end: {kills:#?}");
        last = writes;
    }
}

/// Each of these reasons was told of a version once.
#[track_caller]
fn told_once(team: &Team, version: u64, reasons: &[&str]) {
    let list = team.kubectl("get events.events.k8s.io").json();
    let events = list["items"].as_array().cloned().unwrap_or_default();
    for reason in reasons {
        // What stands until the spec has been put back is told besides, where that takes long.
        let is_it = |event: &&Value| {
            let note = event["note"].as_str().unwrap_or_default();
            event["reason"] == **reason && note.contains(&format!("v{version}")) && !note.contains("Change the agent")
        };
        assert_eq!(events.iter().filter(is_it).count(), 1, "{reason} of v{version}: {list:#}");
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
    let line = |entry: &Value| (entry["version"].as_u64().unwrap(), entry["status"].as_str().unwrap().to_owned());
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

/// A change by the owner of the spec.
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

/// One change that passes and one that fails, by many state roles: a round for each write, as after it, would take a candidate each.
#[test]
fn gated_changes_survive_a_kill_before_every_write() {
    behind_a_gate("gate-kills-before", |gate, folder, team, agent| {
        let comes_to = |(made, active): (u64, u64), kills: &[String], reasons: &[&str]| {
            let state = State::with(team, folder, &team.namespace, &HEURISTIC);
            let killed = format!("killed before {kills:#?}");
            decided(team, &state, (made, active), &killed);
            assert_eq!(versions(&state, team).len() as u64, made, "one change is one version, {killed}");
            told_once(team, made, reasons);
            drop(state);
            fsck(folder, team);
            assert!(kills.len() > 5, "a release that waits takes more than {kills:#?}");
        };
        change(agent, "good", false);
        let kills = killed_before_each(gate, folder, team, || agent.get()["status"]["activeRelease"] == 2);
        comes_to((2, 2), &kills, &["ReleasePending", "ReleaseApproved"]);
        // No answer is worth so much.
        agent.patch(&json!({"systemPrompt": "bad", "governance": {"minQualityScore": 100}}));
        let kills = killed_before_each(gate, folder, team, || {
            let now = agent.get();
            now["spec"]["systemPrompt"] == "good" && now["status"]["pendingRelease"].is_null()
        });
        comes_to((3, 2), &kills, &["ReleasePending", "ReleaseRejected", "ReleaseReverted"]);
        let now = agent.get();
        assert_eq!((&now["spec"]["governance"]["minQualityScore"], &now["status"]["activeRelease"]), (&json!(1), &json!(2)), "{now:#}");
    });
}
