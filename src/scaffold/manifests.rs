//! The manifests: `deploy/base` runs the platform's own image, `deploy/own-image` puts the project's program in its place, and
//! `deploy/evaluation` evaluates whichever runs.

use serde_json::{Map, Value, json};
use slipway_api::ToolSpec;
use slipway_api::agent::{Framework, Strategy};
use slipway_release::yaml;

use crate::File;
use crate::wanted::{Capability, WantedProject};

const API_VERSION: &str = "agents.slipway.dev/v1";
/// The score that a run has to reach.
const MIN_SCORE: i32 = 60;

pub(crate) fn files(wanted: &WantedProject) -> Vec<File> {
    let slug = wanted.slug.as_str();
    let mut base = vec![("agent.yaml".to_owned(), object("Agent", slug, &agent(wanted)))];
    for tool in &wanted.tools {
        base.push((format!("tool-{}.yaml", tool.slug), object("Tool", &tool.slug, &spec(&tool.spec))));
    }
    if wanted.has(Capability::Knowledge) {
        base.push(("knowledge-base.yaml".to_owned(), object("KnowledgeBase", slug, &knowledge_base(wanted))));
    }
    if wanted.has(Capability::Guardrails) {
        base.push(("policy.yaml".to_owned(), object("GuardrailPolicy", &limits(slug), &policy(wanted))));
    }
    if wanted.has(Capability::Evaluation) {
        base.push(("dataset.yaml".to_owned(), object("Dataset", slug, &dataset(wanted))));
    }
    base.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let names: Vec<&str> = base.iter().map(|(name, _)| name.as_str()).collect();
    let mut files = vec![
        manifest("deploy/kustomization.yaml", &kustomization(wanted, json!({"resources": ["base"]}))),
        manifest("deploy/base/kustomization.yaml", &kustomization(wanted, json!({"resources": names}))),
        manifest(
            "deploy/own-image/kustomization.yaml",
            &kustomization(wanted, json!({"resources": ["../base"], "patches": [{"path": "agent.yaml"}]})),
        ),
        manifest("deploy/own-image/agent.yaml", &object("Agent", slug, &own_image(wanted))),
    ];
    files.extend(base.iter().map(|(name, object)| manifest(&format!("deploy/base/{name}"), object)));
    if wanted.has(Capability::Evaluation) {
        let run = json!({"agent": slug, "dataset": slug, "minQualityScore": MIN_SCORE});
        files.push(manifest("deploy/evaluation/run.yaml", &object("EvaluationRun", &format!("{slug}-first"), &run)));
        files.push(manifest("deploy/evaluation/kustomization.yaml", &kustomization(wanted, json!({"resources": ["run.yaml"]}))));
    }
    files
}

fn manifest(path: &str, value: &Value) -> File {
    File::plain(path, yaml(value))
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn kustomization(wanted: &WantedProject, rest: Value) -> Value {
    let mut whole = json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": wanted.namespace});
    if let (Some(whole), Value::Object(rest)) = (whole.as_object_mut(), rest) {
        whole.extend(rest);
    }
    whole
}

/// A Tool's spec as JSON.
fn spec(spec: &ToolSpec) -> Value {
    serde_json::to_value(spec).unwrap_or_default()
}

/// The policy's name: an agent may be named default, a policy may not.
fn limits(slug: &str) -> String {
    format!("{slug}-limits")
}

fn agent(wanted: &WantedProject) -> Value {
    let strategy = if wanted.tools.is_empty() { Strategy::Simple } else { Strategy::AgentReact };
    let mut spec = json!({
        "name": wanted.name,
        // The platform's image; deploy/own-image names what the program was built with.
        "framework": Framework::Custom,
        "strategy": strategy,
        "modelType": wanted.model_type,
        "modelId": wanted.model_id,
        "systemPrompt": wanted.prompt(),
    });
    let governance = governance(wanted);
    let parts = [
        ("description", wanted.description.as_ref().map(|about| json!(about))),
        ("tools", list(wanted.tools.iter().map(|tool| tool.slug.as_str()))),
        ("knowledgeBases", wanted.has(Capability::Knowledge).then(|| json!([wanted.slug]))),
        ("governance", (!governance.is_empty()).then_some(Value::Object(governance))),
    ];
    if let Some(spec) = spec.as_object_mut() {
        spec.extend(parts.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))));
    }
    spec
}

/// None of an empty list.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> Option<Value> {
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| json!(names))
}

fn governance(wanted: &WantedProject) -> Map<String, Value> {
    let mut governance = Map::new();
    if wanted.has(Capability::Guardrails) {
        governance.insert("guards".to_owned(), json!(["pii-detection", "secrets-scanner"]));
        governance.insert("policies".to_owned(), json!(["default", limits(&wanted.slug)]));
    }
    if wanted.has(Capability::Evaluation) {
        governance.insert("evalDataset".to_owned(), json!(wanted.slug));
    }
    governance
}

/// What the overlay changes of the agent.
fn own_image(wanted: &WantedProject) -> Value {
    json!({
        "framework": wanted.framework,
        "strategy": Strategy::Custom,
        "image": wanted.image,
        "resources": {
            "requests": {"cpu": "50m", "memory": "96Mi"},
            "limits": {"memory": if wanted.framework == Framework::Crewai { "1Gi" } else { "512Mi" }},
        },
    })
}

fn policy(wanted: &WantedProject) -> Value {
    json!({
        // A display name has 128 characters.
        "name": format!("Limits of {}", wanted.slug),
        "description": "Tokens of an answer, and what a day may cost. warning reports what goes beyond; critical refuses it.",
        "severity": "warning",
        "rules": [
            {"type": "max_tokens", "operator": "lt", "value": "4096"},
            {"type": "max_cost_per_day", "operator": "lt", "value": "10.00"},
        ],
    })
}

fn knowledge_base(wanted: &WantedProject) -> Value {
    json!({"name": wanted.slug, "description": format!("What {} answers from.", wanted.slug)})
}

/// Five cases that a model should pass, and that the stub passes, whose answers repeat the question.
fn dataset(wanted: &WantedProject) -> Value {
    let purpose = match &wanted.description {
        Some(about) => format!("You are meant for this: {about} Say in one sentence what you can do."),
        None => "Say in one sentence what you can do.".to_owned(),
    };
    json!({
        "agent": wanted.slug,
        "description": format!("What {} should be able to answer. Replace these by questions of the people that it is for.", wanted.slug),
        "cases": [
            {"input": purpose},
            {"input": format!("Repeat this sentence: {} is ready.", wanted.name), "expectedOutput": format!("{} is ready.", wanted.name)},
            {"input": "Which number is larger, 17 or 25? Answer with that number.", "expectedOutput": "25"},
            {"input": "Which of these is a fruit: the hammer or the apple? Answer in one word.", "expectedOutput": "apple"},
            {
                "input": "On which day is the office closed?",
                "context": "The office opens at nine in the morning. The office is closed on Sundays.",
                "expectedOutput": "The office is closed on Sundays.",
            },
        ],
    })
}
