//! What others do to a repository, and who is named for what.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use slipway_e2e::{Api, State, Team, condition, fresh, poll};

use super::{Ground, deploy, runs};

fn git(folder: &Path, arguments: &[&str]) -> String {
    let said = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "user.name=stranger", "-c", "user.email=s@example.com"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(said.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).unwrap()
}

#[test]
fn a_strangers_commit_is_built_upon_and_what_it_forged_is_not_deployed() {
    let ground = Ground::alone("releases-forged");
    let agent = ground.agent("helper", &json!({"systemPrompt": "one"}));
    runs(&agent, 1);
    agent.patch(&json!({"systemPrompt": "two"}));
    runs(&agent, 2);
    let (bare, clone) = (ground.folder.path().join(format!("{}.git", ground.team.namespace)), ground.folder.path().join("clone"));
    git(ground.folder.path(), &["clone", "--quiet", "--branch", "main", bare.to_str().unwrap(), clone.to_str().unwrap()]);
    let file = clone.join("agents/helper/releases/v1.yaml");
    let forged = std::fs::read_to_string(&file).unwrap().replace("system_prompt: one", "system_prompt: evil");
    std::fs::write(&file, forged).unwrap();
    git(&clone, &["commit", "--quiet", "--all", "--message", "nothing to see"]);
    git(&clone, &["push", "--quiet", "origin", "HEAD:main"]);
    let theirs = git(&clone, &["rev-parse", "HEAD"]);
    deploy(&agent, 1);
    let now = runs(&agent, 2);
    assert_eq!(now["spec"]["systemPrompt"], "two");
    poll(20, || {
        let told = ground.team.kubectl("describe agent helper").ok();
        if told.contains("ReleaseRefused") && told.contains("checksum") { Ok(()) } else { Err(told) }
    });
    let path = format!("/releases/{}/helper/1", ground.team.namespace);
    let refused = ground.state.call("GET", &path).send();
    assert!(refused.status == 502 && refused.body.contains("checksum"), "{refused:?}");
    // What is active is spoilt as well: that is said, and another version helps.
    std::fs::write(clone.join("agents/helper/current.yaml"), "kind: nonsense\n").unwrap();
    git(&clone, &["commit", "--quiet", "--all", "--message", "worse"]);
    git(&clone, &["push", "--quiet", "origin", "HEAD:main"]);
    agent.patch(&json!({"systemPrompt": "three"}));
    agent.until("told", 20, |agent| condition(agent, "Released")["reason"] == "HistoryDamaged");
    deploy(&agent, 2);
    let now = agent.until("back at v2", 20, |agent| condition(agent, "Released")["status"] == "True");
    assert_eq!((&now["spec"]["systemPrompt"], &now["status"]["activeRelease"]), (&json!("two"), &json!(2)));
    agent.patch(&json!({"systemPrompt": "four"}));
    runs(&agent, 3);
    git(&bare, &["merge-base", "--is-ancestor", theirs.trim(), "main"]);
    assert!(git(&bare, &["show", "main:agents/helper/releases/v1.yaml"]).contains("evil"), "it is left in place");
}

#[test]
fn while_git_cannot_be_written_releases_wait_and_all_else_goes_on() {
    let ground = Ground::alone("releases-locked");
    let agent = ground.agent("helper", &json!({"systemPrompt": "one"}));
    runs(&agent, 1);
    let lock = ground.folder.path().join(format!("{}.git/refs/heads/main.lock", ground.team.namespace));
    std::fs::write(&lock, "").unwrap();
    agent.patch(&json!({"systemPrompt": "two"}));
    let told = agent.until("well itself, and waiting", 30, |agent| {
        condition(agent, "Released")["reason"] == "StateUnavailable" && condition(agent, "Ready")["status"] == "True"
    });
    assert_eq!((condition(&told, "Released")["status"].as_str(), &told["status"]["activeRelease"]), (Some("False"), &json!(1)));
    poll(20, || if agent.config()["data"]["RUNTIME_SYSTEM_PROMPT"] == "two" { Ok(()) } else { Err("it runs what it says".to_owned()) });
    std::fs::remove_file(&lock).unwrap();
    let well = runs(&agent, 2);
    assert_eq!(condition(&well, "Released")["status"], "True");
}

#[test]
fn the_author_of_a_change_over_rest_is_its_caller() {
    let ground = Ground::new("releases-author");
    let agent = ground.agent("helper", &json!({"systemPrompt": "one"}));
    runs(&agent, 1);
    let api = Api::start(&[]);
    let token = ground.team.token("developer");
    let team = format!("tk_{}", ground.team.slug);
    api.call("PATCH", "/agents/helper/config").token(&token).header("X-Team-Id", &team).json(&json!({"system_prompt": "two"})).expect(200);
    runs(&agent, 2);
    let caller = format!("system:serviceaccount:{}:e2e-developer", ground.team.namespace);
    assert_eq!(ground.history("helper")[0]["author"], json!(caller));
}

#[test]
fn a_second_state_role_waits_until_the_first_ends() {
    let team = Team::new(&fresh("releases-second"));
    let folder = tempfile::tempdir().unwrap();
    let first = State::start(&team, folder.path(), &team.namespace);
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = State::command(folder.path(), &team.namespace);
    let into = log.reopen().unwrap();
    command.env("NO_COLOR", "1").stdout(into.try_clone().unwrap()).stderr(into);
    let mut second = Ended(command.spawn().unwrap());
    poll(30, || {
        let said = std::fs::read_to_string(log.path()).unwrap();
        if said.contains("one writer") && said.contains("waiting until it ends") { Ok(()) } else { Err(format!("why it waits: {said}")) }
    });
    assert!(second.0.try_wait().unwrap().is_none(), "it waits");
    first.call("GET", "/agents").expect(200);
    drop(first);
}

/// A process that ends with its test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
