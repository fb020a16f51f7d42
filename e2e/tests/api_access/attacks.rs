//! Tokens that should open nothing, sent over the wire.

use serde_json::json;
use slipway_e2e::{Api, Team};
use slipway_peers::Issuer;

use super::callers::{bind, token};

fn status(api: &Api, token: &str) -> (u16, String) {
    let reply = api.call("GET", "/agents").token(token).send();
    (reply.status, reply.body)
}

#[test]
fn a_token_that_is_not_whole_opens_nothing() {
    let team = Team::new("attacks");
    let issuer = Issuer::start();
    let api = super::api(&issuer);
    let me = "attacks@example.com";
    bind(&team, "attacks", "viewer", &json!({"kind": "User", "name": me}));
    let good = token(&issuer, me, &json!({}));
    slipway_e2e::poll(10, || match status(&api, &good) {
        (200, _) => Ok(()),
        other => Err(format!("the good token should do: {other:?}")),
    });
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (_, claims) = signed.split_once('.').unwrap();
    for (what, bad) in [
        // {"alg":"none"}
        ("no algorithm", format!("eyJhbGciOiJub25lIn0.{claims}.")),
        // {"alg":"HS256"}
        ("an HMAC", format!("eyJhbGciOiJIUzI1NiJ9.{claims}.{signature}")),
        ("no signature", format!("{signed}.")),
        ("half a signature", format!("{signed}.{}", &signature[..signature.len() / 2])),
        ("more than a token", format!("{good}.{good}")),
        ("expired", token(&issuer, me, &json!({"exp": 1_700_000_000}))),
        ("another audience", token(&issuer, me, &json!({"aud": "kubernetes"}))),
        ("an address that was not verified", token(&issuer, me, &json!({"email_verified": false}))),
        ("the cluster's own name", token(&issuer, "system:admin", &json!({}))),
        ("another issuer, whom the cluster does not know either", token(&issuer, me, &json!({"iss": "https://elsewhere.example.com"}))),
        ("long", "x".repeat(40_000)),
    ] {
        let (status, body) = status(&api, &bad);
        assert!(status == 401 || (what == "long" && status == 431), "{what}: {status} {body}");
        assert!(!body.contains(signature), "{what}: a token is not repeated: {body}");
    }
    assert!(!api.log().contains(signature), "{}", api.log());
}

#[test]
fn without_the_issuer_the_clusters_own_tokens_still_do() {
    let team = Team::new("away");
    let issuer = Issuer::start();
    let api = super::api(&issuer);
    let (person, account) = (token(&issuer, "away@example.com", &json!({})), team.token("viewer"));
    // The keys were never asked for, and now nobody tells them.
    drop(issuer);
    let (code, body) = status(&api, &person);
    assert_eq!(code, 503, "{body}");
    let health = api.call("GET", "/health").token(&account).expect(200);
    assert_eq!((&health["status"], &health["dependencies"]["oidc"]["status"]), (&json!("degraded"), &json!("degraded")), "{health}");
    let list = api.call("GET", "/agents").token(&account).header("X-Team", &*team.slug);
    list.expect(200);
}
