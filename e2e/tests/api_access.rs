//! Who may call REST, and for which team, with tokens of an OIDC issuer and of ServiceAccounts. What each role may is in
//! `attack/matrix.rs`.

mod attacks;
mod callers;

use std::time::{Duration, Instant};

use serde_json::json;
use slipway_e2e::{Api, Team, poll};
use slipway_peers::Issuer;

use callers::{bind, token};

/// REST that takes this issuer's tokens, and calls people by their e-mail address.
fn api(issuer: &Issuer) -> Api {
    Api::start(&[
        ("SLIPWAY_OIDC_ISSUER", issuer.url()),
        ("SLIPWAY_OIDC_AUDIENCE", "slipway"),
        ("SLIPWAY_OIDC_USERNAME_CLAIM", "email"),
        ("SLIPWAY_OIDC_GROUPS_CLAIM", "groups"),
        ("SLIPWAY_OIDC_GROUPS_PREFIX", "oidc:"),
    ])
}

#[test]
fn a_call_needs_a_token_and_a_role() {
    let team = Team::new("access");
    let api = Api::start(&[]);
    let refused = api.call("GET", "/agents").send();
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Bearer"), "{refused:?}");
    assert_eq!(refused.json()["error"], "Unauthorized");
    let list = api.call("GET", "/agents").token(&team.token("viewer")).expect(200);
    assert!(list["data"].is_array(), "{list}");
    let refused = api.call("GET", "/agents").token("nobody's").send();
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Bearer error=\"invalid_token\""), "{refused:?}");
    let health = api.call("GET", "/health").token(&team.token("nobody")).expect(200);
    assert_eq!((&health["status"], &health["dependencies"]["cluster"]["status"]), (&json!("ok"), &json!("ok")), "{health}");
}

#[test]
fn the_team_is_the_tokens_else_the_headers_else_the_only_one() {
    let one = Team::new("choice");
    let two = one.beside("choice-two");
    let issuer = Issuer::start();
    let api = api(&issuer);
    bind(&one, "choice", "viewer", &json!({"kind": "User", "name": "choice@example.com"}));
    let bare = token(&issuer, "choice@example.com", &json!({}));
    let claimed = |slug: &str| token(&issuer, "choice@example.com", &json!({"team_id": format!("tk_{slug}")}));
    let call = |token: &str, headers: &[(&str, &str)]| {
        let call = headers.iter().fold(api.call("GET", "/agents").token(token), |call, (name, value)| call.header(name, *value));
        let reply = call.send();
        (reply.status, reply.json()["message"].as_str().unwrap_or_default().to_owned())
    };
    let id = |team: &Team| format!("tk_{}", team.slug);
    let (id_one, id_two) = (id(&one), id(&two));
    poll(10, || match call(&bare, &[]) {
        (200, _) => Ok(()),
        other => Err(format!("the only team should be taken, not {other:?}")),
    });
    for (what, outcome, status) in [
        ("a header that names it", call(&bare, &[("X-Team", &one.slug)]), 200),
        ("its id", call(&bare, &[("X-Team-Id", &id_one)]), 200),
        ("both", call(&bare, &[("X-Team-Id", &id_one), ("X-Team", &one.slug)]), 200),
        ("a foreign team", call(&bare, &[("X-Team", &two.slug)]), 403),
        ("a foreign team's id", call(&bare, &[("X-Team-Id", &id_two)]), 403),
        ("its own behind a foreign one", call(&bare, &[("X-Team", &two.slug), ("X-Team-Id", &id_one)]), 400),
        ("a team that does not exist", call(&bare, &[("X-Team", "e2e-nowhere")]), 403),
        ("a namespace that is no team's", call(&bare, &[("X-Team", "../kube-system")]), 403),
        ("an empty name", call(&bare, &[("X-Team", "")]), 400),
        ("a claim", call(&claimed(&one.slug), &[]), 200),
        ("a claim to a foreign team", call(&claimed(&two.slug), &[]), 403),
        ("a header besides the claim", call(&claimed(&one.slug), &[("X-Team", &two.slug)]), 403),
    ] {
        assert_eq!(outcome.0, status, "{what}: {}", outcome.1);
    }

    bind(&two, "choice", "viewer", &json!({"kind": "User", "name": "choice@example.com"}));
    poll(15, || match call(&bare, &[]) {
        (400, message) if message.contains("X-Team") => Ok(()),
        other => Err(format!("one of two teams should have to be named, not {other:?}")),
    });
    assert_eq!(call(&bare, &[("X-Team", &two.slug)]).0, 200);
    // A token for one team is for no other, whatever roles its owner has.
    assert_eq!(call(&claimed(&one.slug), &[("X-Team", &two.slug)]).0, 403);
    let path = format!("/teams/{}", two.slug);
    assert_eq!(api.call("GET", &path).token(&claimed(&one.slug)).send().status, 403);
}

#[test]
fn a_role_that_is_taken_away_is_gone_within_seconds() {
    let team = Team::new("revoked");
    let api = Api::start(&[]);
    let token = team.token("viewer");
    let call = || api.call("GET", "/agents").token(&token).header("X-Team", &*team.slug).send().status;
    assert_eq!(call(), 200);
    team.kubectl("delete rolebinding e2e-viewer").ok();
    let revoked = Instant::now();
    poll(10, || if call() == 403 { Ok(()) } else { Err("the role should be gone".to_owned()) });
    // Five seconds, and what a poll and a busy machine add.
    assert!(revoked.elapsed() < Duration::from_secs(7), "{:?}", revoked.elapsed());
    // The same for the account itself.
    team.kubectl("delete serviceaccount e2e-viewer").ok();
    poll(15, || if call() == 401 { Ok(()) } else { Err("the token should be void".to_owned()) });
}
