//! The tool loop, with a scripted model and tools that are really called.

use serde_json::{Value, json};

use crate::support::Runtime;

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
fn a_simple_agent_has_no_tools() {
    let runtime = Runtime::with(&[("RUNTIME_MODEL_ID", "stub-script"), ("RUNTIME_TOOLS", TOOLS)]);
    let events = runtime.stream(&json!({"message": "text only words"}));
    assert!(of(&events, "tool_start").is_empty());
    assert_eq!(of(&events, "done")[0]["content"], "only words");
}
