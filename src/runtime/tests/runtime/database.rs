//! With a real PostgreSQL: what is kept outlives the process, and a database that goes away is waited for.

use std::io::{Read, Write};

use serde_json::{Value, json};
use slipway_peers::Postgres;

use crate::support::{Runtime, eventually, request};

fn agent(postgres: &Postgres, agent_id: &str, model: &str) -> Runtime {
    Runtime::with(&[
        ("RUNTIME_STORAGE", "postgresql"),
        ("RUNTIME_DATABASE_URL", &postgres.url()),
        ("RUNTIME_DATABASE_MIGRATE", "true"),
        ("RUNTIME_AGENT_ID", agent_id),
        ("RUNTIME_TEAM", "red"),
        ("RUNTIME_MODEL_ID", model),
    ])
}

#[test]
fn conversations_and_memories_outlive_the_process() {
    let postgres = Postgres::start();
    let first = agent(&postgres, "ag_1", "stub-echo");
    first.chat(&json!({"message": "remember me", "conversation_id": "conv_1"}));
    first.post("/memory", r#"{"content": "Ada prefers green tea"}"#);
    drop(first);
    let again = agent(&postgres, "ag_1", "stub-echo");
    assert_eq!(again.get("/conversations/conv_1")["messages"][1]["content"], "Echo: remember me");
    let status = again.get("/memory/status");
    assert_eq!((&status["count"], &status["persistent"]), (&json!(1), &json!(true)), "{status}");
    let other = agent(&postgres, "ag_2", "stub-echo");
    assert_eq!((&other.get("/conversations")["data"], &other.get("/memory")["data"]), (&json!([]), &json!([])));
}

#[test]
fn a_killed_process_leaves_a_conversation_that_goes_on() {
    let postgres = Postgres::start();
    let first = agent(&postgres, "ag_1", "stub-script");
    let mut stream = first.connect();
    let body = json!({"message": "sleep 100\ntokens 200", "conversation_id": "conv_1"}).to_string();
    stream.write_all(request("POST /chat/stream", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
    stream.read_exact(&mut [0; 300]).unwrap();
    let partial = eventually("a partial answer in the database", || {
        first.get("/conversations/conv_1/status")["partial"].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    });
    // SIGKILL: nobody could say goodbye.
    drop(first);
    let second = agent(&postgres, "ag_1", "stub-script");
    assert_eq!(second.get("/conversations/conv_1/status")["partial"], partial);
    assert_eq!(second.get("/conversations/conv_1")["messages"][0]["role"], "user");
}

#[test]
fn a_database_that_goes_away_is_a_503_and_comes_back_by_itself() {
    let postgres = Postgres::start();
    let runtime = agent(&postgres, "ag_1", "stub-echo");
    runtime.chat(&json!({"message": "hello", "conversation_id": "conv_1"}));
    postgres.stop();
    for line in ["GET /conversations", "GET /memory"] {
        let (head, body) = runtime.send(line, "", "");
        assert!(head.starts_with("http/1.1 503") && head.contains("\r\nretry-after: "), "{line}: {head}{body}");
    }
    let (head, body) = runtime.post("/chat", r#"{"message": "hello"}"#);
    assert!(head.starts_with("http/1.1 503") && !body.contains("postgres"), "{head}{body}");
    assert!(runtime.send("GET /healthz", "", "").0.starts_with("http/1.1 200"));
    postgres.restart();
    let list: Value = eventually("the database's return", || {
        let (head, body) = runtime.send("GET /conversations", "", "");
        head.starts_with("http/1.1 200").then(|| serde_json::from_str(&body).unwrap())
    });
    assert_eq!(list["data"][0]["id"], "conv_1");
}

#[test]
fn no_more_than_two_connections_are_held() {
    let postgres = Postgres::start();
    let runtime = agent(&postgres, "ag_1", "stub-echo");
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let runtime = &runtime;
            scope.spawn(move || {
                for turn in 0..5 {
                    runtime.chat(&json!({"message": "hello", "conversation_id": format!("conv_{worker}_{turn}")}));
                }
            });
        }
    });
    assert_eq!(runtime.get("/conversations")["data"].as_array().unwrap().len(), 40);
}
