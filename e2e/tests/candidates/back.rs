//! Releases of a gated agent that are asked for again: one that has passed serves at once and is not evaluated a second time, and one that
//! was rejected serves nobody.

use serde_json::{Value, json};
use slipway_e2e::When;
use slipway_e2e::fault::{Ground, Home};

use super::{AGENT, CANDIDATE, OURS, PASSED, Scene, agent};

/// The runs by name, and when each began.
fn runs(home: &Home) -> Vec<(Value, Value)> {
    let line = |run: &Value| (run["metadata"]["name"].clone(), run["status"]["startedAt"].clone());
    home.list(OURS, "evaluationruns").iter().map(line).collect()
}

/// The prompt and the version of what is asked for and in force, and the phase of each release.
fn stand(prompt: &str, version: u64, phases: [&str; 3]) -> Value {
    let releases: Vec<Value> = (1..).zip(phases).map(|(version, phase)| json!([version, phase])).collect();
    json!({"agent": {"prompt": prompt, "version": version, "asked": null}, "releases": releases})
}

impl Scene<'_> {
    /// The name and the prompt of the one pod that runs, if that serves.
    fn pod(&self) -> Option<[String; 2]> {
        match &*self.node.pods() {
            [[name, workload, prompt]] if workload == AGENT => Some([name.clone(), prompt.clone()]),
            _ => None,
        }
    }

    fn refusals(&self) -> Vec<String> {
        let told = self.trial.home.events("Agent", AGENT);
        let refused = told.iter().filter(|event| event["reason"] == "ReleaseRefused");
        refused.filter_map(|event| event["note"].as_str()).map(str::to_owned).collect()
    }
}

#[test]
fn what_has_passed_comes_back_without_an_evaluation_and_what_was_rejected_does_not() {
    let ground = Ground::without_pods("returned");
    let mut scene = Scene::new(&ground, false);
    scene.begins(&json!({}));
    scene.trial.home.change(AGENT, &json!({"systemPrompt": "second"}));
    scene.comes_to(PASSED, "a change that passes");
    // No answer is worth so much.
    scene.trial.home.change(AGENT, &json!({"systemPrompt": "third", "governance": {"minQualityScore": 100}}));
    let withheld = stand("second", 2, ["archived", "active", "rejected"]);
    scene.trial.until("a change that is rejected", |trial| trial.home.releases(AGENT) == withheld);
    scene.trial.rests(AGENT, "DeploymentReady", "a change that is rejected");
    let (evaluated, serving, spec) = (runs(&scene.trial.home), scene.pod(), agent(&scene.trial.home)["spec"].clone());
    assert_eq!((evaluated.len(), serving.as_ref().map(|[_, prompt]| prompt.as_str())), (3, Some("second")));

    scene.trial.home.roll_back(AGENT, 3);
    scene.trial.until("an answer about what was rejected", |trial| trial.home.releases(AGENT)["agent"]["asked"].is_null());
    scene.trial.rests(AGENT, "DeploymentReady", "a rollback to what was rejected");
    let refusals = scene.refusals();
    let why = "release 3 is not deployed: the release was rejected";
    assert!(!refusals.is_empty() && refusals.iter().all(|refusal| refusal.contains(why)), "{refusals:?}");
    assert_eq!(scene.trial.home.releases(AGENT), withheld);
    assert_eq!((agent(&scene.trial.home)["spec"].clone(), scene.pod()), (spec, serving), "nothing was touched");

    // Its door notes what is written and ends nothing.
    let door = scene.trial.managers[0].door().clone();
    door.arm(usize::MAX, When::Before);
    scene.trial.home.roll_back(AGENT, 1);
    let returned = stand("first", 1, ["active", "archived", "rejected"]);
    scene.trial.until("what had passed", |trial| trial.home.releases(AGENT) == returned);
    scene.trial.rests(AGENT, "DeploymentReady", "a rollback to what had passed");
    let written = door.trail();
    assert!(written.iter().any(|write| write.contains("/deployments/")), "the pods that serve are others: {written:#?}");
    for part in [CANDIDATE, "/evaluationruns"] {
        assert!(!written.iter().any(|write| write.contains(part)), "nothing of {part} should be among {written:#?}");
    }
    door.disarm();
    assert_eq!(scene.pod().map(|[_, prompt]| prompt).as_deref(), Some("first"), "{:?}", scene.node.pods());
    assert_eq!(runs(&scene.trial.home), evaluated, "nothing is evaluated again");
    let told = scene.trial.home.told(AGENT);
    let count = |reason: &str| told.iter().filter(|found| *found == reason).count();
    assert_eq!(["ReleasePending", "ReleaseRejected", "ReleaseDeployed"].map(count), [3, 1, 1], "{told:?}");
    assert_eq!(scene.trial.home.releases(AGENT), returned);

    // What comes after it is held by the gate as before.
    scene.trial.home.change(AGENT, &json!({"systemPrompt": "fourth"}));
    scene.trial.until("a change that passes", |trial| trial.home.releases(AGENT)["agent"]["version"] == 4);
    scene.trial.rests(AGENT, "DeploymentReady", "a change of what had passed");
    assert_eq!(scene.pod().map(|[_, prompt]| prompt).as_deref(), Some("fourth"), "{:?}", scene.node.pods());
    // The cluster shows three versions, so that the first one's run has gone.
    let fresh = runs(&scene.trial.home).into_iter().filter(|run| !evaluated.contains(run)).count();
    assert_eq!(fresh, 1, "it is evaluated itself");
}
