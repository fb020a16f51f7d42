//! Tokens that should open nothing, sent over the wire.

use serde_json::{Value, json};
use slipway_e2e::{Api, Team, kubectl, platform, poll};
use slipway_peers::Issuer;

use super::callers::{Platform, bind, token};

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
    poll(10, || match status(&api, &good) {
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

/// A program of one team was given a platform admin's token with the claim `team_id`, so that it can do no harm elsewhere.
#[test]
fn a_token_for_one_team_is_not_for_the_platform() {
    let (team, issuer) = (Team::new("claimed"), Issuer::start());
    let other = team.beside("unclaimed");
    let api = super::api(&issuer);
    let name = "claimed-platform@example.com";
    let whole = token(&issuer, name, &json!({}));
    let claimed = token(&issuer, name, &json!({"team_id": format!("tk_{}", team.slug)}));
    let _platform = Platform::admin(&team, name);
    poll(10, || match api.call("GET", "/admin/agents").token(&whole).send() {
        reply if reply.status == 200 => Ok(()),
        reply => Err(format!("a platform admin should see all agents: {reply:?}")),
    });
    let third = format!("{}-third", team.slug);
    for (method, path, body) in [
        ("GET", "/admin/agents", Value::Null),
        ("POST", "/teams", json!({"name": "Third", "slug": third})),
        ("DELETE", &*format!("/teams/{}", other.slug), Value::Null),
        ("GET", "/platform/config", Value::Null),
        ("PUT", "/platform/config", json!({"mlflow_uri": "https://evil.example.com"})),
        ("POST", "/platform/config/test", Value::Null),
        ("POST", "/platform/sync", Value::Null),
    ] {
        let call = api.call(method, path).token(&claimed);
        let reply = if body.is_null() { call.send() } else { call.json(&body).send() };
        assert!(reply.status == 403 && reply.body.contains("alone"), "{method} {path}: {reply:?}");
    }
    let slugs = |token: &str| -> Vec<String> {
        let list = api.call("GET", "/teams").token(token).expect(200);
        list["data"].as_array().into_iter().flatten().filter_map(|team| team["slug"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(slugs(&claimed), std::slice::from_ref(&team.slug));
    assert!(slugs(&whole).contains(&other.slug));
    let left = kubectl("get teams -o name").ok();
    assert!(left.contains(&other.slug) && !left.contains(&third), "{left}");
    let config = kubectl(format!("get configmap slipway-platform -n {}", platform::NAMESPACE)).json();
    assert!(!config.to_string().contains("evil.example.com"), "{config}");
    // Its own team it may take away, as its owner may.
    api.call("DELETE", &format!("/teams/{}", team.slug)).token(&claimed).expect(200);
}

/// REST binds with its own account, which may give what the caller may not.
#[test]
fn who_may_make_bindings_gives_nobody_what_they_do_not_have() {
    let team = Team::new("escalate");
    let api = Api::start(&[]);
    let rbac = "rbac.authorization.k8s.io";
    let rule = json!({"apiGroups": [rbac], "resources": ["rolebindings"], "verbs": ["list", "create"]});
    team.apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": {"name": "binder"}, "rules": [rule]}));
    // There is no ClusterRole of this name: the account has nothing but what follows.
    let token = team.token("binder");
    let me = json!({"kind": "ServiceAccount", "name": "e2e-binder", "namespace": team.namespace});
    team.apply(&json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": "binder"},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "binder"}, "subjects": [me],
    }));
    let members = format!("/teams/{}/members", team.slug);
    poll(10, || match api.call("GET", &members).token(&token).send() {
        reply if reply.status == 200 => Ok(()),
        reply => Err(format!("the account should list members: {reply:?}")),
    });
    for role in ["admin", "developer", "viewer"] {
        let accomplice = json!({"email": "accomplice@example.com", "role": role});
        let refused = api.call("POST", &members).token(&token).json(&accomplice).send();
        assert_eq!(refused.status, 403, "{role}: {refused:?}");
        assert!(refused.body.contains("nobody gives more than they have"), "{role}: {refused:?}");
        // The same by kubectl.
        let account = format!("system:serviceaccount:{}:e2e-binder", team.namespace);
        let bind = format!("create rolebinding accomplice --clusterrole=slipway-{role} --user=accomplice@example.com --as={account}");
        let refused = team.kubectl(&bind).refused();
        assert!(refused.contains("attempting to grant RBAC permissions not currently held"), "{role}: {refused}");
    }
    assert_eq!(api.call("GET", &members).token(&token).expect(200)["data"], json!([]));
    // An admin's member is not theirs to change either: that takes a binding away.
    let admin = team.token("admin");
    let ada = api.call("POST", &members).token(&admin).json(&json!({"email": "ada@example.com", "role": "viewer"})).expect(201);
    let path = format!("{members}/{}", ada["data"]["id"].as_str().unwrap_or_default());
    for role in ["admin", "viewer"] {
        let refused = api.call("PATCH", &path).token(&token).json(&json!({"role": role})).send();
        assert_eq!(refused.status, 403, "{role}: {refused:?}");
    }
    assert_eq!(api.call("GET", &members).token(&admin).expect(200)["data"][0]["role"], "viewer");
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
