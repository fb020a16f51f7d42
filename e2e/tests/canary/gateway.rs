//! A Gateway before an agent that asks for one: real, and other people's. It weighs the tracks of a canary, and all of it goes with the
//! kinds, comes back with them, and ends with the canary.

use std::sync::mpsc::{self, TryRecvError};
use std::thread;

use serde_json::{Value, json};
use slipway_e2e::{Agent, Call, DataPlane, Kinds, Team, condition, fresh, kubectl, platform, poll, until};
use slipway_peers::skip;

use super::{ended, is_share, serves, standing};

const REQUESTS: usize = 10_000;
const WEIGHT: u32 = 30;
const RAISED: u32 = 60;
/// People who talk at once.
const CALLERS: usize = 8;
const WARNING: &str = "without REST's rights, limits and conversation ids";

/// One repeats the message, the other plays it.
const STABLE: &str = "Echo: text hello";
const CANARY: &str = "hello";

#[test]
fn a_gateway_weighs_the_canary_of_an_agent_that_asks_for_it() {
    if platform::setting("SLIPWAY_GATEWAY").is_none() {
        skip("the installed manager knows no Gateway");
        return;
    }
    let team = Team::new(&fresh("canary-gateway"));
    let agent = team.agent("helper", &json!({"storage": "memory", "expose": "gateway"}));
    let private = team.agent("private", &json!({"storage": "memory", "replicas": 0}));
    agent.ready();
    let Some(kinds) = Kinds::of_gateways() else {
        skip("the cluster's kinds of the Gateway API are somebody else's");
        return;
    };
    kinds.remove();
    exposed(&agent, "GatewayKindsMissing");

    // They come late, and an agent that waits for them need not be touched.
    kinds.install();
    let plane = DataPlane::start().unwrap();
    exposed(&agent, "RouteProgrammed");
    let hostname = plane.hostname(&team.slug, "helper");
    let chat = plane.call(&hostname, "POST", "/chat").json(&json!({"message": "text hello"}));
    poll(30, || answer(&chat).map(|answer| assert_eq!(answer, STABLE)));
    let unasked = plane.call(&plane.hostname(&team.slug, "private"), "GET", "/").send();
    assert_eq!(unasked.status, 404, "an agent that does not ask has no route: {unasked:?}");
    assert!(condition(&private.get(), "Exposed").is_null());
    confined(&team);

    agent.patch(&json!({"canary": {"enabled": true, "weight": WEIGHT, "modelId": "stub-script"}}));
    serves(&agent, WEIGHT);
    weighs(&agent, &chat, WEIGHT, REQUESTS);
    carries(&agent, true);

    // What somebody else makes of the route is put back.
    team.kubectl("patch httproute helper --type=json -p")
        .arg(json!([{"op": "replace", "path": "/spec/rules/0/backendRefs/1/weight", "value": 99}]))
        .ok();
    route(&agent, &shares(WEIGHT));

    kinds.remove();
    exposed(&agent, "GatewayKindsMissing");
    carries(&agent, false);
    assert_eq!(standing(&agent.get())["weight"], WEIGHT, "the others that send the canary its share go on");
    kinds.install();
    // The Gateway itself went with its kind.
    drop(plane);
    kubectl("wait namespace/e2e-gateways --for=delete --timeout=60s").run();
    let plane = DataPlane::start().unwrap();
    let chat = plane.call(&hostname, "POST", "/chat").json(&json!({"message": "text hello"}));
    agent.patch(&json!({"canary": {"weight": RAISED}}));
    serves(&agent, RAISED);
    weighs(&agent, &chat, RAISED, REQUESTS / 10);

    // Nobody is sent to a canary that has ended, and nobody is lost meanwhile.
    agent.patch(&json!({"canary": null}));
    let lost = losses(&agent, &chat);
    assert_eq!(lost, Vec::<String>::new());
    route(&agent, &json!([{"name": "helper", "port": 8000, "weight": 1}]));
    poll(30, || (0..20).try_for_each(|_| answer(&chat).and_then(|said| is(&said, STABLE))));

    agent.patch(&json!({"expose": null}));
    agent.until("without a route", 60, |found| condition(found, "Exposed").is_null());
    poll(30, || match chat.send().status {
        404 => Ok(()),
        status => Err(format!("the Gateway should know the agent no more, and answers {status}")),
    });
    assert!(team.get("httproute/helper").is_null());
}

/// What the agent says by way of the Gateway.
fn answer(chat: &Call) -> Result<String, String> {
    let reply = chat.try_send().map_err(|e| format!("the Gateway should answer: {e}"))?;
    if reply.status != 200 {
        return Err(format!("the Gateway should lead to the agent: {reply:?}"));
    }
    reply.json()["output"].as_str().map(str::to_owned).ok_or_else(|| format!("no output in {reply:?}"))
}

fn is(said: &str, expected: &str) -> Result<(), String> {
    if said == expected { Ok(()) } else { Err(format!("{expected:?} should be said, not {said:?}")) }
}

/// Waits until the condition says that, and that everybody is warned.
#[track_caller]
fn exposed(agent: &Agent, reason: &str) {
    let found = agent.until(&format!("told {reason}"), 90, |found| condition(found, "Exposed")["reason"] == reason);
    let told = condition(&found, "Exposed");
    assert!(told["message"].as_str().is_some_and(|message| message.ends_with(WARNING)), "{told:#}");
    assert_eq!(told["status"] == "True", reason == "RouteProgrammed", "{told:#}");
}

/// Waits until the status says whether the Gateway has the canary's share.
#[track_caller]
fn carries(agent: &Agent, carries: bool) {
    agent.until(&format!("told that a Gateway carries its weight: {carries}"), 60, |found| {
        let told = standing(found)["carriers"].as_array().cloned().unwrap_or_default();
        let of = |name: &str| told.iter().find(|carrier| carrier["name"] == name).map(|carrier| carrier["carries"] == true);
        (of("rest"), of("gateway"), of("mesh")) == (Some(true), Some(carries), Some(false))
    });
}

fn shares(weight: u32) -> Value {
    json!([{"name": "helper-primary", "port": 8000, "weight": 100 - weight}, {"name": "helper-canary", "port": 8000, "weight": weight}])
}

/// Waits until the agent's route leads there.
#[track_caller]
fn route(agent: &Agent, backends: &Value) {
    until(&format!("httproutes -n {} --field-selector metadata.name=helper", agent.team.namespace), 60, |routes| {
        let rules = routes.first().map(|route| route["spec"]["rules"].clone()).unwrap_or_default();
        let found = rules[0]["backendRefs"].as_array().into_iter().flatten();
        let found: Vec<_> = found.map(|to| json!({"name": to["name"], "port": to["port"], "weight": to["weight"]})).collect();
        if json!(found) == *backends { Ok(()) } else { Err(format!("the route should lead to {backends}, and does to {found:?}")) }
    });
}

/// This number of requests by way of the Gateway, of which the canary has its share within four standard deviations.
#[track_caller]
fn weighs(agent: &Agent, chat: &Call, weight: u32, requests: usize) {
    route(agent, &shares(weight));
    let has_share = |requests: usize| is_share(ask(chat, requests)?, requests, weight);
    // The Gateway hears of it a moment after its API server has.
    poll(60, || has_share(REQUESTS / 20));
    has_share(requests).unwrap_or_else(|why| panic!("{why}"));
}

/// How many of these chats the canary has answered.
fn ask(chat: &Call, requests: usize) -> Result<usize, String> {
    thread::scope(|scope| {
        let one = || match answer(chat)?.as_str() {
            CANARY => Ok(1),
            STABLE => Ok(0),
            said => Err(format!("neither stub says {said:?}")),
        };
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| scope.spawn(move || (caller..requests).step_by(CALLERS).map(|_| one()).sum::<Result<usize, String>>()))
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    })
}

/// Talks to the agent until nothing is left of its canary; what went wrong meanwhile.
#[track_caller]
fn losses(agent: &Agent, chat: &Call) -> Vec<String> {
    thread::scope(|scope| {
        // Dropped when this fails too, so that the one who talks ends.
        let (goes_on, ends) = mpsc::channel::<()>();
        let talk = scope.spawn(move || {
            let mut lost = Vec::new();
            while ends.try_recv() == Err(TryRecvError::Empty) {
                lost.extend(answer(chat).err());
            }
            lost
        });
        ended(agent);
        drop(goes_on);
        talk.join().unwrap()
    })
}

/// Whatever its roles allow, the manager writes no routes outside of teams' namespaces.
#[track_caller]
fn confined(team: &Team) {
    let route =
        |name: &str| json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name}, "spec": {}});
    let manager = "--as=system:serviceaccount:slipway-system:slipway-manager";
    let refused = kubectl(format!("create -n default {manager} -f -")).input(route("stray")).refused();
    assert!(refused.contains("the Slipway manager writes team-* namespaces"), "{refused}");
    team.kubectl(format!("create {manager} --dry-run=server -f -")).input(route("stray")).ok();
}
