//! The cluster goes away and comes back: callers are told, and the same process goes on.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use slipway_e2e::{Api, Proxy, Team, poll};

use super::assert_error;

/// A caller is not kept waiting longer than this for the news.
const LATEST: Duration = Duration::from_secs(20);

const CALLS: &[(&str, &str, &str)] = &[
    ("GET", "/agents", ""),
    ("GET", "/agents/helper", ""),
    ("POST", "/agents", r#"{"name": "Other", "framework": "custom"}"#),
    ("PATCH", "/agents/helper/config", r#"{"description": "x"}"#),
    ("POST", "/agents/helper/deploy", ""),
    ("DELETE", "/agents/helper", ""),
    ("POST", "/agents/helper/chat", r#"{"message": "x"}"#),
    ("GET", "/agents/helper/events", ""),
    ("GET", "/teams", ""),
    ("GET", "/tools", ""),
];

#[test]
fn without_the_cluster_callers_are_told_so_and_afterwards_all_goes_on() {
    let team = Team::new("contract-gone");
    let token = team.token("admin");
    let proxy = Proxy::before_the_cluster();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("kubeconfig");
    proxy.kubeconfig(&config);
    let api = Api::start(&[("KUBECONFIG", &config.display().to_string())]);
    api.call("POST", "/agents").token(&token).json(&json!({"name": "Helper", "framework": "custom"})).expect(201);
    for (how, turn) in [("cut", Proxy::cut as fn(&Proxy)), ("silent", Proxy::silence)] {
        turn(&proxy);
        // What was said of a token is believed for some seconds.
        poll(40, || {
            let reply = api.call("GET", "/agents").token(&token).send();
            (reply.status == 503).then_some(()).ok_or_else(|| format!("the way is {how}, and still: {reply:?}"))
        });
        // All at once: while the way is silent each of them has to wait.
        thread::scope(|scope| {
            for (method, path, body) in CALLS {
                let call = api.call(method, path).token(&token);
                let call = if body.is_empty() { call } else { call.body("application/json", *body) };
                scope.spawn(move || {
                    let begun = Instant::now();
                    let reply = call.send();
                    let what = format!("{method} {path}, the way being {how}");
                    assert_error(&what, &format!("/api/v1{path}"), &reply, 503, "the cluster does not answer");
                    assert!(reply.header("retry-after").parse::<u64>().is_ok(), "{what}: {reply:?}");
                    assert!(begun.elapsed() < LATEST, "{what} took {:?}", begun.elapsed());
                });
            }
        });
        assert_eq!(api.whole("GET", "/healthz").send().status, 200, "a restart would not bring the cluster back");
        for path in ["/docs", "/openapi.json"] {
            assert_eq!(api.call("GET", path).send().status, 200, "{path} needs no cluster");
        }
        team.agent(&format!("made-while-{how}"), &json!({"suspend": true}));
        proxy.open();
        poll(60, || {
            let reply = api.call("GET", "/agents").token(&token).send();
            let all = reply.status == 200 && reply.body.contains(&format!("made-while-{how}"));
            all.then_some(()).ok_or_else(|| format!("the way was {how}, and still: {reply:?}"))
        });
        api.call("PATCH", "/agents/helper/config").token(&token).json(&json!({"description": how})).expect(200);
    }
}
