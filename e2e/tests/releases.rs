//! Every change of what an agent runs is a version: made by itself or asked for, shown by kubectl, brought back, kept.
//!
//! `back` has rollbacks, `end` the end of agents, `gate` releases that wait for an evaluation, `kills` what a state role leaves that
//! is killed, `many` many at once, `outside` disks and remotes, `trouble` what others do meanwhile.

mod back;
mod end;
pub(crate) mod gate;
mod kills;
mod many;
mod outside;
mod trouble;

use serde_json::{Value, json};
use slipway_e2e::platform::WithoutState;
use slipway_e2e::{Agent, State, Team, condition, fresh, poll, unwatched};

/// A team and the state role that keeps its releases. What was stopped for it comes back before the next test's turn.
struct Ground {
    state: State,
    _without: Option<WithoutState>,
    team: Team,
    folder: tempfile::TempDir,
}

impl Ground {
    #[track_caller]
    fn new(test: &str) -> Self {
        let team = Team::new(&fresh(test));
        let folder = tempfile::tempdir().unwrap();
        let state = State::of(&team, folder.path());
        Self { state, _without: None, team, folder }
    }

    /// With a state role of the test's own, whose folder it can get at.
    #[track_caller]
    fn alone(test: &str) -> Self {
        let turn = unwatched();
        let without = WithoutState::begin();
        let team = Team::within(turn, &fresh(test), &json!({}));
        let folder = tempfile::tempdir().unwrap();
        let state = State::start(&team, folder.path(), &team.namespace);
        Self { state, _without: without, team, folder }
    }

    /// An agent whose pods nobody waits for.
    #[track_caller]
    fn agent(&self, name: &str, spec: &Value) -> Agent<'_> {
        let mut whole = json!({"replicas": 0, "storage": "memory"});
        whole.as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap());
        self.team.agent(name, &whole)
    }

    /// What the history says of an agent, newest first.
    #[track_caller]
    fn history(&self, name: &str) -> Vec<Value> {
        let path = format!("/releases/{}/{name}?limit=500", self.team.namespace);
        self.state.call("GET", &path).expect(200)["data"].as_array().cloned().unwrap()
    }

    #[track_caller]
    fn versions(&self, name: &str) -> Vec<(u64, String)> {
        let line = |entry: &Value| (entry["version"].as_u64().unwrap(), entry["status"].as_str().unwrap().to_owned());
        self.history(name).iter().map(line).collect()
    }

    /// The artifact of a version.
    #[track_caller]
    fn artifact(&self, name: &str, version: u64) -> Value {
        let release = self.state.call("GET", &format!("/releases/{}/{name}/{version}", self.team.namespace)).expect(200);
        serde_yaml::from_str(release["artifact"].as_str().unwrap()).unwrap()
    }

    /// The AgentReleases of an agent by version: phase, and whether it has the artifact.
    #[track_caller]
    fn shown(&self, name: &str) -> Vec<(u64, String, bool)> {
        let list = self.team.kubectl(format!("get agentreleases --field-selector spec.agent={name}")).json();
        let line = |release: &Value| {
            let status = &release["status"];
            let phase = status["phase"].as_str().unwrap_or_default().to_owned();
            (status["version"].as_u64().unwrap_or(0), phase, status["artifact"].is_string())
        };
        let mut all: Vec<_> = list["items"].as_array().into_iter().flatten().map(line).collect();
        all.sort();
        all
    }

    /// Waits until the cluster shows no more than these.
    #[track_caller]
    fn shows(&self, name: &str, expected: &[(u64, &str)]) {
        let expected: Vec<_> =
            expected.iter().map(|(version, phase)| (*version, (*phase).to_owned(), matches!(*phase, "active" | "pending_eval"))).collect();
        poll(20, || match self.shown(name) {
            shown if shown == expected => Ok(()),
            shown => Err(format!("{expected:?} should be shown, and {shown:?} is")),
        });
    }

    /// Waits a while in which nothing is to happen.
    fn stays(&self, name: &str, versions: usize) {
        // Longer than the 2 s for which a change has to stand.
        std::thread::sleep(std::time::Duration::from_secs(4));
        assert_eq!(self.history(name).len(), versions, "{:?}", self.history(name));
    }
}

/// Waits until a version of the agent runs.
#[track_caller]
pub(crate) fn runs(agent: &Agent, version: u64) -> Value {
    // Behind a gate a candidate starts and is evaluated before.
    agent.until(&format!("at v{version}"), 180, |found| {
        found["status"]["activeRelease"] == version && found["metadata"]["annotations"]["agents.slipway.dev/deploy-release"].is_null()
    })
}

#[track_caller]
fn deploy(agent: &Agent, version: u64) {
    agent.kubectl("annotate").arg(format!("agents.slipway.dev/deploy-release={version}")).ok();
}

#[test]
fn a_change_of_what_runs_is_a_version_and_nothing_else_is() {
    let ground = Ground::new("releases-auto");
    let agent = ground.agent("helper", &json!({"systemPrompt": "one"}));
    let first = runs(&agent, 1);
    assert_eq!(condition(&first, "Released")["status"], "True");
    for quiet in [json!({"replicas": 1}), json!({"replicas": 0}), json!({"name": "Other", "description": "d"})] {
        agent.patch(&quiet);
    }
    ground.stays("helper", 1);
    agent.patch(&json!({"systemPrompt": "two", "suspend": true}));
    ground.stays("helper", 1);
    agent.patch(&json!({"suspend": false}));
    runs(&agent, 2);
    for at in 0..10 {
        agent.patch(&json!({"systemPrompt": format!("edit {at}")}));
    }
    runs(&agent, 3);
    ground.stays("helper", 3);
    let history = ground.history("helper");
    assert_eq!(ground.versions("helper"), [(3, "active".to_owned()), (2, "archived".to_owned()), (1, "archived".to_owned())]);
    assert_eq!((&history[2]["changelog"], &history[1]["changelog"]), (&json!("first release"), &json!("changed agent.system_prompt")));
    assert_eq!(
        (&history[2]["author"], &history[0]["author"]),
        (&json!("manager:kubectl-client-side-apply"), &json!("manager:kubectl-patch"))
    );
    assert_eq!(ground.artifact("helper", 3)["agent"]["system_prompt"], "edit 9");
    ground.shows("helper", &[(1, "archived"), (2, "archived"), (3, "active")]);
    for entry in &history {
        let release = ground.team.get(&format!("agentrelease/{}", entry["name"].as_str().unwrap()));
        assert_eq!((&release["status"]["commit"], &release["status"]["checksum"]), (&entry["commit"], &entry["checksum"]));
        assert_eq!(release["metadata"]["ownerReferences"][0]["uid"], first["metadata"]["uid"]);
    }
}

#[test]
fn the_table_of_the_specification_stands_row_by_row() {
    let ground = Ground::new("releases-table");
    let spec = json!({
        "systemPrompt": "Be kind.", "strategy": "agent-react", "environment": "staging", "tools": ["lookup"],
        "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "governance": {"riskProfile": "low", "guards": ["pii-detection"], "evalDataset": "golden"},
    });
    ground.team.tool("lookup", &json!({"type": "builtin", "description": "d"}));
    let agent = ground.agent("helper", &spec);
    runs(&agent, 1);
    agent.patch(&json!({"systemPrompt": "Be kinder."}));
    let now = runs(&agent, 2);
    let (first, second) = (ground.artifact("helper", 1), ground.artifact("helper", 2));
    let entry = &ground.history("helper")[0];
    for (path, value) in [
        ("/apiVersion", json!("agents.slipway.dev/v1")),
        ("/kind", json!("AgentRelease")),
        ("/metadata/name", json!("helper")),
        ("/metadata/version", json!(2)),
        ("/metadata/previous", json!(1)),
        ("/metadata/author", json!("manager:kubectl-patch")),
        ("/metadata/changelog", json!("changed agent.system_prompt")),
        ("/metadata/status", json!("active")),
        ("/metadata/checksum", entry["checksum"].clone()),
        ("/metadata/timestamp", entry["timestamp"].clone()),
        ("/runtime/channel", json!("rest")),
        ("/runtime/strategy", json!("agent-react")),
        ("/runtime/replicas", json!(0)),
        ("/runtime/resources/requests", json!({"cpu": "50m", "memory": "32Mi"})),
        ("/runtime/resources/limits", json!({"memory": "64Mi"})),
        ("/agent/model/provider", json!("stub")),
        ("/agent/model/id", json!("stub-echo")),
        ("/agent/system_prompt", json!("Be kinder.")),
        ("/agent/skills", json!([])),
        ("/agent/tools", json!(["lookup"])),
        ("/agent/knowledge_bases", json!([])),
        ("/agent/memory/backend", json!("memory")),
        ("/governance/guards", json!(["pii-detection"])),
        ("/governance/policies", json!([])),
        ("/governance/risk_profile", json!("low")),
        ("/governance/eval_dataset", json!("golden")),
        ("/governance/min_quality_score", json!(0)),
        ("/deployment/namespace", json!(ground.team.namespace)),
        ("/deployment/environment", json!("staging")),
    ] {
        assert_eq!(second.pointer(path), Some(&value), "{path}");
    }
    assert_eq!((&first["metadata"]["previous"], second["metadata"]["deleted_at"].is_null()), (&json!(0), true));
    assert_eq!(first["resolved"]["tools"]["lookup"].as_str().map(str::len), Some(64));
    assert_eq!(now["status"]["activeRelease"], 2);
}

#[test]
fn what_an_agent_names_is_part_of_it_and_who_changed_that_is_the_author() {
    let ground = Ground::new("releases-named");
    ground.team.tool("lookup", &json!({"type": "builtin", "description": "one"}));
    ground.team.skill("forms", &json!({}));
    let agent = ground.agent("helper", &json!({"tools": ["lookup"], "skills": ["forms"]}));
    runs(&agent, 1);
    ground.team.kubectl("patch tool lookup --type=merge --field-manager=gardener -p").arg(json!({"spec": {"description": "two"}})).ok();
    runs(&agent, 2);
    let newest = &ground.history("helper")[0];
    assert_eq!((&newest["author"], &newest["changelog"]), (&json!("manager:gardener"), &json!("edited tool lookup")));
    ground.team.kubectl("patch skill forms --type=merge -p").arg(json!({"spec": {"instructions": "Otherwise."}})).ok();
    runs(&agent, 3);
    assert_eq!(ground.history("helper")[0]["changelog"], "edited skill forms");
    ground.team.kubectl("annotate tool lookup a=b").ok();
    ground.stays("helper", 3);
}

#[test]
fn the_image_that_runs_is_resolved_to_its_digest() {
    let ground = Ground::new("releases-image");
    let agent = ground.agent("helper", &json!({"replicas": 1}));
    agent.ready();
    runs(&agent, 1);
    let pods = agent.pods();
    let reported = pods[0]["status"]["containerStatuses"][0]["imageID"].as_str().unwrap().to_owned();
    let found = ground.artifact("helper", 1)["resolved"]["image"].as_str().unwrap_or_default().to_owned();
    assert!(found.starts_with("sha256:") && reported.ends_with(&found), "{found:?} should be what the pod reports: {reported}");
    ground.stays("helper", 1);
}

#[test]
fn a_person_asks_for_a_release_and_kubectl_shows_it() {
    let ground = Ground::new("releases-asked");
    let agent = ground.agent("helper", &json!({}));
    runs(&agent, 1);
    let ask = |name: &str, spec: &Value| {
        let whole = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "AgentRelease", "metadata": {"name": name}, "spec": spec});
        ground.team.kubectl("create -f -").input(whole).ok();
    };
    // While it is stopped a change is not recorded by itself.
    agent.kubectl("patch --type=merge").arg("-p").arg(json!({"spec": {"suspend": true, "systemPrompt": "It is autumn."}}).to_string()).ok();
    ask("autumn", &json!({"agent": "helper", "changelog": "For the autumn.", "author": "Ann"}));
    runs(&agent, 2);
    let newest = &ground.history("helper")[0];
    assert_eq!((&newest["author"], &newest["changelog"]), (&json!("manager:kubectl-create (as Ann)"), &json!("For the autumn.")));
    ground.team.kubectl("wait agentrelease/autumn --for=condition=Ready --timeout=20s").ok();
    let table = ground.team.kubectl("get agentreleases").ok();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(table.lines().next().unwrap()), ["NAME", "AGENT", "VERSION", "PHASE", "SCORE", "AGE"]);
    let line = words(table.lines().find(|line| line.starts_with("autumn")).unwrap());
    assert_eq!(line[1..4], ["helper", "2", "active"]);
    let told = ground.team.kubectl("describe agent helper").ok();
    assert!(told.contains("ReleaseCreated") && told.contains("release v2 was made and runs, by manager:kubectl-create (as Ann)"), "{told}");
    let events = ground.team.kubectl("get events.events.k8s.io").json();
    let event = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|event| event["reason"] == "ReleaseCreated" && event["note"].as_str().unwrap().contains("v2"));
    let payload: Value =
        serde_json::from_str(event.unwrap()["metadata"]["annotations"]["agents.slipway.dev/payload"].as_str().unwrap()).unwrap();
    assert_eq!(payload, json!({"version": 2, "previous": 1, "author": "manager:kubectl-create (as Ann)"}));
    // Nothing has changed since: the version that stands is named, and none is made.
    ask("needless", &json!({"agent": "helper"}));
    poll(20, || match &ground.team.get("agentrelease/needless")["status"] {
        status if status["phase"] == "Skipped" && status["version"] == 2 => Ok(()),
        status => Err(status.to_string()),
    });
    assert_eq!(ground.history("helper").len(), 2);
    // What cannot be made says why, and is made when it can.
    ask("early", &json!({"agent": "later"}));
    let reason = |release: &Value| condition(release, "Ready")["reason"].as_str().unwrap_or_default().to_owned();
    poll(20, || match reason(&ground.team.get("agentrelease/early")) {
        found if found == "AgentNotFound" => Ok(()),
        found => Err(found),
    });
    let later = ground.agent("later", &json!({"tools": ["absent"]}));
    poll(20, || match reason(&ground.team.get("agentrelease/early")) {
        found if found == "Unresolved" => Ok(()),
        found => Err(found),
    });
    ground.team.tool("absent", &json!({"type": "builtin"}));
    runs(&later, 1);
    assert_eq!(ground.team.get("agentrelease/early")["status"]["version"], 1);
}

#[test]
fn the_cluster_keeps_the_last_three_and_git_keeps_all() {
    let ground = Ground::new("releases-limit");
    let agent = ground.agent("helper", &json!({"systemPrompt": "p1"}));
    runs(&agent, 1);
    for at in 2..=5 {
        agent.patch(&json!({"systemPrompt": format!("p{at}")}));
        runs(&agent, at);
    }
    ground.shows("helper", &[(3, "archived"), (4, "archived"), (5, "active")]);
    assert_eq!(ground.history("helper").len(), 5);
    deploy(&agent, 1);
    runs(&agent, 1);
    ground.shows("helper", &[(1, "active"), (3, "archived"), (4, "archived"), (5, "archived")]);
}
