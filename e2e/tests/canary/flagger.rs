//! Flagger, the real one, rolls an agent out: what passes our quality gate it promotes, what fails it rolls back, while people go on
//! talking, a database password is rotated, and pods are added. Then the agent is taken back from it.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipway_e2e::platform::{self, WithoutState};
use slipway_e2e::{Agent, Api, Flagger, State, Team, Turn, condition, fresh, kubectl, longest_unwatched, poll, until, unwatched};
use tempfile::TempDir;

use super::events;
use crate::evaluations::{dataset, needs_database};
use crate::upgrade::callers::Caller;

const ON: &str = "agents.slipway.dev/flagger";
const NAME: &str = "app.kubernetes.io/name";
const SECRETS_HASH: &str = "/spec/template/metadata/annotations/agents.slipway.dev~1secrets-hash";
/// What the stub that serves says, and the one that fails does not.
const SAYS: &str = "Echo: still here";

#[test]
fn flagger_promotes_what_passes_the_gate_and_nothing_else() {
    if !needs_database() {
        return;
    }
    let scene = Scene::begin(longest_unwatched(), "flagger-gate");
    let agent = scene.agent();
    let by_rest = scene.rest.call("POST", "/agents/helper/chat").json(&json!({"message": "still here"}));
    poll(30, || match by_rest.send() {
        reply if reply.status == 200 => Ok(()),
        reply => Err(format!("a first chat should be answered: {reply:?}")),
    });
    let callers = [Caller::of(by_rest.clone(), SAYS), Caller::of(agent.chat_call("still here"), SAYS)];
    taken_over(&scene, &agent);
    promoted(&scene, &agent);
    rolled_back(&scene, &agent);
    scaled(&agent);
    taken_back(&agent);
    for told in callers.map(Caller::told) {
        assert!(told.faults.is_empty(), "{} of {} chats failed: {:#?}", told.faults.len(), told.answered + told.faults.len(), told.faults);
        assert!(told.answered > 100 && told.knocked_twice == 0, "{told:?}");
    }
}

/// Flagger makes a copy that serves, and the agent's own Deployment rests.
#[track_caller]
fn taken_over(scene: &Scene, agent: &Agent) {
    scene.canary();
    phase(agent, "Initialized", 120);
    selects(agent, "helper-primary");
    rests(agent);
    assert_eq!(agent.ready()["status"]["replicas"], 1, "the pod of Flagger's counts");
    assert_eq!(own(agent).len(), 0, "nobody brings back what rests");
    // What a release is was copied, and what all pods read as it is was not.
    let copies = agent.team.kubectl("get configmaps,secrets -o name").ok();
    assert!(copies.lines().any(|name| name == "configmap/helper-config-primary"), "{copies}");
    let shared = ["slipway-policies-primary", "slipway-runtime-primary", "helper-tool-digests-primary", "login-primary"];
    assert!(!shared.iter().any(|name| copies.contains(name)), "{copies}");
}

/// A change passes the gate and is promoted; meanwhile the password of the agent's database becomes another one.
#[track_caller]
fn promoted(scene: &Scene, agent: &Agent) {
    let (before, hash) = (primaries(agent), secrets_hash(agent));
    agent.patch(&json!({"systemPrompt": "two"}));
    phase(agent, "Progressing", 60);
    scene.database.rotate(&scene.team, "two");
    let rotated = until(&deployments(agent, "helper-primary"), 60, |deployments| match deployments.first().map(hash_of) {
        Some(now) if now != hash => Ok(now),
        now => Err(format!("the primary's pods should be replaced: {now:?}")),
    });
    phase(agent, "Succeeded", 300);
    assert_eq!(primary_config(agent, "RUNTIME_SYSTEM_PROMPT"), "two");
    rests(agent);
    selects(agent, "helper-primary");
    agent.ready();
    let now = primaries(agent);
    assert!(now.len() == 1 && !before.contains(&now[0]), "no pod has the password of before: {before:?} {now:?}");
    assert_eq!(secrets_hash(agent), rotated, "what Flagger copied has it too");
    told(agent, "CanaryGatePassed");
}

/// A change fails the gate, and never serves.
#[track_caller]
fn rolled_back(scene: &Scene, agent: &Agent) {
    let before = primaries(agent);
    agent.patch(&json!({"modelId": "stub-script"}));
    phase(agent, "Progressing", 60);
    phase(agent, "Failed", 300);
    rests(agent);
    selects(agent, "helper-primary");
    assert_eq!(["RUNTIME_SYSTEM_PROMPT", "RUNTIME_MODEL_ID"].map(|name| primary_config(agent, name)), ["two", "stub-echo"]);
    assert_eq!(primaries(agent), before, "the pods that serve were never touched");
    assert_eq!(agent.ready()["status"]["replicas"], 1);
    told(agent, "CanaryGateFailed");
    // Pods whose password does not change are not replaced either.
    let hash = secrets_hash(agent);
    scene.database.rotate(&scene.team, "three");
    poll(90, || {
        let now = primaries(agent);
        let is_new = now.len() == 1 && !before.contains(&now[0]) && secrets_hash(agent) != hash;
        if is_new { Ok(()) } else { Err(format!("the primary's pods should be replaced though the change failed: {now:?}")) }
    });
    assert_eq!(primary_config(agent, "RUNTIME_MODEL_ID"), "stub-echo");
}

/// What serves has the replicas of the spec, and what rests does not.
#[track_caller]
fn scaled(agent: &Agent) {
    agent.patch(&json!({"replicas": 2}));
    agent.until("with two pods of Flagger's", 90, |found| {
        found["status"]["replicas"] == 2 && condition(found, "Ready")["reason"] == "DeploymentReady"
    });
    assert_eq!(primaries(agent).len(), 2);
}

/// Without the annotation the agent's own pods serve, once they are there; and stop when it is told to.
#[track_caller]
fn taken_back(agent: &Agent) {
    agent.team.kubectl("patch canaries.flagger.app helper --type=merge -p").arg(json!({"spec": {"suspend": true}})).ok();
    let metadata = json!({"annotations": {ON: null}});
    let whole = json!({"metadata": metadata, "spec": {"modelId": "stub-echo"}});
    agent.kubectl("patch").arg("--type=merge").arg("-p").arg(whole).ok();
    selects(agent, "helper");
    assert_eq!(own(agent).len(), 2, "they are there before anything is sent to them");
    agent.team.kubectl("delete canaries.flagger.app helper --wait=true").ok();
    poll(60, || if primaries(agent).is_empty() { Ok(()) } else { Err("the pods of Flagger's should go".to_owned()) });
    assert_eq!(agent.ready()["status"]["replicas"], 2);
}

#[test]
fn an_agent_that_is_stopped_has_no_pods_of_flaggers_either() {
    if !needs_database() {
        return;
    }
    let scene = Scene::begin(unwatched(), "flagger-stop");
    let agent = scene.agent();
    taken_over(&scene, &agent);
    agent.patch(&json!({"suspend": true}));
    agent.until("stopped", 90, |found| condition(found, "Ready")["reason"] == "Suspended");
    poll(60, || match agent.pods().len() {
        0 => Ok(()),
        pods => Err(format!("{pods} pods should go")),
    });
    agent.patch(&json!({"suspend": false}));
    agent.ready();
    assert_eq!(primaries(&agent).len(), 1);
    assert!(agent.chat("still here").contains(SAYS));
    rests(&agent);
    // Without a copy of Flagger's the agent serves by itself, though nobody has taken the annotation away.
    agent.team.kubectl("delete canaries.flagger.app helper --wait=true").ok();
    selects(&agent, "helper");
    agent.ready();
    poll(60, || if own(&agent).len() == 1 { Ok(()) } else { Err("the agent should have a pod of its own".to_owned()) });
    assert!(agent.chat("still here").contains(SAYS));
}

/// What a test needs. What was stopped for it comes back before the next test's turn.
struct Scene {
    _flagger: Flagger,
    rest: Api,
    _state: State,
    _without: Option<WithoutState>,
    database: Database,
    team: Team,
    _folder: TempDir,
}

impl Scene {
    #[track_caller]
    fn begin(turn: Turn, name: &str) -> Self {
        let without = WithoutState::begin();
        let team = Team::within(turn, &fresh(name), &json!({}));
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        write_key(&key);
        // A comparison of words judges, which the installed one lets pass no gate.
        let environment = [("SLIPWAY_ALLOW_HEURISTIC_GATE", "true"), ("SLIPWAY_CALLBACK_KEY_FILE", key.to_str().unwrap())];
        let state = State::with(&team, folder.path(), &team.namespace, &environment);
        let [url, token] = state.environment();
        let rest = Api::start(&[("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", &team.namespace), url, token]);
        // One of the stubs says it again, and the other says something else.
        dataset(&team, "tokens", &json!([{"input": "tokens 3", "expectedOutput": "Echo: tokens 3"}]));
        let flagger = Flagger::start(&team.namespace);
        let database = Database::make(&team);
        Self { _flagger: flagger, rest, _state: state, _without: without, database, team, _folder: folder }
    }

    /// An agent whose rollouts are Flagger's, with a database of its own.
    #[track_caller]
    fn agent(&self) -> Agent<'_> {
        let agent = Agent { team: &self.team, name: "helper".to_owned() };
        let mut manifest = agent.manifest(&json!({
            "modelId": "stub-echo", "systemPrompt": "one", "storage": "postgresql",
            "databaseUrl": self.database.url(), "databaseCredentialsSecret": "login",
            "governance": {"riskProfile": "low", "evalDataset": "tokens"},
        }));
        manifest["metadata"]["annotations"] = json!({ON: "true"});
        self.team.apply(&manifest);
        agent.ready();
        agent
    }

    /// The Canary, which asks our gate.
    #[track_caller]
    fn canary(&self) {
        let template = "go-template={{.data.credential | base64decode}}";
        let credential = self.team.kubectl("get secret slipway-canary-gate -o").arg(template).ok();
        let gate =
            json!({"name": "gate", "type": "rollout", "url": format!("{}/api/v1/webhooks/canary-gate/{credential}", self.rest.url())});
        self.team.apply(&json!({
            "apiVersion": "flagger.app/v1beta1", "kind": "Canary", "metadata": {"name": "helper"},
            "spec": {
                "provider": "kubernetes", "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "helper"},
                "service": {"name": "helper-rollout", "port": 8000},
                // The first answer is that there is no score yet, which counts as a failure.
                "analysis": {"interval": "10s", "threshold": 6, "iterations": 2, "webhooks": [gate]},
            },
        }));
    }
}

/// A database of the agent's own on the platform's server, and the Secret with its password, which Flagger does not copy.
struct Database {
    name: String,
}

impl Database {
    #[track_caller]
    fn make(team: &Team) -> Self {
        let this = Self { name: team.slug.replace('-', "_") };
        sql(&format!("CREATE ROLE {} LOGIN PASSWORD 'one'", this.name));
        sql(&format!("CREATE DATABASE {0} OWNER {0}", this.name));
        this.tell(team, "one");
        this
    }

    fn url(&self) -> String {
        format!("postgres://postgres.{}.svc.cluster.local:5432/{}?sslmode=disable", platform::NAMESPACE, self.name)
    }

    #[track_caller]
    fn rotate(&self, team: &Team, password: &str) {
        sql(&format!("ALTER ROLE {} PASSWORD '{password}'", self.name));
        self.tell(team, password);
    }

    #[track_caller]
    fn tell(&self, team: &Team, password: &str) {
        let metadata = json!({
            "name": "login", "labels": {"agents.slipway.dev/agent-readable": "true"},
            "annotations": {"flagger.app/config-tracking": "disabled"},
        });
        let data = json!({"username": self.name, "password": password});
        team.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}));
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        run_sql(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)).run();
        run_sql(&format!("DROP ROLE IF EXISTS {}", self.name)).run();
    }
}

fn run_sql(statement: &str) -> slipway_e2e::Kubectl {
    let script = "read -r PGPASSWORD </run/secrets/postgres/password; export PGPASSWORD; exec psql -h /tmp -U postgres -Atc \"$0\"";
    kubectl(format!("exec -n {} postgres-0 -- sh -c", platform::NAMESPACE)).arg(script).arg(statement)
}

#[track_caller]
fn sql(statement: &str) {
    run_sql(statement).ok();
}

/// The key by which the state role knows credentials, as it is installed.
#[track_caller]
fn write_key(path: &Path) {
    let text = kubectl(format!("get secret slipway-keys -n {} -o jsonpath={{.data.callback}}", platform::NAMESPACE)).ok();
    std::fs::write(path, STANDARD.decode(text.trim()).unwrap()).unwrap();
}

/// Waits until Flagger says so of its Canary.
#[track_caller]
fn phase(agent: &Agent, wanted: &str, seconds: u64) {
    until(&format!("canaries.flagger.app -n {}", agent.team.namespace), seconds, |canaries| {
        let found = canaries.first().map(|canary| canary["status"].clone()).unwrap_or_default();
        if found["phase"] == wanted { Ok(()) } else { Err(format!("the Canary should be {wanted}: {found}")) }
    });
}

/// Waits until the agent's Service sends to pods of this name, of which one is ready.
#[track_caller]
fn selects(agent: &Agent, name: &str) {
    poll(60, || match agent.service()["spec"]["selector"][NAME].clone() {
        found if found == name => Ok(()),
        found => Err(format!("the Service should select {name} and not {found}")),
    });
}

/// Waits until the agent's own Deployment has no pods, as Flagger wants it between rollouts.
#[track_caller]
fn rests(agent: &Agent) {
    agent.deployment_until("no replicas", 60, |deployment| {
        deployment["spec"]["replicas"] == 0 && deployment["status"]["replicas"].is_null()
    });
}

/// The UIDs of the pods of this name that are ready.
#[track_caller]
fn ready_pods(agent: &Agent, name: &str) -> Vec<String> {
    let pods =
        agent.pods().into_iter().filter(|pod| pod["metadata"]["labels"][NAME] == name && condition(pod, "Ready")["status"] == "True");
    let mut uids: Vec<String> = pods.map(|pod| pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned()).collect();
    uids.sort();
    uids
}

#[track_caller]
fn primaries(agent: &Agent) -> Vec<String> {
    ready_pods(agent, "helper-primary")
}

#[track_caller]
fn own(agent: &Agent) -> Vec<String> {
    ready_pods(agent, "helper")
}

fn deployments(agent: &Agent, name: &str) -> String {
    format!("deployments -n {} --field-selector metadata.name={name}", agent.team.namespace)
}

fn hash_of(deployment: &Value) -> String {
    deployment.pointer(SECRETS_HASH).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[track_caller]
fn secrets_hash(agent: &Agent) -> String {
    hash_of(&agent.team.get("deployment/helper-primary"))
}

/// What the pods that serve were started with.
#[track_caller]
fn primary_config(agent: &Agent, variable: &str) -> String {
    agent.team.get("configmap/helper-config-primary")["data"][variable].as_str().unwrap_or_default().to_owned()
}

/// Waits for an Event about the agent that has this reason.
#[track_caller]
fn told(agent: &Agent, reason: &str) {
    poll(30, || if events(agent, reason).is_empty() { Err(format!("there should be an Event {reason}")) } else { Ok(()) });
}
