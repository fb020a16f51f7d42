//! Changes behind a gate where there is no node: the API server is real, and operators, state role and the runtime of each pod are
//! processes of the working tree. A process that is killed is back within a second, so that each of an operator's writes can have its kill.
//!
//! `kills` has an operator that is killed at each write, `leaders` two of which one leads, and `gitops` ten minutes of Argo CD's engine
//! beside a spec that was rejected. `quota` has a team without room for a candidate, `back` releases that are asked for again, `gone` an
//! agent that is deleted while one waits, and `defaults` the dataset of a gate that names none.

mod back;
mod defaults;
mod gitops;
mod gone;
mod kills;
mod leaders;
mod quota;

use serde_json::{Map, Value, json};
use slipway_e2e::fault::{Ground, Home, Manager, Node, Trial};
use slipway_e2e::{assert_holds, git};

/// The agent that all of it is about.
const AGENT: &str = "helper";
/// Its workload for a release that waits.
const CANDIDATE: &str = "helper-candidate";
/// The cases of a run that is under way for a while, played by the model `stub-script`.
const SLOW: &str = "sleep 20000\ntext Paris is the capital of France";
const OURS: &str = "apis/agents.slipway.dev/v1";
const APPS: &str = "apis/apps/v1";

/// How the second release ends.
#[derive(Clone, Copy)]
struct End {
    passes: bool,
    /// Of the agent's `Ready`.
    reason: &'static str,
    /// What the pods that serve were given.
    prompt: &'static str,
}

const PASSED: End = End { passes: true, reason: "DeploymentReady", prompt: "second" };
/// The spec has been set back.
const FAILED: End = End { passes: false, reason: "DeploymentReady", prompt: "first" };

impl End {
    /// The releases in the cluster, and their phases.
    fn releases(self) -> Value {
        let (first, second) = if self.passes { ("archived", "active") } else { ("active", "rejected") };
        json!([[1, first], [2, second]])
    }

    fn is_over(self, home: &Home) -> bool {
        let (status, active) = (agent(home)["status"].clone(), if self.passes { 2 } else { 1 });
        status["activeRelease"] == active
            && status["pendingRelease"].is_null()
            && home.releases(AGENT)["releases"] == self.releases()
            && home.get(APPS, "deployments", CANDIDATE).is_null()
            && home.reason(AGENT) == self.reason
    }
}

fn agent(home: &Home) -> Value {
    home.get(OURS, "agents", AGENT)
}

/// A team with a gated agent.
struct Scene<'a> {
    /// An operator, the state role, and managers that a test has added.
    trial: Trial<'a>,
    node: Node,
    history: tempfile::TempDir,
}

impl<'a> Scene<'a> {
    /// `agrees` says whether the operator may be one of several.
    #[track_caller]
    fn new(ground: &'a Ground, agrees: bool) -> Self {
        let (home, history) = (ground.home(), tempfile::tempdir().unwrap());
        let managers = vec![Manager::start(&home, "one", agrees), Manager::keeper(&home, history.path())];
        let node = Node::of(&home);
        let mut trial = Trial::new(home, managers, Home::sight);
        trial.home.team_with_pods();
        trial.settled_in();
        Self { trial, node, history }
    }

    /// Makes the agent, with more in its spec, and waits for its first release.
    #[track_caller]
    fn begins(&mut self, more: &Value) {
        let governance = json!({"minQualityScore": 1, "riskProfile": "low"});
        let mut spec = json!({"storage": "memory", "systemPrompt": "first", "governance": governance});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.trial.home.agent(AGENT, &spec);
        self.has_begun();
    }

    #[track_caller]
    fn has_begun(&mut self) {
        self.trial.until("the first release", |trial| agent(&trial.home)["status"]["activeRelease"] == 1);
        self.trial.rests(AGENT, "DeploymentReady", "the first release");
    }

    /// Waits for the end of the second release and until nobody writes, and looks whether each release was evaluated once and recorded
    /// once, whether the pods that serve are the right ones, and whether anything of the candidate is left.
    #[track_caller]
    fn comes_to(&mut self, end: End, after: &str) {
        let node = &self.node;
        let is_served = || matches!(&*node.pods(), [[_, workload, prompt]] if workload == AGENT && prompt == end.prompt);
        self.trial.until(&format!("the end of the second release after {after}"), |trial| is_served() && end.is_over(&trial.home));
        let sight = self.trial.rests(AGENT, end.reason, after);
        let home = &self.trial.home;
        let left: Vec<&String> = sight.as_object().into_iter().flat_map(Map::keys).filter(|name| name.contains(CANDIDATE)).collect();
        assert!(left.is_empty(), "after {after} these are nobody's: {left:?}");
        assert_eq!(home.releases(AGENT)["releases"], end.releases(), "after {after}");
        assert!(is_served(), "after {after} these serve: {:?}", self.node.pods());
        let (pods, deployment) = (home.list("api/v1", "pods"), home.get(APPS, "deployments", AGENT));
        let [pod] = &*pods else { panic!("after {after} there should be one pod: {pods:#?}") };
        let template = &deployment["spec"]["template"]["metadata"];
        for field in ["labels", "annotations"] {
            assert_holds(&format!("the pod that serves after {after}"), &template[field], &pod["metadata"][field]);
        }
        evaluated_once(home, end, after);
        self.recorded_once(after);
    }

    /// Git has two versions, each of which was recorded and then decided on.
    #[track_caller]
    fn recorded_once(&self, after: &str) {
        let repository = self.history.path().join(format!("{}.git", self.trial.home.namespace));
        let said = |arguments: &[&str]| {
            let output = git(&repository, arguments);
            assert!(output.status.success(), "git {arguments:?}: {output:?}");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut lines: Vec<String> = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let trailers = |key: &str| said(&["log", &format!("--format=%(trailers:key={key},valueonly,separator=)"), "main"]);
        let (versions, names) = (trailers("Version"), trailers("Release"));
        assert_eq!(versions, ["1", "1", "2", "2"], "commits by version after {after}");
        assert!(names.len() == 2 && names[0] != names[1], "each release is recorded once, after {after}: {names:?}");
        let files = said(&["ls-tree", "-r", "--name-only", "main", &format!("agents/{AGENT}/releases/")]);
        assert_eq!(files, [1, 2].map(|version| format!("agents/{AGENT}/releases/v{version}.yaml")), "after {after}");
        said(&["fsck", "--strict", "--full"]);
    }
}

/// Each of the two releases has one run, which a pod was sent once, and all of it is told once.
#[track_caller]
fn evaluated_once(home: &Home, end: End, after: &str) {
    let (releases, runs) = (home.list(OURS, "agentreleases"), home.list(OURS, "evaluationruns"));
    assert_eq!(runs.len(), 2, "runs after {after}: {runs:#?}");
    for release in &releases {
        let run = runs.iter().find(|run| run["spec"]["release"] == release["metadata"]["name"]);
        let run = run.unwrap_or_else(|| panic!("no run after {after} of {release:#}"));
        let (status, evaluation) = (&run["status"], &release["status"]["evaluation"]);
        let passes = end.passes || release["status"]["version"] == 1;
        assert_eq!((&status["phase"], &status["attempt"]), (&json!("Completed"), &json!(1)), "after {after}: {run:#}");
        let found = [&evaluation["run"], &evaluation["attempt"], &evaluation["passed"]];
        assert_eq!(found, [&run["metadata"]["name"], &json!(1), &json!(passes)], "after {after}: {release:#}");
        let told = home.events("EvaluationRun", run["metadata"]["name"].as_str().unwrap_or_default());
        for reason in ["EvaluationStarted", "EvaluationCompleted"] {
            assert_eq!(told.iter().filter(|event| event["reason"] == reason).count(), 1, "{reason} after {after}: {told:#?}");
        }
    }
    let told = home.told(AGENT);
    let count = |reason: &str| told.iter().filter(|found| *found == reason).count();
    assert_eq!(["ReleasePending", "ReleaseApproved"].map(count), [2, 1 + usize::from(end.passes)], "after {after}: {told:?}");
}
