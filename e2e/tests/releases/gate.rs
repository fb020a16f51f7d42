//! The evaluation gate on the cluster, row by row of the table of releases. A comparison of words judges here, which the state role of
//! these tests lets pass: a score of 1 is reached by any answer, and one of 100 by none of the stub's.

mod apart;
mod bases;
mod engine;
mod hangs;
mod models;
mod skills;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_e2e::platform::WithoutState;
use slipway_e2e::{Agent, Api, State, Team, Turn, alone, condition, fresh, kubectl, longest_unwatched, poll, unwatched};

use super::{Ground, deploy, runs};
use crate::evaluations::dataset;
use crate::evaluations::own_image::OWN_IMAGE;

/// What lets a comparison of words pass a gate.
pub(super) const HEURISTIC: [(&str, &str); 1] = [("SLIPWAY_ALLOW_HEURISTIC_GATE", "true")];

impl Ground {
    /// With a state role that lets a comparison of words pass a gate.
    #[track_caller]
    pub(super) fn gated(test: &str) -> Self {
        Self::gated_in(unwatched(), test, &HEURISTIC)
    }

    #[track_caller]
    fn gated_in(turn: Turn, test: &str, environment: &[(&str, &str)]) -> Self {
        let without = WithoutState::begin();
        let team = Team::within(turn, &fresh(test), &json!({}));
        let folder = tempfile::tempdir().unwrap();
        let state = State::with(&team, folder.path(), &team.namespace, environment);
        Self { state, _without: without, team, folder }
    }

    fn release(&self, name: &str, version: u64) -> Value {
        let list = self.team.kubectl(format!("get agentreleases --field-selector spec.agent={name}")).json();
        let found = list["items"].as_array().into_iter().flatten().find(|release| release["status"]["version"] == version);
        found.cloned().unwrap_or_default()
    }
}

pub(super) fn gate(score: i32) -> Value {
    json!({"replicas": 1, "systemPrompt": "one", "governance": {"minQualityScore": score, "riskProfile": "low"}})
}

#[track_caller]
fn waits(agent: &Agent, version: u64) -> Value {
    agent.until(&format!("waiting with v{version}"), 180, |found| found["status"]["pendingRelease"] == version)
}

#[track_caller]
fn rejected(agent: &Agent, version: u64) -> Value {
    agent.until(&format!("without v{version}"), 180, |found| {
        let approved = condition(found, "Approved");
        found["status"]["pendingRelease"].is_null() && approved["reason"] == "ReleaseRejected"
    })
}

/// The UIDs of the pods of the stable track.
pub(crate) fn stable_pods(agent: &Agent) -> Vec<Value> {
    let pods = agent.pods();
    let stable = pods.iter().filter(|pod| pod["metadata"]["labels"]["agents.slipway.dev/track"] == "stable");
    let mut uids: Vec<Value> = stable.map(|pod| pod["metadata"]["uid"].clone()).collect();
    uids.sort_by_key(ToString::to_string);
    uids
}

#[test]
fn a_first_release_waits_alone_and_a_change_is_let_through_when_it_passes() {
    let ground = Ground::gated("gate-passes");
    let agent = ground.agent("helper", &gate(1));
    waits(&agent, 1);
    assert!(ground.team.kubectl("get deployment helper").run().code != Some(0), "nothing serves yet");
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);
    agent.patch(&json!({"systemPrompt": "two"}));
    waits(&agent, 2);
    assert_eq!(agent.get()["status"]["activeRelease"], 1);
    runs(&agent, 2);
    poll(180, || {
        let candidate = ground.team.get("deployment/helper-candidate");
        if candidate.is_null() { Ok(()) } else { Err("the candidate is there still".to_owned()) }
    });
    agent.until("with new pods", 120, |found| condition(found, "Reconciling")["status"] == "False");
    assert_ne!(stable_pods(&agent), before);
    ground.shows("helper", &[(1, "archived"), (2, "active")]);
    let evaluation = ground.release("helper", 2)["status"]["evaluation"].clone();
    assert_eq!((&evaluation["passed"], &evaluation["provider"]), (&json!(true), &json!("heuristic")), "{evaluation}");
    assert!(ground.team.kubectl("describe agent helper").ok().contains("ReleaseApproved"));
}

#[test]
fn a_release_with_an_image_of_its_own_is_evaluated_too() {
    let ground = Ground::gated("gate-own-image");
    let mut spec = gate(1);
    spec["image"] = json!(OWN_IMAGE);
    let agent = ground.agent("helper", &spec);
    waits(&agent, 1);
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);
    // No answer is worth so much.
    agent.patch(&json!({"systemPrompt": "two", "governance": {"minQualityScore": 100}}));
    waits(&agent, 2);
    rejected(&agent, 2);
    assert_eq!((stable_pods(&agent), &agent.get()["status"]["activeRelease"]), (before, &json!(1)));
    let run = ground.release("helper", 2)["status"]["evaluation"].clone();
    assert_eq!((&run["passed"], run["score"].is_number()), (&json!(false), true), "{run}");
}

#[test]
fn a_change_that_fails_touches_no_pod_and_the_spec_goes_back() {
    let ground = Ground::gated("gate-fails");
    let agent = ground.agent("helper", &gate(1));
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);
    let (api, token) = (Api::start(&[]), ground.team.token("developer"));
    let shown = |status: &str| {
        poll(60, || {
            let agent = api.call("GET", "/agents/helper").token(&token).expect(200)["data"].clone();
            if agent["status"] == status { Ok(agent) } else { Err(format!("REST shows {agent}, and should show {status}")) }
        })
    };
    agent.patch(&json!({"systemPrompt": "two", "governance": {"minQualityScore": 100}}));
    waits(&agent, 2);
    assert_eq!(shown("evaluating")["pending_release"], 2);
    assert_eq!(stable_pods(&agent), before);
    rejected(&agent, 2);
    let told = shown("eval_failed");
    assert_eq!((&told["active_release"], &told["pending_release"]), (&json!(1), &Value::Null), "{told}");
    let now = agent.until("set back", 90, |found| found["spec"]["systemPrompt"] == "one");
    assert_eq!((&now["spec"]["governance"]["minQualityScore"], &now["status"]["activeRelease"]), (&json!(1), &json!(1)));
    assert_eq!(stable_pods(&agent), before, "the pods that serve were never touched");
    let release = ground.release("helper", 2);
    assert_eq!(release["status"]["phase"], "rejected");
    assert!(condition(&release, "Ready")["message"].as_str().unwrap_or_default().starts_with("[REJECTED: "), "{release}");
    let cases = release["status"]["evaluation"]["worstCases"].as_array().cloned().unwrap_or_default();
    assert!((1..=5).contains(&cases.len()), "{release:#}");
    let told = ground.team.kubectl(format!("describe agentrelease {}", release["metadata"]["name"].as_str().unwrap())).ok();
    let mut words = cases.iter().filter_map(|case| case["reason"].as_str()?.split_whitespace().next());
    assert!(told.contains("Worst Cases:") && words.all(|word| told.contains(word)), "it tells the story case by case: {told}");
    // The same once more is no new release.
    agent.patch(&json!({"systemPrompt": "two", "governance": {"minQualityScore": 100}}));
    agent.until("set back again", 90, |found| found["spec"]["systemPrompt"] == "one");
    ground.stays("helper", 2);
    deploy(&agent, 2);
    poll(30, || {
        let told = ground.team.kubectl("describe agent helper").ok();
        let reasons = ["ReleaseRejected", "ReleaseReverted", "release 2 is not deployed: the release was rejected"];
        if reasons.iter().all(|reason| told.contains(reason)) { Ok(()) } else { Err(told) }
    });
}

#[test]
fn a_gated_release_goes_step_by_step() {
    let ground = Ground::gated("gate-steps");
    let agent = ground.agent("helper", &gate(1));
    runs(&agent, 1);
    let steps = ["ReleasePending", "EvaluationStarted", "ReleaseApproved"];
    poll(20, || {
        let list = ground.team.kubectl("get events.events.k8s.io").json();
        let told = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|event| Some((event["eventTime"].as_str()?, event["reason"].as_str()?)));
        // All of it at the same precision, so that texts are in the order of time.
        let mut told: Vec<(&str, &str)> = told.filter(|(_, reason)| steps.contains(reason)).collect();
        told.sort_unstable();
        let reasons: Vec<&str> = told.iter().map(|(_, reason)| *reason).collect();
        if reasons == steps { Ok(()) } else { Err(format!("{steps:?} should be told in this order: {told:?}")) }
    });
    let release = ground.release("helper", 1);
    let evaluation = &release["status"]["evaluation"];
    let run = ground.team.get(&format!("evaluationrun/{}", evaluation["run"].as_str().unwrap_or_default()));
    assert_eq!((&run["status"]["phase"], &run["spec"]["agent"]), (&json!("Completed"), &json!("helper")), "{run:#}");
    assert!(
        run["status"]["verdict"].as_str().is_some_and(|verdict| verdict.starts_with("PASSED (avg=") && verdict.contains(" >= ")),
        "{run:#}"
    );
    // What is in Git stays as it was committed; that it was approved stands beside it.
    assert_eq!(ground.artifact("helper", 1)["metadata"]["status"], "pending_eval");
    assert_eq!(ground.versions("helper"), [(1, "active".to_owned())]);
}

/// How many seconds a gate may cost a change besides the rollout of its candidate and that of the stable track, for 20 cases.
const COST: f64 = 5.0;

#[test]
fn a_change_waits_for_little_but_its_pods() {
    let ground = Ground::gated_in(alone("times what a change waits for"), "gate-time", &HEURISTIC);
    let cases: Vec<Value> = (0..20).map(|case| json!({"input": format!("Where is station {case}?")})).collect();
    dataset(&ground.team, "twenty", &json!(cases));
    let mut spec = gate(1);
    spec["governance"]["evalDataset"] = json!("twenty");
    let agent = ground.agent("helper", &spec);
    runs(&agent, 1);
    agent.ready();
    let begun = Timestamp::now();
    agent.patch(&json!({"systemPrompt": "two"}));
    runs(&agent, 2);
    let took = begun.duration_until(Timestamp::now()).as_secs_f64();
    // From the first pod of the candidate to the run, which is made when it is ready.
    let newest = |times: Vec<&Value>| times.into_iter().filter_map(|time| time.as_str()?.parse::<Timestamp>().ok()).max().expect("a time");
    let events = ground.team.kubectl("get events --field-selector involvedObject.name=helper-candidate,reason=ScalingReplicaSet").json();
    let up = events["items"].as_array().unwrap().iter().filter(|event| event["message"].as_str().unwrap_or_default().contains(" up "));
    let scaled = newest(up.map(|event| &event["lastTimestamp"]).collect());
    let run = ground.release("helper", 2)["status"]["evaluation"]["run"].clone();
    let made = ground.team.get(&format!("evaluationrun/{}", run.as_str().unwrap()))["metadata"]["creationTimestamp"].clone();
    let rollout = scaled.duration_until(newest(vec![&made])).as_secs_f64();
    eprintln!("a gated change was let through after {took:.1} s, of which its candidate's rollout was {rollout} s");
    assert!(rollout >= 0.0 && took - rollout <= COST, "{took:.1} s, of which {rollout} s were the candidate's rollout");
}

#[test]
fn a_spec_that_gitops_owns_stays_as_it_was_rejected() {
    let ground = Ground::gated("gate-gitops");
    let apply = |prompt: &str, score: i32| {
        let manifest = json!({
            "apiVersion": "agents.slipway.dev/v1", "kind": "Agent",
            "metadata": {"name": "helper", "labels": {"kustomize.toolkit.fluxcd.io/name": "bots", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}},
            "spec": {"name": "H", "framework": "custom", "storage": "memory", "systemPrompt": prompt,
                "governance": {"minQualityScore": score, "riskProfile": "low"}},
        });
        ground.team.kubectl("apply --server-side --field-manager=kustomize-controller -f -").input(manifest).ok();
    };
    apply("one", 1);
    let agent = Agent { team: &ground.team, name: "helper".to_owned() };
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);
    apply("two", 100);
    waits(&agent, 2);
    rejected(&agent, 2);
    assert!(agent.stalled(&["ReleaseRejected"], 30).contains("v2 was rejected"));
    let generation = agent.get()["metadata"]["generation"].clone();
    // The engine applies what it has, again and again.
    for _ in 0..3 {
        apply("two", 100);
        ground.stays("helper", 2);
    }
    let now = agent.get();
    assert_eq!((&now["spec"]["systemPrompt"], &now["metadata"]["generation"]), (&json!("two"), &generation));
    assert_eq!((condition(&now, "Ready")["status"].as_str(), &now["status"]["activeRelease"]), (Some("False"), &json!(1)));
    assert_eq!(stable_pods(&agent), before, "the pods that serve were never touched");
    apply("one", 1);
    agent.ready();
}

#[test]
fn a_newer_change_takes_the_place_of_the_one_that_waits() {
    let ground = Ground::gated("gate-newer");
    let agent = ground.agent("helper", &gate(1));
    runs(&agent, 1);
    // It finds no room, so that it waits.
    agent.patch(&json!({"systemPrompt": "two", "resources": {"requests": {"memory": "900Ti"}, "limits": {"memory": "900Ti"}}}));
    waits(&agent, 2);
    agent.patch(&json!({"systemPrompt": "three", "resources": null}));
    runs(&agent, 3);
    ground.shows("helper", &[(1, "archived"), (2, "archived"), (3, "active")]);
    assert!(ground.history("helper")[1]["reason"].as_str().unwrap_or_default().starts_with("superseded by v3"));
    // What was not evaluated is not let in by a rollback.
    deploy(&agent, 2);
    poll(30, || {
        let told = ground.team.kubectl("describe agent helper").ok();
        if told.contains("release 2 is not deployed: it was superseded before it was evaluated") { Ok(()) } else { Err(told) }
    });
    assert_eq!(agent.get()["status"]["activeRelease"], 3);
}

#[test]
fn a_candidate_that_crashes_is_rejected_and_touches_no_pod() {
    let ground = Ground::gated_in(longest_unwatched(), "gate-crash", &HEURISTIC);
    // The runtime refuses a tool whose program is not in its image.
    ground.team.tool("absent", &json!({"type": "cli", "binary": "/no/such/program", "allowedCommands": ["--version"]}));
    let agent = ground.agent("helper", &gate(1));
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);
    agent.patch(&json!({"systemPrompt": "two", "tools": ["absent"]}));
    waits(&agent, 2);
    agent.until("told of the crash", 120, |found| {
        condition(found, "Ready")["message"].as_str().is_some_and(|why| why.contains("CrashLoopBackOff"))
    });
    // Its Deployment gives up after 300 s.
    agent.until("without v2", 480, |found| condition(found, "Approved")["reason"] == "ReleaseRejected");
    let release = ground.release("helper", 2);
    let why = condition(&release, "Ready")["message"].as_str().unwrap_or_default();
    assert!(why.contains("3 evaluations ended without a verdict") && why.contains("CrashLoopBackOff"), "{why}");
    agent.until("set back", 90, |found| found["spec"]["systemPrompt"] == "one");
    assert_eq!(stable_pods(&agent), before, "the pods that serve were never touched");
}

/// What the pods of a workload are told of the agent's one Tool.
fn told(ground: &Ground, workload: &str) -> String {
    let found = ground.team.kubectl(format!("get configmaps --field-selector metadata.name={workload}-config")).json();
    let tools = found["items"][0]["data"]["RUNTIME_TOOLS"].as_str().unwrap_or("[]").to_owned();
    let tools: Value = serde_json::from_str(&tools).unwrap();
    tools[0]["description"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn an_edited_tool_serves_nobody_until_a_release_with_it_has_passed() {
    let ground = Ground::gated("gate-tools");
    let tool = |description: &str| ground.team.tool("calculator", &json!({"type": "builtin", "description": description}));
    tool("one");
    let mut spec = gate(1);
    spec["tools"] = json!(["calculator"]);
    let agent = ground.agent("helper", &spec);
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);
    let first = ground.release("helper", 1)["metadata"]["name"].as_str().unwrap().to_owned();
    let kept = ground.team.get(&format!("configmap/{first}-tools"));
    assert_eq!((&kept["immutable"], &kept["metadata"]["ownerReferences"][0]["name"]), (&json!(true), &json!(first)), "{kept:#}");
    // Its candidate finds no room, so that it waits, and will be rejected for its score.
    agent.patch(
        &json!({"governance": {"minQualityScore": 100}, "resources": {"requests": {"memory": "900Ti"}, "limits": {"memory": "900Ti"}}}),
    );
    waits(&agent, 2);
    tool("two");
    waits(&agent, 3);
    poll(180, || match told(&ground, "helper-candidate") {
        found if found == "two" => Ok(()),
        found => Err(format!("the candidate should have the edited Tool, and has {found}")),
    });
    let said = agent.until("told of the Tool", 90, |found| condition(found, "ToolsAsReleased")["status"] == "True");
    assert!(condition(&said, "ToolsAsReleased")["message"].as_str().unwrap_or_default().contains("calculator"), "{said:#}");
    assert_eq!((told(&ground, "helper"), stable_pods(&agent)), ("one".to_owned(), before.clone()));
    agent.patch(&json!({"resources": null}));
    poll(180, || match ground.release("helper", 4)["status"]["phase"].as_str() {
        Some("rejected") => Ok(()),
        phase => Err(format!("v4 should be rejected, and is {phase:?}")),
    });
    // The Tool stays as it was edited, so that a release of the old spec with it is next, and passes.
    if agent.get()["status"]["activeRelease"] == 1 {
        assert_eq!((told(&ground, "helper"), stable_pods(&agent)), ("one".to_owned(), before.clone()));
    }
    runs(&agent, 5);
    poll(180, || match told(&ground, "helper") {
        found if found == "two" => Ok(()),
        found => Err(format!("what has passed should serve, and {found} does")),
    });
    agent.until("with new pods", 120, |found| condition(found, "Reconciling")["status"] == "False");
    let now = stable_pods(&agent);
    assert_ne!(now, before);
    // What has gone is there for whom it was approved.
    ground.team.kubectl("delete tool calculator").ok();
    let said = agent.until("told that the Tool is gone", 90, |found| condition(found, "ToolsAsReleased")["status"] == "True");
    assert_eq!(
        (condition(&said, "Ready")["status"].as_str(), told(&ground, "helper"), stable_pods(&agent)),
        (Some("True"), "two".to_owned(), now)
    );
}

#[test]
fn a_comparison_of_words_passes_no_gate_unless_the_platform_says_so() {
    let ground = Ground::gated_in(unwatched(), "gate-words", &[]);
    let agent = ground.agent("helper", &gate(1));
    waits(&agent, 1);
    rejected(&agent, 1);
    let release = ground.release("helper", 1);
    assert_eq!((&release["status"]["phase"], &release["status"]["evaluation"]["provider"]), (&json!("rejected"), &json!("heuristic")));
    let why = condition(&release, "Ready")["message"].as_str().unwrap_or_default();
    assert!(why.contains("a comparison of words, which passes no gate"), "{why}");
    assert!(stable_pods(&agent).is_empty(), "nothing serves");
}

#[test]
fn a_run_that_somebody_made_decides_nothing() {
    let ground = Ground::gated("gate-lies");
    let agent = ground.agent("helper", &gate(1));
    runs(&agent, 1);
    // Its candidate finds no room, so that no true run begins.
    agent.patch(&json!({"systemPrompt": "two", "resources": {"requests": {"memory": "900Ti"}, "limits": {"memory": "900Ti"}}}));
    waits(&agent, 2);
    let release = ground.release("helper", 2);
    let name = release["metadata"]["name"].as_str().unwrap();
    let run = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "EvaluationRun", "metadata": {"name": "ev-mine"},
        "spec": {"agent": "helper", "release": name, "minQualityScore": 1, "riskProfile": "low"},
    });
    ground.team.kubectl("apply -f -").input(run).ok();
    poll(120, || {
        let run = ground.team.get("evaluationrun/ev-mine");
        let phase = run["status"]["phase"].as_str().unwrap_or_default().to_owned();
        if ["Completed", "Failed"].contains(&phase.as_str()) { Ok(()) } else { Err(format!("it is {phase}")) }
    });
    std::thread::sleep(std::time::Duration::from_secs(4));
    let now = agent.get();
    assert_eq!((&now["status"]["activeRelease"], &now["status"]["pendingRelease"]), (&json!(1), &json!(2)));
}

#[test]
fn asking_for_less_takes_a_right_of_its_own() {
    let ground = Ground::gated("gate-lowered");
    let agent = ground.agent("helper", &gate(50));
    let namespace = &ground.team.namespace;
    let bind = |role: &str, user: &str| {
        kubectl(format!("-n {namespace} create rolebinding {user} --clusterrole=slipway-{role} --user={user}")).ok();
    };
    bind("developer", "gate-dev");
    bind("admin", "gate-admin");
    let patch = |user: &str, spec: &Value| {
        kubectl(format!("-n {namespace} patch agent helper --type=merge --as={user} -p")).arg(json!({"spec": spec}))
    };
    let less = json!({"governance": {"minQualityScore": 49}});
    let said = patch("gate-dev", &less).refused();
    assert!(said.contains("governance.minQualityScore") && said.contains("agents/governance"), "{said}");
    // The first dataset and judge take the place of the defaults.
    let first = json!({"governance": {"evalDataset": "ds_hard_cases"}});
    let said = patch("gate-dev", &first).refused();
    assert!(said.contains("governance.evalDataset") && said.contains("agents/governance"), "{said}");
    let said = patch("gate-dev", &json!({"judgeModel": "stub:/echo"})).refused();
    assert!(said.contains("judgeModel") && said.contains("agents/governance"), "{said}");
    let spec = agent.get()["spec"].clone();
    assert_eq!((&spec["governance"]["evalDataset"], &spec["judgeModel"]), (&Value::Null, &Value::Null), "neither is named");
    patch("gate-admin", &first).ok();
    patch("gate-dev", &json!({"governance": {"minQualityScore": 60, "evalDataset": "hard-cases"}})).ok();
    let said = patch("gate-dev", &json!({"governance": {"evalDataset": "hard_cases"}})).refused();
    assert!(said.contains("governance.evalDataset"), "{said}");
    let said = patch("gate-dev", &json!({"governance": null})).refused();
    assert!(said.contains("agents/governance"), "{said}");
    // REST asks as well, for it writes as itself.
    let api = Api::start(&[]);
    let developer = ground.team.token("developer");
    let config = "/agents/helper/config";
    let less = json!({"governance": {"min_quality_score": 10}});
    let refused = api.call("PATCH", config).token(&developer).json(&less).expect(403);
    assert!(refused.to_string().contains("min_quality_score"), "{refused}");
    let judge = json!({"judge_model": "stub:/echo"});
    let refused = api.call("PATCH", config).token(&developer).json(&judge).expect(403);
    assert!(refused.to_string().contains("judge_model"), "{refused}");
    let admin = ground.team.token("admin");
    api.call("PATCH", config).token(&admin).json(&less).expect(200);
    patch("gate-admin", &json!({"governance": {"minQualityScore": 0}})).ok();
    assert_eq!(agent.get()["spec"]["governance"]["minQualityScore"], 0);
}
