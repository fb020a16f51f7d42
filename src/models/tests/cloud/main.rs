//! Models of two clouds that are asked in the name of the pod: without a key, by the token of its
//! service account. Amazon's token service is played by Moto; what else hands out credentials is
//! played by a server of ours, of which the vendors' own libraries take the same, asking the same.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aws;
mod google;
#[path = "../embedding/replay.rs"]
mod replay;

use std::collections::BTreeMap;

use futures::StreamExt;
use slipway_models::{Fault, Message, Piece, Provider, Request, open};

/// The environment of a pod.
type Variables = BTreeMap<&'static str, String>;

async fn ask(provider: Provider, id: &str, variables: &Variables) -> Vec<Result<Piece, Fault>> {
    let model = open(provider, id, &|name| variables.get(name).cloned()).unwrap();
    model.answer(hello()).collect().await
}

fn hello() -> Request {
    Request { messages: vec![Message::user("hi")], ..Request::default() }
}

/// What a vendor's library makes of the same environment.
async fn vendor(script: &str, variables: &Variables) -> String {
    let script = slipway_peers::repository().join("src/models/tests/cloud").join(script);
    let variables = variables.clone();
    let asked = tokio::task::spawn_blocking(move || {
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        slipway_peers::python(&script, &[], &variables)
    });
    let output = asked.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
