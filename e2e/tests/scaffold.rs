//! Projects of `POST /scaffold`, as a developer uses them: unpacked, tested, deployed as they are, evaluated, and deployed
//! with an image of their own. `hack/test scaffold` tries all five frameworks, the others two.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Reply, Team, condition};
use slipway_peers::repository;

use crate::evaluations::run_until;

const NAME: &str = "weather-helper";
/// CrewAI and its like take long to load on a machine that does much else.
const STARTS_WITHIN: u64 = 180;

fn asked(framework: &str) -> Value {
    json!({
        "name": "Weather Helper", "description": "Tells people how the weather is.", "framework": framework,
        "capabilities": ["streaming", "tools", "memory", "guardrails", "evaluation", "metrics", "ci"],
        "tools": [{"name": "clock", "type": "http", "endpoint": "https://clock.example.com/{zone}", "parameters": [{"name": "zone", "type": "string"}]}],
    })
}

fn scaffolded(api: &Api, framework: &str) -> Reply {
    api.call("POST", "/scaffold").json(&asked(framework)).send()
}

/// The project's folder, by another reader of archives than our writer.
fn unpacked(reply: &Reply, into: &Path) -> PathBuf {
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/zip"), "{}", reply.body);
    assert_eq!(reply.header("content-disposition"), "attachment; filename=\"weather-helper.zip\"");
    let archive = into.join("project.zip");
    fs::write(&archive, &reply.bytes).unwrap();
    let read = Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&archive).arg(into).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    into.join(NAME)
}

/// The Python that has what the project needs; hack/test makes it.
fn python(framework: &str) -> PathBuf {
    repository().join(".local/scaffold").join(framework).join("bin/python")
}

#[track_caller]
fn passes(command: &mut Command) -> String {
    let ran = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{command:?}: {said}");
    said
}

/// A run of the project's dataset, under a name of its own, to its end.
#[track_caller]
fn evaluated(team: &Team, project: &Path, name: &str) {
    let run = fs::read_to_string(project.join("deploy/evaluation/run.yaml")).unwrap().replace("weather-helper-first", name);
    team.kubectl("create -f -").input(run).ok();
    let found = run_until(team, name, "at its end", 300, |run| {
        ["Completed", "Failed", "Cancelled"].iter().any(|phase| run["status"]["phase"] == *phase)
    });
    let status = &found["status"];
    assert_eq!(
        (&status["phase"], &status["totalCases"], &status["provider"], &status["passed"]),
        (&json!("Completed"), &json!(5), &json!("heuristic"), &json!(true)),
        "{status:#}"
    );
}

/// What every caller of an agent does.
fn talks(agent: &Agent<'_>) {
    let chat = agent.post("/chat", &json!({"message": "hello there"})).json();
    assert!(chat["output"].as_str().is_some_and(|output| output.contains("hello there")), "{chat:#}");
    let stream = agent.post("/chat/stream", &json!({"message": "hello there"})).body;
    assert!(stream.contains(r#""type":"done""#) || stream.contains(r#""type": "done""#), "{stream}");
    let asked = json!({"model": NAME, "messages": [{"role": "user", "content": "hello there"}]});
    let completion = agent.post("/v1/chat/completions", &asked).json();
    assert!(completion["choices"][0]["message"]["content"].as_str().is_some_and(|text| text.contains("hello there")), "{completion:#}");
}

fn works(framework: &str) {
    let team = Team::new(&format!("scaffold-{framework}"));
    let folder = tempfile::tempdir().unwrap();
    let api = Api::of(&team);
    let reply = scaffolded(&api, framework);
    assert_eq!(reply.bytes, scaffolded(&api, framework).bytes, "the same request is the same project");
    let project = unpacked(&reply, folder.path());

    let said = passes(Command::new(python(framework)).args(["-m", "unittest"]).current_dir(&project));
    assert!(said.contains("\nOK"), "{said}");

    team.kubectl(format!("apply -k {}", project.join("deploy").display())).ok();
    let agent = Agent { team: &team, name: NAME.to_owned() };
    agent.ready();
    talks(&agent);
    evaluated(&team, &project, "of-the-platforms-image");

    // The name has a part that is the team's, so that tests beside each other build images of their own.
    let image = format!("{NAME}-{}:0.1.0", team.namespace);
    passes(Command::new(repository().join("hack/image")).arg(&project).arg(&image));
    let overlay = project.join("deploy/own-image/agent.yaml");
    let patch = fs::read_to_string(&overlay).unwrap();
    assert!(patch.contains("weather-helper:0.1.0"), "{patch}");
    fs::write(&overlay, patch.replace("weather-helper:0.1.0", &image)).unwrap();
    team.kubectl(format!("apply -k {}", project.join("deploy/own-image").display())).ok();
    agent.until("running its own image", STARTS_WITHIN, |agent| condition(agent, "Ready")["status"] == "True");
    let container = &agent.deployment()["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&container["image"], &agent.get()["spec"]["framework"]), (&json!(image), &json!(framework)));
    talks(&agent);
    evaluated(&team, &project, "of-its-own-image");
}

#[test]
fn a_project_without_a_framework_works() {
    works("custom");
}

#[test]
fn a_project_with_langchain_works() {
    works("langchain");
}

#[test]
#[ignore = "hack/test scaffold tries it"]
fn a_project_with_crewai_works() {
    works("crewai");
}

#[test]
#[ignore = "hack/test scaffold tries it"]
fn a_project_with_autogen_works() {
    works("autogen");
}

#[test]
#[ignore = "hack/test scaffold tries it"]
fn a_project_with_adk_works() {
    works("adk");
}

#[test]
fn a_tool_of_the_team_is_copied_and_one_of_another_is_not() {
    let (team, folder) = (Team::new("scaffold-tools"), tempfile::tempdir().unwrap());
    let other = team.beside("scaffold-others");
    let spec = json!({"name": "get_time", "type": "http", "endpoint": "https://clock.example.com/time"});
    team.tool("clock", &spec);
    other.tool("secret-clock", &spec);
    let api = Api::of(&team);
    let named = |tool: &str| {
        let mut body = asked("custom");
        body["tools"] = json!([tool]);
        api.call("POST", "/scaffold").json(&body).send()
    };
    let project = unpacked(&named("clock"), folder.path());
    let manifest = fs::read_to_string(project.join("deploy/base/tool-clock.yaml")).unwrap();
    assert!(manifest.contains("https://clock.example.com/time"), "{manifest}");
    let refused = named("secret-clock");
    assert_eq!(refused.status, 400);
    assert!(
        refused.json()["message"].as_str().is_some_and(|words| words.starts_with("tools[0]: there is no tool secret-clock")),
        "{}",
        refused.body
    );
}
