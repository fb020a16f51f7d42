//! Step 32: a second project, which runs by its own image and is evaluated by a pod beside it.

use serde_json::{Value, json};
use slipway_e2e::{Agent, condition};

use crate::stage::{Stage, until};

const NAME: &str = "own-guide";

pub(crate) fn an_image_of_its_own(stage: &mut Stage) {
    stage.play("An image of its own");
    let agent = Agent { team: &stage.depot, name: NAME.to_owned() };
    let found = agent.get();
    assert_eq!(
        (&found["status"]["phase"], &condition(&found, "Ready")["status"]),
        (&json!("Running"), &json!("True")),
        "{:#}",
        found["status"]
    );
    let container = &agent.deployment()["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["imagePullPolicy"]), (&json!("own-guide:0.1.0"), &json!("Never")), "{container:#}");
    let asked = json!({"model": NAME, "messages": [{"role": "user", "content": "hello there"}]});
    let completion = agent.post("/v1/chat/completions", &asked).json();
    let text = completion["choices"][0]["message"]["content"].as_str().unwrap_or_default();
    assert!(text.contains("hello there"), "{completion:#}");

    let id = stage.file("own-run.txt");
    let run = stage.get("bob", "depot", &format!("/agents/{NAME}/evaluations/{}", id.trim()));
    assert_eq!((&run["status"], &run["provider"]), (&json!("completed"), &json!("heuristic")), "{run:#}");
    assert_eq!((&run["total_cases"], &run["finished_cases"], &run["passed"]), (&json!(5), &json!(5), &json!(true)), "{run:#}");
    until("the pod that evaluated is gone", 120, || {
        let jobs: Value = stage.depot.kubectl("get jobs").json();
        let left: Vec<&Value> = jobs["items"].as_array().into_iter().flatten().map(|job| &job["metadata"]["name"]).collect();
        let is_left = left.iter().any(|name| name.as_str().is_some_and(|name| name.starts_with("evaluate-")));
        if is_left { Err(json!(left)) } else { Ok(()) }
    });
}
