//! The tool loop, with a scripted model and tools that are really called.

use std::io::Write;
use std::process::Command;

use serde_json::{Value, json};
use slipway_api::contract::tools::{BUILTINS, MEMORY, With};
use slipway_peers::{Server, free_port, mcp_time};

use crate::support::{Runtime, binary};

const TOOLS: &str = r#"[
    {"name": "calculator", "type": "builtin", "category": "general", "timeout": 5},
    {"name": "datetime", "type": "builtin", "category": "general", "timeout": 5},
    {"name": "memory", "type": "builtin", "category": "general", "timeout": 5}
]"#;

fn agent(more: &[(&str, &str)]) -> Runtime {
    let mut variables = vec![("RUNTIME_MODEL_ID", "stub-script"), ("RUNTIME_STRATEGY", "agent-react"), ("RUNTIME_TOOLS", TOOLS)];
    variables.extend(more);
    Runtime::with(&variables)
}

fn of<'a>(events: &'a [Value], type_: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == type_).collect()
}

#[test]
fn tools_are_called_at_once_and_the_model_hears_what_came_of_it() {
    let runtime = agent(&[]);
    let script = "call calculator {\"expression\": \"6*7\"}\ncall calculator {\"expression\": \"1/\"}\n\ntext So: {results}";
    let events = runtime.stream(&json!({"message": script}));
    let (starts, ends) = (of(&events, "tool_start"), of(&events, "tool_end"));
    assert_eq!((starts.len(), ends.len()), (2, 2), "{events:?}");
    assert_eq!((&starts[0]["name"], &starts[0]["arguments"]), (&json!("calculator"), &json!({"expression": "6*7"})));
    let fine = ends.iter().find(|end| end["is_error"] == false).unwrap();
    assert!(fine["content"].as_str().unwrap().contains("42") && fine["duration_ms"].is_u64(), "{fine}");
    assert!(ends.iter().any(|end| end["is_error"] == true), "{ends:?}");
    let done = of(&events, "done")[0];
    assert!(done["content"].as_str().unwrap().starts_with("So: ") && done["content"].as_str().unwrap().contains("42"), "{done}");
    assert_eq!(done["stop_reason"], "end_turn");
    let tokens: String = of(&events, "token").iter().map(|event| event["content"].as_str().unwrap()).collect();
    assert_eq!(tokens, done["content"].as_str().unwrap());
}

#[test]
fn a_tool_that_does_not_exist_is_told_to_the_model() {
    let runtime = agent(&[]);
    let events = runtime.stream(&json!({"message": "call nothing {}\n\ntext {results}"}));
    let end = of(&events, "tool_end")[0];
    assert_eq!(end["is_error"], true);
    // Nobody else hears of a name that the model made up.
    assert_eq!((&end["name"], &of(&events, "tool_start")[0]["name"]), (&json!("unknown"), &json!("unknown")));
    assert_eq!(runtime.metric(r#"tool_calls_total{tool="unknown",outcome="error"}"#), Some(1.0));
    assert!(of(&events, "done")[0]["content"].as_str().unwrap().contains("nothing"), "{events:?}");
}

#[test]
fn rounds_end_with_an_answer_without_tools() {
    let runtime = agent(&[("RUNTIME_MAX_ROUNDS", "2")]);
    let round = "call datetime {}\n\n";
    let answer = runtime.chat(&json!({"message": format!("{}text done", round.repeat(6))}));
    assert_eq!(answer["stop_reason"], "max_rounds", "{answer}");
}

#[test]
fn time_ends_a_turn_and_keeps_what_was_said() {
    let runtime = agent(&[("RUNTIME_TURN_SECONDS", "1")]);
    let answer = runtime.chat(&json!({"message": "sleep 100\ntokens 100", "conversation_id": "conv_slow"}));
    assert_eq!(answer["stop_reason"], "time_budget", "{answer}");
    let words = answer["output"].as_str().unwrap().split_whitespace().count();
    assert!((2..30).contains(&words), "{answer}");
    assert_eq!(runtime.get("/conversations/conv_slow")["messages"][1]["content"], answer["output"]);
}

#[test]
fn what_the_model_remembers_is_there_for_the_next_conversation() {
    let runtime = agent(&[]);
    runtime.chat(&json!({"message": "call remember {\"content\": \"Ada likes green tea\", \"category\": \"preference\"}\n\ntext ok"}));
    assert_eq!(runtime.get("/memory")["data"][0]["content"], "Ada likes green tea");
    let answer = runtime.chat(&json!({"message": "call search_memory {\"query\": \"green tea\"}\n\ntext {results}"}));
    assert!(answer["output"].as_str().unwrap().contains("Ada likes green tea"), "{answer}");
}

#[test]
fn a_round_has_so_many_calls_and_no_more_run_at_once() {
    let nap =
        json!([{"name": "nap", "type": "cli", "category": "general", "binary": "/usr/bin/sleep", "allowedCommands": ["1"], "timeout": 20}]);
    let runtime = agent(&[("RUNTIME_TOOLS", &nap.to_string())]);
    let events = runtime.stream(&json!({"message": format!("{}\ntext {{results}}", "call nap {}\n".repeat(70))}));
    let (mut running, mut most) = (0, 0);
    for event in &events {
        match event["type"].as_str() {
            Some("tool_start") => running += 1,
            Some("tool_end") => running -= 1,
            _ => {}
        }
        most = most.max(running);
    }
    assert_eq!((of(&events, "tool_start").len(), of(&events, "tool_end").len(), most), (64, 64, 16));
    assert!(of(&events, "tool_end").iter().all(|end| end["is_error"] == false), "{events:?}");
    let told = of(&events, "done")[0]["content"].as_str().unwrap();
    assert_eq!(told.matches("not called: one round may have 64 calls").count(), 6, "{told}");
}

/// A server with one tool that tells what came along with its call.
const MCP_SERVER: &str = r#"
import sys
from mcp.server.mcpserver import Context, MCPServer
server = MCPServer("showing")
@server.tool()
async def along(ctx: Context) -> str:
    "What came along."
    return repr(ctx.request_context.meta)
server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
"#;

#[test]
fn a_call_over_mcp_carries_the_callers_trace() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut script = tempfile::NamedTempFile::new().unwrap();
    script.write_all(MCP_SERVER.as_bytes()).unwrap();
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/mcp");
    let mut command = Command::new(&mcp_time()[0]);
    command.arg("-B").arg(script.path()).arg(port.to_string());
    let _server = Server::start(command, &url);
    let tools = json!([{"name": "show", "type": "mcp", "category": "general", "mcpEndpoint": url, "timeout": 20}]).to_string();
    let allow = format!("127.0.0.1:{port}");
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    // With spans of its own the agent puts the one of the call in the caller's place.
    for (endpoint, same) in [("", true), ("http://127.0.0.1:1", false)] {
        let runtime = agent(&[("RUNTIME_TOOLS", &tools), ("RUNTIME_EGRESS_ALLOW", &allow), ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]);
        let headers = format!("content-type: application/json\r\ntraceparent: {parent}\r\ntracestate: vendor=1\r\n");
        let (_, body) = runtime.send("POST /chat", &headers, &json!({"message": "call show_along {}\n\ntext {results}"}).to_string());
        assert!(body.contains(&format!("00-{TRACE}-")) && body.contains("vendor=1"), "{body}");
        assert_eq!(body.contains(&parent), same, "{body}");
    }
}

#[test]
fn a_simple_agent_has_no_tools() {
    let runtime = Runtime::with(&[("RUNTIME_MODEL_ID", "stub-script"), ("RUNTIME_TOOLS", TOOLS)]);
    let events = runtime.stream(&json!({"message": "text only words"}));
    assert!(of(&events, "tool_start").is_empty());
    assert_eq!(of(&events, "done")[0]["content"], "only words");
}

const SKILL: (&str, &str) = ("RUNTIME_SKILLS", r#"[{"name": "s", "description": "d", "path": "/none"}]"#);
const SEARCH: (&str, &str) = ("RUNTIME_SEARCH_URL", "http://search.example/search");

fn builtins(names: &[&str]) -> String {
    let tool = |name| json!({"name": name, "type": "builtin", "category": "general", "timeout": 5});
    names.iter().map(tool).collect::<Value>().to_string()
}

/// The operator judges by this list which Tools an agent can have.
#[test]
fn the_builtins_are_those_that_the_contract_lists() {
    let all = BUILTINS.map(|(name, _)| name);
    let runtime = agent(&[SKILL, SEARCH, ("RUNTIME_TOOLS", &builtins(&all))]);
    let answer = runtime.chat(&json!({"message": "call nothing {}\n\ntext {results}"}))["output"].clone();
    let (_, listed) = answer.as_str().unwrap().split_once("there are: ").unwrap_or_else(|| panic!("{answer}"));
    let mut found: Vec<_> = listed.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).filter(|name| !name.is_empty()).collect();
    let mut expected: Vec<_> = all.into_iter().filter(|name| *name != MEMORY).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "{answer}");
}

#[test]
fn a_builtin_needs_what_it_comes_with() {
    for (name, with) in BUILTINS {
        let (tool, beside) = (builtins(&[name]), builtins(&[name, MEMORY]));
        let alone = || binary().env("RUNTIME_TOOLS", &tool).env("RUNTIME_PORT", "0").output().unwrap().status.code();
        match with {
            With::Image => drop(Runtime::with(&[("RUNTIME_TOOLS", &tool)])),
            With::Search => {
                assert_eq!(alone(), Some(2), "{name}");
                Runtime::with(&[SEARCH, ("RUNTIME_TOOLS", &tool)]);
            }
            With::Memory => {
                assert_eq!(alone(), Some(2), "{name}");
                Runtime::with(&[("RUNTIME_TOOLS", &beside)]);
            }
            With::Skills => {
                assert_eq!(alone(), Some(2), "{name}");
                Runtime::with(&[SKILL, ("RUNTIME_TOOLS", &tool)]);
            }
        }
    }
}
