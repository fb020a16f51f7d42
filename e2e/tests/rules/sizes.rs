//! Sizes in bytes, which are too large to be written out: a letter takes up to four of them.

use serde_json::{Value, json};

use super::{accepted, manifest, refused};

const PROMPT: &str = "must have at most 120 KiB (122880 bytes), the most that reaches the agent";
const INSTRUCTIONS: &str = "must have at most 64 KiB (65536 bytes)";
const FILES: &str = "the files have more than 256 KiB together";
const TOGETHER: &str = "must have at most 120 KiB (122880 bytes) together, the most that reaches an agent";

/// The rules that this file tries.
pub(super) const RULES: [(&str, &str); 4] = [("Agent", PROMPT), ("Skill", INSTRUCTIONS), ("Skill", FILES), ("Tool", TOGETHER)];

fn with(kind: &str, fields: &Value) -> Value {
    let mut whole = manifest(kind, "large", "{}");
    let spec = whole["spec"].as_object_mut().unwrap();
    fields.as_object().unwrap().iter().for_each(|(name, value)| drop(spec.insert(name.clone(), value.clone())));
    whole
}

/// So many bytes in letters of two.
fn text(bytes: usize) -> String {
    "\u{e9}".repeat(bytes / 2) + &"x".repeat(bytes % 2)
}

#[test]
fn prompts_and_instructions() {
    let prompt = |bytes| with("Agent", &json!({"systemPrompt": text(bytes)}));
    accepted(&prompt(122_880));
    refused(&prompt(122_881), &["spec.systemPrompt", PROMPT]);
    let instructions = |bytes| with("Skill", &json!({"instructions": text(bytes)}));
    accepted(&instructions(65_536));
    refused(&instructions(65_537), &["spec.instructions", INSTRUCTIONS]);
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
}
