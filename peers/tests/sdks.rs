//! The peers talk to each other: every server is asked by a client of its own kind.

use std::process::Command;

use slipway_peers::{conformance, everything, everything_sse, everything_stdio, mcp_time, minilm, mlflow, mock_llm, python};

fn lines(script: &str, arguments: &[&str]) -> Vec<String> {
    let script = slipway_peers::repository().join("peers/tests").join(script);
    let output = python(&script, arguments, &[]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {arguments:?}: {error}", script.display());
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn the_openai_sdk_is_answered_whole_and_streamed() {
    let server = mock_llm("{}");
    let url = format!("{}/v1", server.url());
    assert_eq!(lines("chat.py", &[&url]), ["Is anybody there?", "Is anybody there?", "anthropic"]);
}

#[test]
fn the_openai_server_answers_by_its_configuration() {
    let server = mock_llm(
        "rules:\n  - path: /v1/chat/completions\n    match: \"contains(body.messages[-1].content, 'there')\"\n    response:\n      status: 200\n      content: '{\"id\": \"1\", \"object\": \"chat.completion\", \"created\": 1, \"model\": \"m\", \"choices\": [{\"index\": 0, \"finish_reason\": \"stop\", \"message\": {\"role\": \"assistant\", \"content\": \"By the rule.\"}}]}'\n",
    );
    assert_eq!(lines("chat.py", &[&format!("{}/v1", server.url())])[0], "By the rule.");
}

#[test]
fn mcp_servers_name_their_tools_over_every_transport() {
    let (http, sse) = (everything(), everything_sse());
    let (stdio, time) = (everything_stdio(), mcp_time());
    let words = |command: &[String]| lines("tools.py", &command.iter().map(String::as_str).collect::<Vec<_>>());
    for tools in [lines("tools.py", &[http.url()]), lines("tools.py", &[sse.url()]), words(&stdio)] {
        assert!(tools.iter().any(|tool| tool == "echo"), "{tools:?}");
    }
    let tools = words(&time);
    assert!(tools.iter().any(|tool| tool == "get_current_time"), "{tools:?}");
}

#[test]
fn mlflow_keeps_metrics_and_traces() {
    let server = mlflow();
    assert_eq!(lines("experiment.py", &[server.url()]), ["0.75", "['invoke_agent']"]);
}

#[test]
fn the_conformance_suite_lists_its_scenarios() {
    let command = conformance();
    let output = Command::new(&command[0]).args(&command[1..]).arg("list").output().expect("it can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("initialize"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_embedding_model_has_its_weights_and_its_licence() {
    for name in ["model.safetensors", "tokenizer.json", "vocab.txt", "config.json", "LICENSE"] {
        assert!(minilm().join(name).metadata().is_ok_and(|file| file.len() > 0), "{name}");
    }
}
