//! How the real binary ends when it cannot do what it was asked.

use std::net::TcpListener;

use crate::support::{Runtime, binary};

#[test]
fn all_faults_of_the_environment_are_told_with_exit_code_2() {
    let out =
        binary().envs([("RUNTIME_MODEL_TYPE", "hosted"), ("RUNTIME_STORAGE", "postgresql"), ("RUNTIME_TOOLS", "[{]")]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert_eq!(
        String::from_utf8(out.stderr).unwrap(),
        "slipway-runtime cannot run this agent:\n\
         - RUNTIME_MODEL_TYPE is \"hosted\"; supported: stub, ollama, openai, anthropic, google-ai, vertex-ai, bedrock\n\
         - RUNTIME_DATABASE_URL is missing; RUNTIME_STORAGE=postgresql needs postgresql://user@host:5432/database\n\
         - RUNTIME_TOOLS must be a JSON array of tools; it goes wrong at line 1 column 3\n"
    );
}

#[test]
fn every_room_tells_its_faults_in_the_same_message() {
    let faulty = [
        ("RUNTIME_MODEL_TYPE", "hosted", "RUNTIME_MODEL_TYPE"),
        ("RUNTIME_MODEL_ID", "large", ""),
        ("RUNTIME_CONTROL_PUBLIC_KEY", "x", "RUNTIME_CONTROL_PUBLIC_KEY"),
        ("RUNTIME_ACCESS_PUBLIC_KEY", "x", "RUNTIME_ACCESS_PUBLIC_KEY"),
        ("RUNTIME_MLFLOW_URI", "ftp://a", "RUNTIME_MLFLOW_URI"),
        ("RUNTIME_GUARDS", r#"["spell-check"]"#, "RUNTIME_GUARDS"),
        ("RUNTIME_BACKGROUND_MODEL", "stub:other", "RUNTIME_BACKGROUND_MODEL"),
        ("RUNTIME_EMBEDDING_MODEL", "none", "RUNTIME_EMBEDDING_MODEL"),
        ("RUNTIME_STORAGE", "postgresql", "RUNTIME_DATABASE_URL"),
        ("RUNTIME_EVAL_SAMPLE_RATE", "5", ""),
        ("RUNTIME_JUDGE_MODEL", "gpt-4o", "RUNTIME_JUDGE_MODEL"),
        ("RUNTIME_TOOLS", r#"[{"name": "t", "type": "builtin", "category": "general", "timeout": 5}]"#, "RUNTIME_TOOLS"),
    ];
    let out = binary().envs(faulty.map(|(name, value, _)| (name, value))).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let words = String::from_utf8(out.stderr).unwrap();
    let told: Vec<_> = words.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    for (_, _, name) in faulty {
        assert!(told.iter().any(|fault| fault.starts_with(name)), "{name} is not told:\n{words}");
    }
    assert_eq!(told.len(), 10, "what follows from another fault is none:\n{words}");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let out = binary().env("RUNTIME_PORT", &port).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let words = String::from_utf8(out.stderr).unwrap();
    assert!(words.contains(&format!("cannot listen on port {port} (RUNTIME_PORT)")), "{words}");
}

#[test]
fn an_idle_runtime_ends_at_once() {
    let mut runtime = Runtime::start();
    let _idle = runtime.connect();
    let (head, _) = runtime.send("GET /healthz", "", "");
    assert!(head.starts_with("http/1.1 200"), "{head}");
    runtime.terminate();
    assert_eq!(runtime.wait().code(), Some(0));
}

#[test]
fn arguments_are_help_version_or_a_mistake() {
    for (argument, code) in [("--help", 0), ("--version", 0), ("--port", 2)] {
        let out = binary().arg(argument).output().unwrap();
        assert_eq!(out.status.code(), Some(code), "{argument}");
        let words = if code == 0 { out.stdout } else { out.stderr };
        assert!(String::from_utf8(words).unwrap().contains("slipway-runtime"), "{argument}");
    }
}
