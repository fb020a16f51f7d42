//! Git to cluster, cluster to Git, with a state role that does not look at the team: what differs stays so until a sync.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};
use slipway_e2e::platform::WithoutState;
use slipway_e2e::{Agent, Api, State, Team, fresh, poll, unwatched};

fn agent(team: &Team, name: &str) -> Value {
    Agent { team, name: name.to_owned() }.get()
}

#[test]
fn cluster_and_git_are_brought_to_the_same() {
    let team = Team::within(unwatched(), &fresh("api-sync"), &json!({}));
    // Else it would make these releases too, in a history of its own.
    let _without = WithoutState::begin();
    let other = team.beside("api-sync-other");
    let nobody = "team-e2e-api-sync-nobody";
    let folder = tempfile::tempdir().unwrap();
    let names = ["gone", "same", "behind", "owned"];
    {
        let _state = State::start(&team, folder.path(), &team.namespace);
        for name in names {
            team.agent(name, &json!({"systemPrompt": format!("I am {name}.")}));
        }
        for name in names {
            poll(60, || match agent(&team, name)["status"]["activeRelease"].clone() {
                active if active == 1 => Ok(()),
                active => Err(format!("v1 of {name} should run, and {active} does")),
            });
        }
    }
    // From now on nobody looks at this team.
    team.kubectl("delete agent gone").ok();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(folder.path().join(format!("{}.git", team.namespace)))
        .arg(folder.path().join(format!("{nobody}.git")))
        .status();
    assert!(copied.unwrap().success());
    let status = json!({"status": {"activeRelease": 7}});
    for name in ["behind", "owned"] {
        team.kubectl(format!("patch agent {name} --subresource=status --type=merge -p")).arg(&status).ok();
    }
    team.kubectl("label agent owned kustomize.toolkit.fluxcd.io/name=apps").ok();
    team.agent("new", &json!({}));
    team.agent("resting", &json!({"suspend": true}));

    let state = State::start(&team, folder.path(), &other.namespace);
    let watched = format!("{},{},{nobody}", team.namespace, other.namespace);
    let open = [("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", &*team.namespace), ("SLIPWAY_WATCH_NAMESPACES", &*watched)];
    let api = Api::start(&[&state.environment()[..], &open].concat());
    let sync = || {
        let answer = api.call("POST", "/platform/sync").expect(200);
        let results = answer["results"].as_array().unwrap().iter();
        let here = results.clone().filter(|result| result["namespace"] == *team.namespace);
        let actions: BTreeMap<String, String> =
            here.map(|result| (result["agent"].as_str().unwrap().to_owned(), result["action"].as_str().unwrap().to_owned())).collect();
        let strays: Vec<Value> = results.filter(|result| result["namespace"] == *nobody).cloned().collect();
        (actions, strays, answer["synced"].clone(), answer)
    };
    let (actions, strays, synced, answer) = sync();
    let expected =
        [("behind", "updated"), ("gone", "created"), ("new", "created"), ("owned", "skipped"), ("resting", "skipped"), ("same", "skipped")];
    assert_eq!(actions, expected.map(|(name, action)| (name.to_owned(), action.to_owned())).into(), "{answer:#}");
    assert_eq!(synced, 3, "{answer:#}");
    assert_eq!(strays.len(), names.len(), "{answer:#}");
    assert!(strays.iter().all(|stray| stray["action"] == "error" && stray["message"] != ""), "{answer:#}");

    let gone = agent(&team, "gone");
    assert_eq!(
        (&gone["spec"]["systemPrompt"], &gone["metadata"]["annotations"]),
        (&json!("I am gone."), &json!({"agents.slipway.dev/changed-by": "anonymous"}))
    );
    let behind = agent(&team, "behind");
    assert_eq!(behind["metadata"]["annotations"]["agents.slipway.dev/deploy-release"], "1");
    let releases = team.kubectl("get agentreleases -l agents.slipway.dev/agent=new").json();
    assert_eq!(
        releases["items"][0]["spec"],
        json!({"agent": "new", "author": "anonymous", "changelog": "found in the cluster by a sync"}),
        "{releases}"
    );
    // The second time there is nothing more to be made.
    let (again, ..) = sync();
    assert_eq!((&*again["new"], &*again["owned"]), ("skipped", "skipped"), "{again:?}");
}
