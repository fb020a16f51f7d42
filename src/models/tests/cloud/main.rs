//! Models of two clouds with the identity of the pod: by the token of its ServiceAccount, without a key. Moto plays Amazon's
//! token service; a server of ours plays the other issuers of credentials, and the vendors' own libraries get the same from it
//! with the same requests.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aws;
mod google;
#[path = "../embedding/replay.rs"]
mod replay;

use std::collections::BTreeMap;

use futures::StreamExt;
use slipway_models::{Message, ModelFault, ModelRequest, Piece, Provider, open};

/// The environment of a pod.
type Variables = BTreeMap<&'static str, String>;

async fn ask(provider: Provider, id: &str, variables: &Variables) -> Vec<Result<Piece, ModelFault>> {
    let model = open(provider, id, &|name| variables.get(name).cloned()).unwrap();
    model.answer(hello()).collect().await
}

fn hello() -> ModelRequest {
    ModelRequest { messages: vec![Message::user("hi")], ..ModelRequest::default() }
}

/// The output of a vendor's library in the same environment.
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
