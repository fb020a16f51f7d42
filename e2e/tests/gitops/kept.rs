//! A person's repository, which the engine keeps in a team's namespace: what is committed runs, every commit that changes
//! it is a release, a rollback stays, and nobody undoes what another one did.

use serde_json::{Value, json};
use slipway_e2e::gitops::{AGENT, Controller, Health};
use slipway_e2e::{Agent, Api, Checkout, Repository, State, Team, alone, condition, fresh, platform, poll};

use super::{agent, forms, lookup, manifest, nobody_writes, runs, spec_in_full};

/// A team whose namespace is what a person's repository says.
struct Ground {
    controller: Controller,
    checkout: Checkout,
    repository: Repository,
    team: Team,
    folder: tempfile::TempDir,
}

impl Ground {
    #[track_caller]
    fn new(team: Team, files: &[(&str, Option<&str>)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::new(folder.path().join("repository"), &format!("namespace: {}\n", team.namespace));
        repository.commit("The first of all.", files);
        let checkout = Checkout::of(&repository.url(), folder.path().join("clone"), ".");
        let controller = Controller::start(&checkout, &team.namespace, None);
        Self { controller, checkout, repository, team, folder }
    }

    /// A commit, of which the controller hears.
    #[track_caller]
    fn commit(&self, message: &str, files: &[(&str, Option<&str>)]) {
        self.repository.commit(message, files);
        self.checkout.pull();
    }

    fn agent<'a>(&'a self, name: &str) -> Agent<'a> {
        Agent { team: &self.team, name: name.to_owned() }
    }
}

#[test]
fn what_is_committed_runs_and_is_released_and_a_rollback_stays() {
    let team = Team::new(&fresh("gitops"));
    let query = |kinds: &str| Health::of(&team.kubectl(format!("get {kinds}")));
    let (agents, tools, skills) = (query("agents"), query("tools"), query("skills"));
    let prompt = |text: &str| agent("helper", &json!({"systemPrompt": text, "tools": ["lookup"], "skills": ["forms"]}));
    let files = [
        ("helper.yaml", Some(&*prompt("one"))),
        ("concierge.yaml", Some(&*agent("concierge", &spec_in_full()))),
        ("lookup.yaml", Some(&*lookup())),
        ("forms.yaml", Some(&*forms())),
    ];
    let ground = Ground::new(team, &files);
    let (helper, concierge) = (ground.agent("helper"), ground.agent("concierge"));
    let state = State::of(&ground.team, ground.folder.path());
    let open = [("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", &*ground.team.namespace)];
    let api = Api::start(&[&state.environment()[..], &open].concat());
    let newest = || api.call("GET", "/agents/helper/releases").expect(200)["data"][0].clone();
    let running = || helper.config()["data"]["RUNTIME_SYSTEM_PROMPT"].clone();
    let runs_with = |text: &str| {
        poll(60, || match running() {
            found if found == text => Ok(()),
            found => Err(format!("the prompt should be {text:?}, and is {found}")),
        });
    };

    // It comes to be, and nothing is said to be ready before it is.
    helper.ready();
    assert!(!helper.chat("Are you there?").is_empty());
    let said = agents.turns_ready("helper", 0);
    tools.turns_ready("lookup", 0);
    skills.turns_ready("forms", 0);
    runs(&concierge, 1);
    runs(&helper, 1);
    assert_eq!((&newest()["version"], &newest()["author"]), (&json!(1), &json!(format!("manager:{AGENT}"))));

    // A commit is the next release.
    ground.commit("Two.", &[("helper.yaml", Some(&prompt("two")))]);
    runs(&helper, 2);
    runs_with("two");
    agents.turns_ready("helper", said);
    assert_eq!(newest()["author"], format!("manager:{AGENT}"));
    assert_eq!(newest()["changelog"], "changed agent.system_prompt");

    // What the repository says is not written to by others, who are told whose it is.
    for (method, path, body) in [
        ("PATCH", "/agents/helper/config", json!({"system_prompt": "REST's"})),
        ("PUT", "/agents/helper/skills", json!({"skills": []})),
        ("DELETE", "/agents/helper", json!({})),
        ("PUT", "/tools/lookup", json!({"name": "calculator", "type": "builtin"})),
        ("DELETE", "/tools/lookup", json!({})),
        ("DELETE", "/skills/forms", json!({})),
    ] {
        let reply = api.call(method, path).json(&body).send();
        assert_eq!(reply.status, 409, "{method} {path}: {reply:?}");
        assert!(reply.body.contains("belongs to Argo CD's gitops-agent"), "{method} {path}: {reply:?}");
    }

    // A rollback is none of the spec's business, and the controller comes by without undoing it.
    let spec = helper.get()["spec"].clone();
    let deployed = api.call("POST", "/agents/helper/releases/1/deploy").expect(200);
    assert_eq!(deployed["data"]["active_release"], 1, "{deployed}");
    runs_with("one");
    let is_pinned = |version: u64| {
        let now = runs(&helper, version);
        assert_eq!(condition(&now, "Pinned")["status"], "True", "{now:#}");
        now
    };
    ground.controller.round();
    assert_eq!(is_pinned(1)["spec"], spec);
    // Nor does a commit that changes nothing of what runs.
    let described = agent("helper", &json!({"systemPrompt": "two", "tools": ["lookup"], "skills": ["forms"], "description": "Helps."}));
    ground.commit("What it does.", &[("helper.yaml", Some(&described))]);
    helper.until("described", 30, |agent| agent["spec"]["description"] == "Helps.");
    helper.ready();
    assert_eq!((is_pinned(1)["status"]["activeRelease"].clone(), running()), (json!(1), json!("one")));
    assert_eq!(newest()["version"], 2, "a rollback makes no version, and neither does a description");

    // A pinned agent, one that is not, and what they name.
    nobody_writes(&ground.team, &ground.controller, 4);

    // One that does is the next release, and the end of the pin.
    ground.commit("Three.", &[("helper.yaml", Some(&prompt("three")))]);
    let now = runs(&helper, 3);
    assert!(condition(&now, "Pinned").is_null(), "{now:#}");
    runs_with("three");
    helper.ready();

    // What is taken out of the repository is gone, and its history is not.
    ground.commit("No more of it.", &[("concierge.yaml", None)]);
    ground.team.kubectl("wait agent/concierge --for=delete --timeout=90s").ok();
    let path = format!("/releases/{}/concierge", ground.team.namespace);
    poll(40, || match state.call("GET", &path).expect(200)["data"][0]["status"].clone() {
        status if status == "deleted" => Ok(()),
        status => Err(format!("its history should be closed, and is {status}")),
    });
    assert_eq!(helper.get()["status"]["activeRelease"], 3);
    assert_eq!(ground.controller.faults(), "");
}

/// A write that changes nothing leaves no trace on an object, but it is a request.
#[test]
fn a_controller_that_comes_by_costs_no_request_of_ours() {
    let team = Team::within(alone("counts what the installed manager writes"), &fresh("gitops-idle"), &json!({}));
    let ground = Ground::new(
        team,
        &[
            ("concierge.yaml", Some(&agent("concierge", &spec_in_full()))),
            ("lookup.yaml", Some(&lookup())),
            ("forms.yaml", Some(&forms())),
            ("clock.yaml", Some(&manifest("Tool", "clock", &json!({"name": "datetime", "type": "builtin"})))),
        ],
    );
    runs(&ground.agent("concierge"), 1);
    let written = || -> f64 {
        let pods = platform::pods().into_iter().chain([format!("{}-0", platform::STATE)]);
        let metrics: Vec<String> = pods.map(|pod| platform::ask(&pod, "/metrics").stdout).collect();
        let ours = |labels: &str| {
            ["PATCH", "POST", "PUT", "DELETE"].iter().any(|verb| labels.contains(&format!("verb=\"{verb}\"")))
                && ["agents", "agentreleases", "tools", "skills", "deployments", "services", "configmaps", "events"]
                    .iter()
                    .any(|kind| labels.contains(&format!("resource=\"{kind}")))
        };
        let samples = metrics.iter().flat_map(|text| platform::samples(text, "slipway_api_requests_total"));
        samples.filter(|(labels, _)| ours(labels)).map(|(_, value)| value).sum()
    };
    assert!(written() > 0.0, "what was made so far is counted");
    // What earlier tests left is still being taken away; a quarrel would never end.
    poll(120, || {
        let before = written();
        for _ in 0..2 {
            ground.controller.round();
        }
        let after = written();
        if (after - before).abs() < f64::EPSILON { Ok(()) } else { Err(format!("{} requests were made in four rounds", after - before)) }
    });
    let last: Value = json!(ground.controller.rounds().last());
    assert_eq!(last.as_array().map(Vec::len), Some(4), "{last}");
}
