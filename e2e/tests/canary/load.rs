//! People who go on talking while a canary is promoted and while another one is rolled back, by way of the installed REST: every
//! chat is answered, no stream breaks, and a conversation that a canary had goes on where it was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Call, Team, fresh, poll};

use super::{ended, serves};
use crate::autoscaling::Hush;
use crate::evaluations::needs_database;
use crate::upgrade::callers::{Caller, CallerReport};

/// Each asks some twenty times a second: fifty chats a second, and somewhat more.
const CALLERS: usize = 3;
const STREAMS: usize = 20;
/// Fewer a second would be no load.
const LEAST_PER_SECOND: f64 = 20.0;
const TOKENS: usize = 30;
const SAYS: &str = "still here";

#[test]
fn nobody_notices_a_promotion_or_a_rollback() {
    let Some(rest) = Api::installed() else { return };
    let team = Team::new(&fresh("canary-load"));
    if !needs_database() {
        return;
    }
    let agent = team.agent("helper", &json!({"modelId": "stub-script", "systemPrompt": "one"}));
    agent.ready();
    let token = team.token("developer");
    let call = |method: &str, path: &str| rest.call(method, &format!("/agents/helper{path}")).token(&token);
    let chat = call("POST", "/chat").json(&json!({"message": format!("text {SAYS}")}));
    poll(20, || match chat.send() {
        reply if reply.status == 200 => Ok(()),
        reply => Err(format!("a first chat should be answered: {reply:?}")),
    });
    let stream = call("POST", "/chat/stream").json(&json!({"message": format!("sleep 100\ntokens {TOKENS}")}));

    let begun = Instant::now();
    let by_rest: Vec<Caller> = (0..CALLERS).map(|_| Caller::of(chat.clone(), SAYS)).collect();
    let direct = Caller::of(agent.chat_call(&format!("text {SAYS}")), SAYS);
    let enough = AtomicBool::new(false);
    let streams: usize = thread::scope(|scope| {
        let listeners: Vec<_> = (0..STREAMS).map(|_| scope.spawn(|| listen(&stream, &enough))).collect();
        // Dropped when this fails too, so that those who listen end.
        let hush = Hush(&enough);
        promoted(&agent, &call);
        rolled_back(&agent, &call);
        drop(hush);
        listeners.into_iter().map(|listener| listener.join().unwrap()).sum()
    });
    let took = begun.elapsed();
    let told: Vec<CallerReport> = by_rest.into_iter().map(Caller::told).collect();
    for told in told.iter().chain([&direct.told()]) {
        assert!(told.faults.is_empty(), "{} of {} chats failed: {:#?}", told.faults.len(), told.answered + told.faults.len(), told.faults);
        assert_eq!(told.knocked_twice, 0, "{told:?}");
    }
    let chats = f64::from(told.iter().filter_map(|told| u32::try_from(told.answered).ok()).sum::<u32>());
    eprintln!("{chats} chats and {streams} streams in {took:?}");
    assert!(chats / took.as_secs_f64() >= LEAST_PER_SECOND, "{chats} chats in {took:?} are too few");
    assert!(streams >= STREAMS * 2, "{streams} streams in {took:?} are too few");
}

fn promoted(agent: &Agent, call: &impl Fn(&str, &str) -> Call) {
    begin(agent, call, "two", "kept_promoted");
    let answer = call("POST", "/canary/promote").expect(200);
    assert_eq!(answer["status"], "promoted", "{answer}");
    let found = ended(agent);
    assert_eq!(found["spec"]["systemPrompt"], "two", "what ran as the canary is the agent's now");
    goes_on(call, "kept_promoted");
}

fn rolled_back(agent: &Agent, call: &impl Fn(&str, &str) -> Call) {
    let before = agent.get()["spec"].clone();
    begin(agent, call, "three", "kept_rolled_back");
    let answer = call("POST", "/canary/rollback").expect(200);
    assert_eq!(answer["status"], "rolled_back", "{answer}");
    assert_eq!(ended(agent)["spec"], before, "nothing is left of it in the spec");
    goes_on(call, "kept_rolled_back");
}

/// A canary that has half of all conversations, and then every one, of which one is asked for again later.
fn begin(agent: &Agent, call: &impl Fn(&str, &str) -> Call, prompt: &str, conversation: &str) {
    call("POST", "/canary").json(&json!({"config": {"system_prompt": prompt, "weight": 50}})).expect(201);
    serves(agent, 50);
    call("PATCH", "/canary").json(&json!({"weight": 100})).expect(200);
    serves(agent, 100);
    say(call, conversation, "to the canary");
}

fn say(call: &impl Fn(&str, &str) -> Call, conversation: &str, text: &str) {
    let body = json!({"message": format!("text {text}"), "conversation_id": conversation});
    let said = call("POST", "/chat").json(&body).expect(200);
    assert_eq!((&said["data"]["output"], &said["data"]["conversation_id"]), (&json!(text), &json!(conversation)), "{said}");
}

/// The stable track has what was said to the canary, and what is said after it.
fn goes_on(call: &impl Fn(&str, &str) -> Call, conversation: &str) {
    say(call, conversation, "to the stable track");
    let found = call("GET", &format!("/conversations/{conversation}")).expect(200);
    let messages = found["data"]["messages"].as_array().unwrap();
    let contents: Vec<&Value> = messages.iter().map(|message| &message["content"]).collect();
    let expected = ["text to the canary", "to the canary", "text to the stable track", "to the stable track"];
    assert_eq!(contents, expected, "{found:#}");
}

/// Listens to one stream after the other, each of which comes to its end, and says how many there were.
fn listen(call: &Call, enough: &AtomicBool) -> usize {
    let mut whole = 0;
    while !enough.load(Ordering::Relaxed) {
        let mut stream = call.stream();
        assert_eq!(stream.status, 200, "stream {whole}");
        let mut heard: Vec<Value> = Vec::new();
        while let Some(sent) = stream.event(20) {
            heard.push(serde_json::from_str(&sent.data).unwrap_or_default());
        }
        let tokens = heard.iter().filter(|event| event["type"] == "token").count();
        let last = heard.last().map(|event| event["type"].clone()).unwrap_or_default();
        assert_eq!((tokens, last), (TOKENS, json!("done")), "stream {whole} broke: {heard:?}");
        whole += 1;
        thread::sleep(Duration::from_millis(10));
    }
    whole
}
