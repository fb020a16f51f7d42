//! Who is sent where: ten thousand conversations by way of the installed REST. Two stubs tell the tracks apart, as one repeats the
//! message and the other plays it.

use serde_json::json;
use slipway_e2e::{Api, Team, TrackedChat, Tracks, fresh, poll};

use super::{is_share, serves};

const CONVERSATIONS: usize = 10_000;
/// The number of them that are asked again.
const REPEATED: usize = 1_000;
const WEIGHT: u32 = 30;
const RAISED: u32 = 60;
const TRACKS: Tracks = Tracks { message: "text hello", stable: "Echo: text hello", canary: "hello" };

#[test]
fn conversations_are_shared_by_weight_and_stay_where_they_are() {
    let Some(rest) = Api::installed() else { return };
    let team = Team::new(&fresh("canary-weights"));
    let agent = team.agent("helper", &json!({"storage": "memory"}));
    agent.ready();
    let token = team.token("developer");
    let call = |method: &str, path: &str| rest.call(method, &format!("/agents/helper{path}")).token(&token);
    let begun = call("POST", "/canary").json(&json!({"config": {"model_id": "stub-script", "weight": WEIGHT}})).expect(201);
    assert_eq!((&begun["data"]["enabled"], &begun["data"]["config"]["weight"]), (&json!(true), &json!(WEIGHT)), "{begun}");
    serves(&agent, WEIGHT);

    let chat = call("POST", "/chat");
    let first = TRACKS.ask(&chat, &vec![None; CONVERSATIONS]);
    has_share(&first, WEIGHT).unwrap_or_else(|why| panic!("{why}"));
    let again: Vec<_> = first.iter().take(REPEATED).cloned().collect();
    let ids: Vec<_> = again.iter().map(|(id, _)| Some(id.clone())).collect();
    assert!(again.iter().all(|(id, _)| id.starts_with("conv_")), "{again:?}");
    assert_eq!(moved(&again, &TRACKS.ask(&chat, &ids)), (0, 0), "nobody moves while the weight stays");

    // Those that the weight passes go to the canary, and come back when it falls again.
    for (weight, expected) in [(RAISED, None), (WEIGHT, Some(&again))] {
        call("PATCH", "/canary").json(&json!({"weight": weight})).expect(200);
        serves(&agent, weight);
        // REST's replicas hear of it a moment later, each for itself.
        poll(30, || {
            let now = TRACKS.ask(&chat, &ids);
            match expected {
                Some(expected) if moved(expected, &now) == (0, 0) => Ok(()),
                Some(expected) => Err(format!("all should be back where they were: {:?}", moved(expected, &now))),
                None => {
                    assert_eq!(moved(&again, &now).1, 0, "nobody leaves a canary whose weight rises");
                    has_share(&now, weight)
                }
            }
        });
    }
}

/// How many have moved to the canary, and how many from it.
fn moved(before: &[TrackedChat], now: &[TrackedChat]) -> (usize, usize) {
    assert!(before.iter().map(|(id, _)| id).eq(now.iter().map(|(id, _)| id)), "a conversation keeps its id");
    let pairs = || before.iter().zip(now).map(|((_, before), (_, now))| (*before, *now));
    (pairs().filter(|pair| *pair == (false, true)).count(), pairs().filter(|pair| *pair == (true, false)).count())
}

/// Whether the canary has had its share.
fn has_share(told: &[TrackedChat], weight: u32) -> Result<(), String> {
    is_share(told.iter().filter(|(_, is_canarys)| *is_canarys).count(), told.len(), weight)
}
