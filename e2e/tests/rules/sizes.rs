//! Sizes in bytes, which are too large to be written out: a letter takes up to four of them.

use serde_json::{Value, json};

use super::{accepted, manifest, refused};

const PROMPT: &str = "must have at most 120 KiB (122880 bytes), the most that reaches the agent";
const INSTRUCTIONS: &str = "must have at most 64 KiB (65536 bytes)";
const FILES: &str = "the files have more than 256 KiB together";
const PATH: &str = "must have at most 1024 bytes";
const PREFIX: &str = "must have at most 1024 bytes, as keys of objects have";
const JQL: &str = "must have at most 4096 bytes";
const DESCRIPTION: &str = "must have at most 1024 bytes";
const HEADERS: &str = "must have at most 16 KiB (16384 bytes) together";
const VALUE: &str = "value: must have at most 2048 bytes";
const TOGETHER: &str = "must have at most 120 KiB (122880 bytes) together, the most that reaches an agent";

/// The rules that this file tries.
pub(super) const RULES: [(&str, &str); 14] = [
    ("Agent", PROMPT),
    ("Skill", INSTRUCTIONS),
    ("Skill", FILES),
    ("Tool", TOGETHER),
    ("KnowledgeBase", PATH),
    ("KnowledgeBase", PREFIX),
    ("KnowledgeBase", JQL),
    ("Ingestion", PATH),
    ("Ingestion", PREFIX),
    ("Ingestion", JQL),
    ("Integration", DESCRIPTION),
    ("Integration", HEADERS),
    ("GuardrailPolicy", DESCRIPTION),
    ("GuardrailPolicy", VALUE),
];

fn with(kind: &str, fields: &Value) -> Value {
    let mut whole = manifest(kind, "large", "{}");
    let spec = whole["spec"].as_object_mut().unwrap();
    fields.as_object().unwrap().iter().for_each(|(name, value)| drop(spec.insert(name.clone(), value.clone())));
    whole
}

/// A text of this number of bytes, in letters of two bytes.
fn text(bytes: usize) -> String {
    "\u{e9}".repeat(bytes / 2) + &"x".repeat(bytes % 2)
}

#[test]
fn prompts_and_instructions() {
    let prompt = |bytes| with("Agent", &json!({"systemPrompt": text(bytes)}));
    accepted(&prompt(122_880));
    refused(&prompt(122_881), &["spec.systemPrompt", PROMPT]);
    let with_canary = |bytes| {
        let canary = json!({"enabled": true, "weight": 10, "systemPrompt": text(bytes)});
        with("Agent", &json!({"systemPrompt": text(122_880), "canary": canary}))
    };
    accepted(&with_canary(122_880));
    refused(&with_canary(122_881), &["spec.canary.systemPrompt", PROMPT]);
    let instructions = |bytes| with("Skill", &json!({"instructions": text(bytes)}));
    accepted(&instructions(65_536));
    refused(&instructions(65_537), &["spec.instructions", INSTRUCTIONS]);
}

#[test]
fn sources_of_documents() {
    for (part, field, most, says, others) in [
        ("local", "path", 1024, PATH, json!({})),
        ("s3", "prefix", 1024, PREFIX, json!({"bucket": "docs"})),
        ("jira", "jql", 4096, JQL, json!({"baseUrl": "https://j"})),
        ("databricks", "path", 1024, PATH, json!({"host": "d"})),
    ] {
        let source = |bytes: usize| {
            let mut of = others.clone();
            of[field] = json!(text(bytes));
            if part == "local" { json!({"local": of}) } else { json!({part: of, "credentialsSecret": "login"}) }
        };
        let named = |bytes: usize| {
            let mut source = source(bytes);
            source["name"] = json!("a");
            with("KnowledgeBase", &json!({"sources": [source]}))
        };
        let once = |bytes: usize| with("Ingestion", &json!({"source": source(bytes)}));
        accepted(&named(most));
        refused(&named(most + 1), &[&format!("spec.sources[0].{part}.{field}"), says]);
        accepted(&once(most));
        refused(&once(most + 1), &[&format!("spec.source.{part}.{field}"), says]);
    }
}

#[test]
fn integrations() {
    let description = |bytes| with("Integration", &json!({"slack": {}, "description": text(bytes)}));
    accepted(&description(1024));
    refused(&description(1025), &["spec.description", DESCRIPTION]);
    let local = |bytes| with("Integration", &json!({"local": {"path": text(bytes)}}));
    accepted(&local(1024));
    refused(&local(1025), &["spec.local.path", PATH]);
    let headers = |more: usize| {
        let headers: serde_json::Map<String, Value> =
            (0..8).map(|at| (format!("X-{at}"), json!(text(2048)))).chain((0..more).map(|at| (format!("Y-{at}"), json!("x")))).collect();
        with("Integration", &json!({"webhook": {"url": "https://w.example/in", "headers": headers}}))
    };
    accepted(&headers(0));
    refused(&headers(1), &["spec.webhook.headers", HEADERS]);
}

#[test]
fn guardrail_policies() {
    let description = |bytes| with("GuardrailPolicy", &json!({"description": text(bytes)}));
    accepted(&description(1024));
    refused(&description(1025), &["spec.description", DESCRIPTION]);
    // The rules on values are met with the most and the longest of them.
    let rules = |type_: &str, operator: &str, value: &str, count: usize| {
        let rule = json!({"type": type_, "operator": operator, "value": value});
        with("GuardrailPolicy", &json!({"rules": vec![rule; count]}))
    };
    let list = |item: &str| format!("{}{item}", format!("{item},").repeat((2048 - item.len()) / (item.len() + 1)));
    for (type_, operator, value) in [
        ("blocked_topics", "contains", text(2048)),
        ("blocked_topics", "contains", list("a")),
        ("denied_tools", "contains", list("a")),
        ("allowed_models", "in", list("openai:*")),
        ("required_guards", "contains", list("pii-detection")),
    ] {
        accepted(&rules(type_, operator, &value, 16));
        refused(&rules(type_, operator, &value, 17), &["spec.rules", "16"]);
    }
    refused(&rules("blocked_topics", "contains", &text(2049), 1), &["spec.rules[0].value", VALUE]);
}

#[test]
fn what_counts_together() {
    let files = |first, second| with("Skill", &json!({"files": {"a": text(first), "b": text(second)}}));
    accepted(&files(128 * 1024, 128 * 1024));
    refused(&files(128 * 1024, 128 * 1024 + 1), &["spec.files", FILES]);
    let headers = |more: usize| {
        let whole = (0..30).map(|at| (format!("X-{at}"), json!(text(4096))));
        let headers: serde_json::Map<String, Value> = whole.chain((0..more).map(|at| (format!("Y-{at}"), json!("x")))).collect();
        with("Tool", &json!({"type": "http", "endpoint": "https://api.example.com", "headers": headers}))
    };
    accepted(&headers(0));
    refused(&headers(1), &["spec.headers", TOGETHER]);
    let commands = |more: usize| {
        let commands: Vec<String> = (0..120).map(|_| text(1024)).chain((0..more).map(|_| "x".to_owned())).collect();
        with("Tool", &json!({"type": "cli", "binary": "/bin/df", "allowedCommands": commands}))
    };
    accepted(&commands(0));
    refused(&commands(1), &["spec.allowedCommands", TOGETHER]);
    let parameters = |more: usize| {
        let lengths = (0..60).map(|_| 2048).chain((0..more).map(|_| 1));
        let parameter = |(at, length)| json!({"name": format!("p{at}"), "type": "string", "description": text(length)});
        with("Tool", &json!({"parameters": lengths.enumerate().map(parameter).collect::<Vec<_>>()}))
    };
    accepted(&parameters(0));
    refused(&parameters(1), &["spec.parameters", TOGETHER]);
}

/// The rule that compares each placeholder with each parameter is met with the most of both.
#[test]
fn the_longest_endpoint_with_the_most_parameters() {
    const UNDECLARED: &str = "endpoint: each placeholder must be declared in parameters under the same name";
    let tool = |last: &str, many: usize, endpoint: &str| {
        let names = (1..many).map(|at| format!("p{at:063}")).chain([last.to_owned()]);
        let parameters: Vec<Value> = names.map(|name| json!({"name": name, "type": "string"})).collect();
        with("Tool", &json!({"type": "http", "endpoint": endpoint, "parameters": parameters}))
    };
    let endpoint = |length: usize| {
        let begin = "https://api.example.com/";
        format!("{begin}{}{}", "{z}".repeat((length - begin.len()) / 3), "x".repeat((length - begin.len()) % 3))
    };
    accepted(&tool("z", 64, &endpoint(2048)));
    refused(&tool("y", 64, &endpoint(2048)), &[UNDECLARED]);
    refused(&tool("z", 64, &endpoint(2049)), &["spec.endpoint", "2048"]);
    refused(&tool("z", 65, &endpoint(2048)), &["spec.parameters", "64"]);
}
