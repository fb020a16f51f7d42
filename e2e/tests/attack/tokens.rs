//! Tokens of Slipway's own accounts in the hands of another of its parts.

use slipway_e2e::attack::Installation;
use tempfile::TempDir;

/// The history's pod is taken over and waits for REST to call: what REST shows it must not open the API server.
#[test]
fn what_rest_shows_the_history_opens_nothing_else() {
    let slipway = Installation::shared();
    let folder = TempDir::new().unwrap_or_else(|e| panic!("no folder: {e}"));
    let state = slipway.state(folder.path());
    let (meant, plain) = (slipway.token_for("slipway-rest", "slipway-state"), slipway.token_of("slipway-rest"));
    state.whole("GET", "/agents").token(&meant).expect(200);
    state.whole("GET", "/agents").token(&plain).expect(401);
    state.whole("GET", "/agents").token(&slipway.token_for("slipway-manager", "slipway-state")).expect(401);
    let said = slipway.kubectl_with(&meant, "get teams").refused();
    assert!(said.contains("Unauthorized") || said.contains("must be logged in"), "{said}");
    slipway.kubectl_with(&plain, "get teams").ok();
    // What the chart mounts is the token that is shown.
    let rest = slipway.kubectl("get deployment slipway-rest -n slipway-system").json();
    let volumes = rest["spec"]["template"]["spec"]["volumes"].to_string();
    assert!(volumes.contains(r#""audience":"slipway-state""#), "{volumes}");
}
