//! Steps 13 to 15: people talk to the agent, by REST and by OpenAI's client, and what it remembers.

use serde_json::{Value, json};

use crate::handbook::{PAGE, SENTENCE};
use crate::model::GUIDE_TOKENS;
use crate::stage::{GUIDE, Stage};

/// The events of a stream as the page has kept it: lines `data: <json>`.
#[track_caller]
fn events(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line} should be JSON: {error}"))).collect()
}

#[track_caller]
fn of<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    events.iter().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("there should be an event {kind}: {events:#?}"))
}

/// What a turn takes in which the model was called so often.
fn usage(calls: u64) -> Value {
    let (input, output) = GUIDE_TOKENS;
    json!({"input_tokens": calls * input, "output_tokens": calls * output})
}

/// A stream whose words are those of its last event.
#[track_caller]
fn is_whole(events: &[Value], calls: u64) -> String {
    let tokens: String = events.iter().filter(|event| event["type"] == "token").filter_map(|event| event["content"].as_str()).collect();
    let done = events.last().cloned().unwrap_or_default();
    assert_eq!((&done["type"], done["content"].as_str()), (&json!("done"), Some(tokens.as_str())), "{events:#?}");
    assert_eq!(done["usage"], usage(calls), "{done:#}");
    assert!(done["conversation_id"].as_str().is_some_and(|id| id.starts_with("conv_")), "{done:#}");
    tokens
}

pub(crate) fn people_talk(stage: &mut Stage) {
    let before = stage.tide.heard().len();
    stage.play("People talk to it");
    let (first, second): (Value, Value) =
        (serde_json::from_str(&stage.file("first.json")).unwrap(), serde_json::from_str(&stage.file("second.json")).unwrap());
    for said in [&first["data"], &second["data"]] {
        assert_eq!(
            (&said["output"], &said["usage"], &said["stop_reason"]),
            (&json!("Harbor: Is the gate open?"), &usage(1), &json!("end_turn"))
        );
        assert!(said["trace_id"].as_str().is_some_and(|id| id.starts_with("tr_")), "{said:#}");
    }
    assert_ne!(first["data"]["conversation_id"], second["data"]["conversation_id"]);

    let told = events(&stage.file("handbook.txt"));
    let answer = is_whole(&told, 2);
    assert!(answer.starts_with("Harbor: ") && answer.contains(SENTENCE), "{answer}");
    let source = &of(&told, "sources")["sources"][0];
    assert_eq!((&source["page"], &source["filename"]), (&json!(PAGE), &json!("handbook.pdf")), "{source:#}");

    let told = events(&stage.file("tide.txt"));
    assert!(is_whole(&told, 2).contains("06:12"), "{told:#?}");
    let (start, end) = (of(&told, "tool_start"), of(&told, "tool_end"));
    assert_eq!((&start["name"], &start["arguments"]), (&json!("tide"), &json!({"port": "Old Quay"})), "{start:#}");
    assert_eq!((&end["name"], &end["is_error"], &end["id"]), (&json!("tide"), &json!(false), &start["id"]), "{end:#}");
    let heard: Vec<String> = stage.tide.heard().split_off(before).into_iter().map(|asked| asked.path).collect();
    assert_eq!(heard, ["/tides/Old%20Quay"], "the tool's server should have been asked once");

    assert_eq!(stage.call("vic", "harbor", "POST", &format!("/agents/{GUIDE}/chat")).json(&json!({"message": "x"})).send().status, 403);
    stage.facts.insert("bad trace", first["data"]["trace_id"].clone());
    stage.facts.insert("good trace", second["data"]["trace_id"].clone());
    stage.facts.insert("conversation", first["data"]["conversation_id"].clone());
}

pub(crate) fn by_openais_client(stage: &mut Stage) {
    stage.play("By OpenAI's client");
    let (input, output) = GUIDE_TOKENS;
    let said = stage.file("client.txt");
    let lines: Vec<&str> = said.lines().collect();
    let whole = format!("Harbor: Is the gate open? stop {input} {output}");
    let streamed = format!("Harbor: Is the gate open? {input} {output}");
    assert!(
        lines.len() == 3 && !lines[0].contains(' ') && lines[1] == whole && lines[2] == streamed,
        "one model, and the same twice: {said}"
    );
}

pub(crate) fn what_it_remembers(stage: &mut Stage) {
    stage.play("What it remembers");
    let of = |path: &str| stage.get("dev", "harbor", &format!("/agents/{GUIDE}{path}"));
    // Four by REST: OpenAI's client keeps its own.
    let conversations = of("/conversations");
    assert_eq!(conversations.as_array().map(Vec::len), Some(4), "{conversations:#}");
    let id = stage.fact("conversation").as_str().unwrap_or_default().to_owned();
    let one = of(&format!("/conversations/{id}"));
    let said: Vec<(&Value, &Value)> =
        one["messages"].as_array().into_iter().flatten().map(|message| (&message["role"], &message["content"])).collect();
    let expected = [(&json!("user"), &json!("Is the gate open?")), (&json!("assistant"), &json!("Harbor: Is the gate open?"))];
    assert_eq!((said.as_slice(), &one["message_count"]), (expected.as_slice(), &json!(2)), "{one:#}");
    let status = of(&format!("/conversations/{id}/status"));
    assert_eq!((&status["generating"], &status["partial"]), (&json!(false), &Value::Null), "{status:#}");
    assert!(of(&format!("/suggestions?conversation_id={id}"))["suggestions"].is_array());

    let memories = of("/memory");
    let memory = &memories[0];
    assert_eq!((&memory["content"], &memory["category"]), (&json!("Ann prefers the old quay"), &json!("preference")), "{memories:#}");
    let path = format!("/agents/{GUIDE}/memory/{}", memory["id"].as_str().unwrap_or_default());
    stage.call("dev", "harbor", "DELETE", &path).expect(200);
    assert_eq!((of("/memory"), of("/memory/status")["count"].clone()), (json!([]), json!(0)));
}
