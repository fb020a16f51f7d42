//! What lies outside of the cluster: a disk that is full, and a remote behind a certificate that nobody else trusts.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use slipway_e2e::platform::WithoutState;
use slipway_e2e::{Api, State, Team, condition, fresh, poll, unwatched};
use slipway_peers::{GitHttp, skip};

use super::{Ground, runs};

/// A file system of a few megabytes, gone when this is.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        let mounted = command.args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(folder.path()).output();
        mounted.is_ok_and(|said| said.status.success()).then_some(Self(folder))
    }

    /// Takes all the room there is.
    fn fill(&self) -> File {
        let mut ballast = OpenOptions::new().create(true).append(true).open(self.0.path().join("ballast")).unwrap();
        for size in [65536, 4096, 1] {
            while ballast.write_all(&vec![1; size]).is_ok() {}
        }
        ballast
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

impl Ground {
    /// With a state role of the test's own in this folder, which is told these things besides.
    #[track_caller]
    fn within(test: &str, folder: Option<&Path>, environment: &[(&str, &str)]) -> Self {
        let turn = unwatched();
        let without = WithoutState::begin();
        let team = Team::within(turn, &fresh(test), &json!({}));
        let own = tempfile::tempdir().unwrap();
        let place = [("SLIPWAY_PLATFORM_NAMESPACE", team.namespace.as_str())];
        let state = State::with(&team, folder.unwrap_or(own.path()), &team.namespace, &[&place, environment].concat());
        Self { state, _without: without, team, folder: own }
    }
}

fn git(repository: &Path, arguments: &[&str]) -> String {
    let said = Command::new("git").arg("-C").arg(repository).args(["-c", "safe.directory=*"]).args(arguments).output().unwrap();
    assert!(said.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).unwrap()
}

#[test]
fn while_the_disk_is_full_releases_wait_and_go_on_when_there_is_room() {
    let Some(small) = Small::mount() else {
        skip("a small file system cannot be mounted here, which takes root");
        return;
    };
    let ground = Ground::within("releases-full", Some(small.0.path()), &[]);
    let agent = ground.agent("helper", &json!({"systemPrompt": "one"}));
    runs(&agent, 1);
    drop(small.fill());
    agent.patch(&json!({"systemPrompt": "two"}));
    let told = agent.until("well itself, and waiting", 30, |agent| {
        condition(agent, "Released")["reason"] == "StateUnavailable" && condition(agent, "Ready")["status"] == "True"
    });
    assert_eq!((condition(&told, "Released")["status"].as_str(), &told["status"]["activeRelease"]), (Some("False"), &json!(1)));
    poll(20, || if agent.config()["data"]["RUNTIME_SYSTEM_PROMPT"] == "two" { Ok(()) } else { Err("it runs what it says".to_owned()) });
    // What was recorded before can be read all the same.
    assert_eq!(ground.artifact("helper", 1)["agent"]["system_prompt"], "one");
    std::fs::remove_file(small.0.path().join("ballast")).unwrap();
    let well = runs(&agent, 2);
    assert_eq!(condition(&well, "Released")["status"], "True");
    let repository = small.0.path().join(format!("{}.git", ground.team.namespace));
    git(&repository, &["fsck", "--strict", "--full"]);
    assert_eq!(git(&repository, &["rev-list", "--count", "main"]).trim(), "2");
    drop(ground);
}

#[test]
fn a_mirror_behind_a_private_authority_takes_its_certificates_over_rest_and_follows() {
    let remote = GitHttp::start();
    let there = remote.repository("agents.git", &[]);
    let ground = Ground::within("releases-mirror", None, &[("SLIPWAY_MIRROR_ALLOW", "127.0.0.0/8")]);
    let namespace = ground.team.namespace.as_str();
    slipway_e2e::platform::keep_configuration_in(namespace);
    let open = [("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", namespace), ("SLIPWAY_PLATFORM_NAMESPACE", namespace)];
    let api = Api::start(&[&ground.state.environment()[..], &open].concat());
    let put = |body: Value| api.call("PUT", "/platform/config").json(&body).expect(200);
    let status = |wanted: &str| {
        poll(30, || {
            let config = api.call("GET", "/platform/config").expect(200)["data"].clone();
            if config["git_status"] == wanted { Ok(config) } else { Err(format!("it should be {wanted}: {config}")) }
        })
    };
    let agent = ground.agent("helper", &json!({"systemPrompt": "one"}));
    runs(&agent, 1);
    put(json!({"state_repo": remote.url("agents.git"), "state_token": remote.token()}));
    let refused = status("error");
    assert!(refused["git_message"].as_str().is_some_and(|says| says.contains("certificate")), "{refused}");
    put(json!({"state_ca": remote.authority()}));
    let kept = status("ok");
    assert_eq!((&kept["state_ca"], &kept["state_token"]), (&json!(remote.authority()), &json!("********")));
    agent.patch(&json!({"systemPrompt": "two"}));
    runs(&agent, 2);
    let ours = ground.folder.path().join(format!("{namespace}.git"));
    poll(30, || {
        let theirs = git(&there, &["for-each-ref", "--format=%(objectname)", &format!("refs/heads/{namespace}")]);
        let ours = git(&ours, &["rev-parse", "main"]);
        if theirs == ours { Ok(()) } else { Err(format!("the remote has {theirs:?}, and we have {ours:?}")) }
    });
    assert!(git(&there, &["show", &format!("{namespace}:agents/helper/releases/v2.yaml")]).contains("two"));
    let tested = api.call("POST", "/platform/config/test").expect(200);
    assert_eq!(tested["data"]["git"]["status"], "ok", "{tested}");
    assert!(!api.log().contains(remote.token()), "{}", api.log());
}
