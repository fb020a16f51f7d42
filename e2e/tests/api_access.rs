//! Who may call REST, and for which team.

use slipway_e2e::{Api, Team};

#[test]
fn a_call_needs_a_token_and_a_role() {
    let team = Team::new("access");
    let api = Api::start(&[]);
    let refused = api.call("GET", "/agents").send();
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Bearer"), "{refused:?}");
    assert_eq!(refused.json()["error"], "Unauthorized");
    let list = api.call("GET", "/agents").token(&team.token("viewer")).expect(200);
    assert!(list["data"].is_array(), "{list}");
    api.call("GET", "/agents").token("nobody's").expect(401);
}
