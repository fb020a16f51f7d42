//! Ten minutes in which Argo CD's engine keeps a spec that a gate has rejected: nobody undoes what another one did. Operator and state role
//! stand behind doors that count what they write. On the cluster `releases/gate/engine.rs` has the same for a minute.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_e2e::fault::{Ground, Home, Manager};
use slipway_e2e::gitops::Controller;
use slipway_e2e::{Checkout, Repository};

use super::{AGENT, APPS, End, OURS, Scene};
use crate::gitops::agent as manifest;

const FILE: &str = "helper.yaml";
/// How long nobody may write anything. The engine comes by every other second.
const QUIET: Duration = Duration::from_mins(10);
/// The fewest rounds of the engine in that time, on however busy a machine.
const MIN_ROUNDS: usize = 40;
/// A silence in which no warning can be waiting.
const AFTER_WARNINGS: Duration = Duration::from_secs(10);
/// What might be written to meanwhile.
const KINDS: [(&str, &str); 10] = [
    (OURS, "agents"),
    (OURS, "agentreleases"),
    (OURS, "evaluationruns"),
    (APPS, "deployments"),
    ("api/v1", "pods"),
    ("api/v1", "services"),
    ("api/v1", "configmaps"),
    ("api/v1", "secrets"),
    ("api/v1", "serviceaccounts"),
    ("apis/events.k8s.io/v1", "events"),
];
/// The spec stays as it is in the repository.
const WITHHELD: End = End { passes: false, reason: "ReleaseRejected", prompt: "first" };

fn gated(prompt: &str, score: i32) -> String {
    manifest(AGENT, &json!({"systemPrompt": prompt, "governance": {"minQualityScore": score, "riskProfile": "low"}}))
}

/// The version of each object, by kind and name.
fn versions(home: &Home) -> BTreeMap<String, Value> {
    let of_kind = |(group, kind): (&str, &str)| {
        let objects = home.list(group, kind).into_iter().map(|object| object["metadata"].clone());
        let line =
            |metadata: Value| (format!("{kind}/{}", metadata["name"].as_str().unwrap_or_default()), metadata["resourceVersion"].clone());
        objects.map(line).collect::<Vec<_>>()
    };
    KINDS.into_iter().flat_map(of_kind).collect()
}

impl Scene<'_> {
    /// Round after round of the engine nothing is written, and the engine has nothing to put right.
    #[track_caller]
    fn nobody_writes(&mut self, controller: &Controller) {
        let (before, first) = (versions(&self.trial.home), controller.rounds().len());
        let ends: Vec<usize> = self.trial.managers.iter().map(Manager::ends).collect();
        self.trial.managers.iter().for_each(|manager| manager.door().count());
        let end = Instant::now() + QUIET;
        while Instant::now() < end {
            self.trial.tend();
            sleep(Duration::from_secs(1));
        }
        for (manager, ends) in self.trial.managers.iter().zip(ends) {
            let written = manager.door().writes();
            assert!(written.is_empty() && manager.ends() == ends, "in {QUIET:?} {} has written {written:?}", manager.name());
        }
        assert_eq!(versions(&self.trial.home), before, "in {QUIET:?} somebody has written");
        let rounds = controller.rounds().split_off(first);
        assert!(rounds.len() >= MIN_ROUNDS, "in {QUIET:?} there were {} rounds: {}", rounds.len(), controller.faults());
        for round in &rounds {
            assert!(round.len() == 1 && round[0].ends_with(" unchanged"), "the engine had something to put right: {round:#?}");
        }
    }
}

#[test]
fn nobody_writes_for_ten_minutes_while_an_engine_keeps_what_was_rejected() {
    let ground = Ground::without_pods("withheld");
    let mut scene = Scene::new(&ground, false);
    let folder = tempfile::tempdir().unwrap();
    let namespace = scene.trial.home.namespace.clone();
    let repository = Repository::new(folder.path().join("repository"), &format!("namespace: {namespace}\n"));
    repository.commit("The first of all.", &[(FILE, Some(&gated("first", 1)))]);
    let checkout = Checkout::of(&repository.url(), folder.path().join("clone"), ".");
    let controller = Controller::start(&checkout, &namespace, Some(ground.kubeconfig()));
    let commit = |message: &str, file: &str| {
        repository.commit(message, &[(FILE, Some(file))]);
        checkout.pull();
    };
    scene.has_begun();
    let before = scene.node.pods();

    commit("What no answer is worth.", &gated("second", 100));
    scene.comes_to(WITHHELD, "a commit that is rejected");
    let spec = super::agent(&scene.trial.home)["spec"].clone();
    assert_eq!(spec["systemPrompt"], "second");
    // The warning waits until its cause has lasted for five seconds.
    scene.trial.until("a longer silence", |trial| trial.managers.iter().all(|manager| manager.door().silent_for() > AFTER_WARNINGS));
    scene.nobody_writes(&controller);
    scene.comes_to(WITHHELD, "ten minutes of the engine");
    assert_eq!((&super::agent(&scene.trial.home)["spec"], scene.node.pods()), (&spec, before.clone()), "nothing was touched");

    commit("As it was.", &gated("first", 1));
    scene.trial.rests(AGENT, "DeploymentReady", "a commit that takes it back");
    assert_eq!((scene.node.pods(), controller.faults()), (before, String::new()));
}
