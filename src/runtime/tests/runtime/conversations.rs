//! Conversations: kept, listed, continued, and finished without anybody listening.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Runtime, eventually, request};

#[test]
fn a_conversation_is_kept_listed_searched_and_deleted() {
    let runtime = Runtime::start();
    runtime.chat(&json!({"message": "about cheese", "conversation_id": "conv_a"}));
    runtime.chat(&json!({"message": "about wine", "conversation_id": "conv_b"}));
    runtime.chat(&json!({"message": "more cheese", "conversation_id": "conv_a"}));
    let list = runtime.get("/conversations?limit=1");
    assert_eq!((&list["data"][0]["id"], &list["data"][0]["message_count"]), (&json!("conv_a"), &json!(4)), "{list}");
    let next = runtime.get(&format!("/conversations?limit=1&cursor={}", list["next_cursor"].as_str().unwrap()));
    assert_eq!((&next["data"][0]["id"], &next["data"][0]["title"]), (&json!("conv_b"), &json!("about wine")));
    assert_eq!(runtime.get("/conversations?search=WINE")["data"].as_array().unwrap().len(), 1);

    let detail = runtime.get("/conversations/conv_a");
    let said: Vec<_> = detail["messages"].as_array().unwrap().iter().map(|message| (&message["role"], &message["content"])).collect();
    let (user, assistant) = (json!("user"), json!("assistant"));
    let contents = ["about cheese", "Echo: about cheese", "more cheese", "Echo: more cheese"].map(Value::from);
    assert_eq!(said, [(&user, &contents[0]), (&assistant, &contents[1]), (&user, &contents[2]), (&assistant, &contents[3])]);
    assert_eq!(runtime.get("/conversations/conv_a/status"), json!({"generating": false, "partial": null}));

    let (head, _) = runtime.send("DELETE /conversations/conv_a", "", "");
    assert!(head.starts_with("http/1.1 200"), "{head}");
    for line in ["GET /conversations/conv_a", "DELETE /conversations/conv_a", "GET /conversations/conv_a/status"] {
        let (head, body) = runtime.send(line, "", "");
        assert!(head.starts_with("http/1.1 404") && body.contains("conv_a"), "{line}: {head}{body}");
    }
}

/// A model that takes its time: forty words, one every 50 ms.
const SLOW: &str = "sleep 50\ntokens 40";

fn scripted() -> Runtime {
    Runtime::with(&[("RUNTIME_MODEL_ID", "stub-script")])
}

#[test]
fn an_answer_is_finished_and_kept_though_its_client_leaves() {
    let runtime = scripted();
    let mut stream = runtime.connect();
    let body = json!({"message": SLOW, "conversation_id": "conv_left"}).to_string();
    stream.write_all(request("POST /chat/stream", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
    stream.read_exact(&mut [0; 300]).unwrap();
    drop(stream);
    let partial = eventually("a partial answer", || {
        let status = runtime.get("/conversations/conv_left/status");
        assert_eq!(status["generating"], true, "{status}");
        status["partial"].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    });
    let (head, body) = runtime.post("/chat", &json!({"message": "hello", "conversation_id": "conv_left"}).to_string());
    assert!(head.starts_with("http/1.1 409"), "{head}{body}");
    let answer = eventually("the end of the answer", || {
        let detail = runtime.get("/conversations/conv_left");
        detail["messages"].get(1).map(|message| message["content"].as_str().unwrap().to_owned())
    });
    assert!(answer.starts_with(&partial) && answer.split_whitespace().count() == 40, "{answer}");
}

#[test]
fn an_answer_that_nobody_listens_to_leaves_room_for_others() {
    let runtime = scripted();
    for _ in 0..3 {
        let mut stream = runtime.connect();
        let body = json!({"message": "tokens 1000000\ntokens 1000000"}).to_string();
        stream.write_all(request("POST /chat/stream", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
        stream.read_exact(&mut [0; 300]).unwrap();
    }
    let began = Instant::now();
    assert!(runtime.send("GET /healthz", "", "").0.starts_with("http/1.1 200"));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(runtime.metric("active_conversations"), Some(3.0), "they go on");
}

#[test]
fn an_answer_ends_with_its_client_where_that_was_asked_for() {
    let runtime = scripted();
    let mut stream = runtime.connect();
    let body = json!({"message": SLOW, "conversation_id": "conv_cancelled", "cancel_on_disconnect": true}).to_string();
    stream.write_all(request("POST /chat/stream", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
    stream.read_exact(&mut [0; 300]).unwrap();
    drop(stream);
    let answer = eventually("the end of the answer", || {
        let detail = runtime.get("/conversations/conv_cancelled");
        detail["messages"].get(1).map(|message| message["content"].as_str().unwrap().to_owned())
    });
    assert!((1..40).contains(&answer.split_whitespace().count()), "{answer}");
    assert_eq!(runtime.get("/conversations/conv_cancelled")["messages"][1]["interrupted"], true);
}

#[test]
fn what_cut_an_answer_off_is_seen_in_its_conversation() {
    let guarded = r#"["secrets-scanner"]"#;
    // In two halves, so that the key is the model's and not the caller's.
    let secret = "text AKIA\ntext Z7QX3K5M2N4P6R8T\ntext  and more words that come after it";
    for (variables, script, stop, interrupted) in [
        (&[][..], "tokens 3", "end_turn", false),
        (&[("RUNTIME_TURN_SECONDS", "1")], SLOW, "time_budget", true),
        (&[("RUNTIME_GUARDS", guarded)], secret, "guard", true),
        (&[], "tokens 3\nfail broken", "", true),
    ] {
        let runtime = Runtime::with(&[&[("RUNTIME_MODEL_ID", "stub-script")], variables].concat());
        let events = runtime.stream(&json!({"message": script, "conversation_id": "conv_cut"}));
        assert_eq!(events.last().unwrap()["stop_reason"].as_str().unwrap_or_default(), stop, "{events:?}");
        let detail = runtime.get("/conversations/conv_cut");
        let answer = &detail["messages"][1];
        assert_eq!((&answer["role"], answer["interrupted"] == true), (&json!("assistant"), interrupted), "{script}: {detail}");
        assert!(detail["messages"][0].get("interrupted").is_none() && detail["messages"].get(2).is_none(), "{detail}");
    }
}

#[test]
fn lists_have_one_bound_and_say_which() {
    let runtime = Runtime::start();
    for path in ["/conversations", "/memory"] {
        runtime.get(&format!("{path}?limit=200"));
        for limit in ["201", "0", "-1", "many"] {
            let (head, body) = runtime.send(&format!("GET {path}?limit={limit}"), "", "");
            assert!(
                head.starts_with("http/1.1 400") && body.contains("`limit` must be a number, 1 to 200"),
                "{path} {limit}: {head}{body}"
            );
        }
    }
}

#[test]
fn a_search_looks_into_what_was_said_too() {
    let runtime = Runtime::start();
    for (id, message) in [("conv_a", "First line\nand GRÜNE Wiesen"), ("conv_b", "Something else")] {
        runtime.chat(&json!({"message": message, "conversation_id": id}));
    }
    for (search, found) in
        [("gr%C3%BCne", &["conv_a"][..]), ("first", &["conv_a"]), ("echo", &["conv_b", "conv_a"]), ("%20", &["conv_b", "conv_a"])]
    {
        let list = runtime.get(&format!("/conversations?search={search}"));
        let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
        assert_eq!(ids, found, "{search}");
    }
}

#[test]
fn sigterm_waits_for_an_answer_that_nobody_listens_to() {
    let mut runtime = scripted();
    let mut stream = runtime.connect();
    let body = json!({"message": "sleep 50\ntokens 60"}).to_string();
    stream.write_all(request("POST /chat/stream", "content-type: application/json\r\n", &body).as_bytes()).unwrap();
    stream.read_exact(&mut [0; 300]).unwrap();
    drop(stream);
    let began = Instant::now();
    runtime.terminate();
    assert_eq!(runtime.wait().code(), Some(0));
    assert!(began.elapsed().as_millis() > 300, "{:?}", began.elapsed());
}

#[test]
fn memories_are_stored_found_and_forgotten() {
    let runtime = Runtime::start();
    assert_eq!(runtime.get("/memory/status")["count"], 0);
    let (head, body) = runtime.post("/memory", r#"{"content": "Ada prefers green tea", "category": "preference"}"#);
    assert!(head.starts_with("http/1.1 200"), "{head}{body}");
    let entry: Value = serde_json::from_str(&body).unwrap();
    runtime.post("/memory", r#"{"content": "The cluster runs in Zurich"}"#);
    runtime.post("/memory", r#"{"content": "ada prefers GREEN tea."}"#);
    assert_eq!(runtime.get("/memory")["data"].as_array().unwrap().len(), 2);
    let (_, found) = runtime.post("/memory/search", r#"{"query": "who likes green tea?", "top_k": 1}"#);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!((&found["results"][0]["id"], found["results"].as_array().unwrap().len()), (&entry["id"], 1), "{found}");
    let status = runtime.get("/memory/status");
    assert_eq!((&status["backend"], &status["persistent"], &status["search_type"]), (&json!("memory"), &json!(false), &json!("full-text")));
    let path = format!("DELETE /memory/{}", entry["id"].as_str().unwrap());
    assert!(runtime.send(&path, "", "").0.starts_with("http/1.1 200"));
    assert!(runtime.send(&path, "", "").0.starts_with("http/1.1 404"));
    for (path, body, word) in [
        ("/memory", r#"{"content": " "}"#, "`content`"),
        ("/memory", r#"{"content": "x", "category": "secret"}"#, "secret"),
        ("/memory/search", r#"{"query": ""}"#, "`query`"),
        ("/memory/search", r#"{"query": "x", "top_k": 0}"#, "`top_k`"),
    ] {
        let (head, answer) = runtime.post(path, body);
        assert!(head.starts_with("http/1.1 400") && answer.contains(word), "{body}: {head}{answer}");
    }
}
