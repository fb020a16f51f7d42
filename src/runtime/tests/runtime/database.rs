//! With a real PostgreSQL: what is kept outlives the process, and a database that goes away is waited for.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_database::{Detail, Listed, Reader};
use slipway_peers::Postgres;

use crate::support::{Runtime, events, eventually, request};

fn agent(postgres: &Postgres, agent_id: &str, model: &str) -> Runtime {
    agent_with(postgres, agent_id, model, &[])
}

fn agent_with(postgres: &Postgres, agent_id: &str, model: &str, more: &[(&str, &str)]) -> Runtime {
    let url = postgres.url();
    let variables = [
        ("RUNTIME_STORAGE", "postgresql"),
        ("RUNTIME_DATABASE_URL", url.as_str()),
        ("RUNTIME_DATABASE_MIGRATE", "true"),
        ("RUNTIME_AGENT_ID", agent_id),
        ("RUNTIME_TEAM", "red"),
        ("RUNTIME_MODEL_ID", model),
    ];
    Runtime::with(&[&variables, more].concat())
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

/// REST shows the words of an agent that rests from the very same rows.
#[test]
fn what_a_reader_shows_is_what_the_runtime_answered() {
    let postgres = Postgres::start();
    let runtime = agent(&postgres, "ag_1", "stub-echo");
    for n in 0..3 {
        runtime.chat(&json!({"message": format!("Grüße {n} \u{0}"), "conversation_id": format!("conv_{n}")}));
    }
    runtime.post("/memory", r#"{"content": "Ada prefers green tea", "category": "preference"}"#);
    let cursor = runtime.get("/conversations?limit=2")["next_cursor"].as_str().unwrap().to_owned();
    let answered = [
        runtime.get("/conversations"),
        runtime.get("/conversations?limit=2"),
        runtime.get(&format!("/conversations?limit=2&cursor={cursor}")),
        runtime.get("/conversations?search=gr%C3%BC%C3%9Fe%201"),
        runtime.get("/memory"),
        runtime.get("/conversations/conv_1"),
    ];
    drop(runtime);
    let records = Reader::open(&postgres.url(), None, None).unwrap().of("red", "ag_1", "uid").unwrap();
    let read = async {
        [
            shown(&Listed::from(records.conversations(100, None, None).await.unwrap())),
            shown(&Listed::from(records.conversations(2, None, None).await.unwrap())),
            shown(&Listed::from(records.conversations(2, Some(&cursor), None).await.unwrap())),
            shown(&Listed::from(records.conversations(100, None, Some("grüße 1")).await.unwrap())),
            shown(&Listed::from(records.memories(100, None).await.unwrap())),
            shown(&Detail::from(records.conversation("conv_1").await.unwrap().unwrap())),
        ]
    };
    let read = tokio::runtime::Runtime::new().unwrap().block_on(read);
    assert_eq!(read, answered);
    assert_eq!((answered[0]["data"].as_array().unwrap().len(), answered[5]["messages"].as_array().unwrap().len()), (3, 2));
}

fn shown(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

#[test]
fn what_is_under_way_at_the_end_of_the_grace_period_is_told_and_kept_as_interrupted() {
    let postgres = Postgres::start();
    let mut first = agent_with(&postgres, "ag_1", "stub-script", &[("RUNTIME_SHUTDOWN_SECONDS", "4")]);
    let [mut stays, mut leaves] = ["conv_stays", "conv_leaves"].map(|id| {
        let mut stream = first.connect();
        let body = json!({"message": "sleep 50\ntokens 2000", "conversation_id": id}).to_string();
        stream.write_all(request("POST /chat/stream", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
        stream
    });
    leaves.read_exact(&mut [0; 300]).unwrap();
    drop(leaves);
    let began = Instant::now();
    first.terminate();
    let mut told = String::new();
    stays.read_to_string(&mut told).unwrap();
    let done = events(&told).pop().unwrap();
    assert_eq!((&done["type"], &done["stop_reason"]), (&json!("done"), &json!("cancelled")), "{done}");
    assert_eq!(first.wait().code(), Some(0));
    assert!((2..7).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    let second = agent(&postgres, "ag_1", "stub-echo");
    for id in ["conv_stays", "conv_leaves"] {
        let detail = second.get(&format!("/conversations/{id}"));
        let answer = &detail["messages"][1];
        assert!(answer["interrupted"] == true && answer["content"].as_str().unwrap().len() > 100, "{detail}");
        assert_eq!(second.chat(&json!({"message": "again", "conversation_id": id}))["output"], "Echo: again", "nobody holds it");
    }
    assert!(told.contains(second.get("/conversations/conv_stays")["messages"][1]["content"].as_str().unwrap()), "what was told is kept");
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

/// Sends a message; who drops the connection hangs up.
fn say(runtime: &Runtime, message: &str) -> TcpStream {
    let body = json!({"message": message, "conversation_id": "conv_1"}).to_string();
    let mut connection = runtime.connect();
    connection.write_all(request("POST /chat", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
    connection
}

fn waiting_for_a_lock(postgres: &Postgres) -> bool {
    postgres.psql("select count(*) from pg_stat_activity where application_name = 'slipway' and wait_event_type = 'Lock'").trim() == "1"
}

/// Held until there is something in `public.released`, and never for long.
const LOCKED: &str = "begin; lock table slipway.messages in access exclusive mode; do $$ begin for look in 1..500 loop
    exit when exists (select from public.released); perform pg_sleep(0.02); end loop; end $$; commit";

fn lock<'scope>(scope: &'scope thread::Scope<'scope, '_>, postgres: &'scope Postgres) {
    postgres.psql("create table public.released (n int)");
    scope.spawn(|| postgres.psql(LOCKED));
    eventually("a lock", || postgres.psql("select 1 from pg_locks where mode = 'AccessExclusiveLock'").contains('1').then_some(()));
}

fn release(postgres: &Postgres) {
    postgres.psql("insert into public.released values (1)");
}

#[test]
fn a_client_that_leaves_at_once_leaves_a_turn_that_is_finished() {
    let postgres = Postgres::start();
    let runtime = agent(&postgres, "ag_1", "stub-echo");
    runtime.get("/conversations");
    thread::scope(|scope| {
        lock(scope, &postgres);
        let connection = say(&runtime, "hello");
        eventually("a turn that waits", || waiting_for_a_lock(&postgres).then_some(()));
        drop(connection);
        release(&postgres);
    });
    eventually("its end", || {
        let (head, body) = runtime.send("GET /conversations/conv_1", "", "");
        (head.starts_with("http/1.1 200") && body.contains("Echo: hello")).then_some(())
    });
    assert_eq!(runtime.get("/conversations/conv_1/status")["generating"], false);
}

#[test]
fn a_beginning_whose_connection_breaks_is_made_once_more_and_counts_once() {
    let postgres = Postgres::start();
    let runtime = agent(&postgres, "ag_1", "stub-echo");
    runtime.get("/conversations");
    thread::scope(|scope| {
        lock(scope, &postgres);
        let asked = scope.spawn(|| runtime.chat(&json!({"message": "hello", "conversation_id": "conv_1"})));
        eventually("a turn that waits", || waiting_for_a_lock(&postgres).then_some(()));
        postgres
            .psql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'slipway' and wait_event_type = 'Lock'");
        release(&postgres);
        assert_eq!(asked.join().unwrap()["output"], "Echo: hello");
    });
    let detail = runtime.get("/conversations/conv_1");
    assert_eq!((&detail["message_count"], detail["messages"].as_array().map(Vec::len)), (&json!(2), Some(2)), "{detail}");
}

#[test]
fn an_answer_that_ends_while_the_database_is_away_is_kept_when_it_is_back() {
    let postgres = Postgres::start();
    let runtime = agent(&postgres, "ag_1", "stub-script");
    runtime.get("/conversations");
    thread::scope(|scope| {
        let asked = scope.spawn(|| runtime.chat(&json!({"message": "sleep 50\ntokens 80", "conversation_id": "conv_1"})));
        eventually("first words", || (postgres.psql("select count(*) from slipway.turns where partial <> ''").trim() == "1").then_some(()));
        postgres.stop();
        let answer = asked.join().unwrap();
        assert_eq!((&answer["saved"], &answer["stop_reason"]), (&json!(false), &json!("end_turn")), "{answer}");
    });
    postgres.restart();
    let kept = eventually("the answer", || {
        let (_, body) = runtime.send("GET /conversations/conv_1", "", "");
        serde_json::from_str::<Value>(&body).ok()?["messages"].get(1).cloned()
    });
    assert_eq!(kept["content"].as_str().unwrap().split_whitespace().count(), 80);
    assert!(kept.get("interrupted").is_none(), "{kept}");
}

#[test]
fn a_turn_writes_nothing_into_a_conversation_that_was_deleted_and_begun_anew() {
    let postgres = Postgres::start();
    let scripted = Runtime::with(&[("RUNTIME_MODEL_ID", "stub-script")]);
    for runtime in [agent(&postgres, "ag_1", "stub-script"), scripted] {
        // It takes 2 s, and the one after it 3 s.
        let _connection = say(&runtime, "sleep 50\ntokens 40");
        eventually("a conversation", || runtime.send("GET /conversations/conv_1", "", "").0.starts_with("http/1.1 200").then_some(()));
        assert!(runtime.send("DELETE /conversations/conv_1", "", "").0.starts_with("http/1.1 200"));
        let newer = runtime.chat(&json!({"message": "sleep 50\ntokens 60", "conversation_id": "conv_1"}));
        assert_eq!((&newer["stop_reason"], newer.get("saved")), (&json!("end_turn"), None), "{newer}");
        let detail = runtime.get("/conversations/conv_1");
        let words: Vec<_> = detail["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|said| said["content"].as_str().unwrap().split_whitespace().count())
            .collect();
        assert_eq!(words, [4, 60], "{detail}");
    }
}

#[test]
fn a_growing_answer_is_written_down_now_and_then() {
    let postgres = Postgres::start();
    let runtime = agent(&postgres, "ag_1", "stub-script");
    let began = Instant::now();
    runtime.chat(&json!({"message": "sleep 50\ntokens 80", "conversation_id": "conv_1"}));
    let took = began.elapsed();
    // Counted once the connection has been idle for a moment.
    thread::sleep(Duration::from_secs(2));
    runtime.get("/conversations");
    let writes = || postgres.psql("select n_tup_upd from pg_stat_user_tables where relname = 'turns'").trim().parse::<u32>().unwrap();
    let seen = eventually("counts", || Some(writes()).filter(|count| *count > 0));
    // After a second, and then every five.
    assert!(u64::from(seen) <= 1 + took.as_secs() / 5, "{seen} in an answer of {took:?}");
}
