//! Operations that require more than one right.

use reqwest::Method;
use serde_json::json;
use slipway_rest::Authentication;

use crate::{Api, settings};

const ADA: [(&str, &str); 2] = [("authorization", "Bearer ada@example.com"), ("x-team", "a")];
const MEMBERS: &str = "/teams/a/members";

/// An API in which nobody has these rights.
async fn without(rights: &[(&'static str, &'static str)]) -> Api {
    let api = Api::start(settings(), Authentication::On(None)).await;
    api.cluster.refuse(rights);
    api
}

#[tokio::test]
async fn who_may_make_bindings_gives_no_role_beyond_their_own() {
    let (admins, developers, members) = (("delete", "agents"), ("create", "agents"), ("list", "agents"));
    let (bind, last) = (("bind", "clusterroles"), ("get", "last"));
    for (lacks, may_give) in [
        (&[bind][..], 3),
        (&[bind, admins], 2),
        (&[bind, admins, developers], 1),
        (&[bind, admins, developers, members], 0),
        // The last right of the last rule.
        (&[bind, last], 2),
        // The right to bind a role replaces the rights of the role.
        (&[admins, developers], 3),
    ] {
        let api = without(lacks).await;
        for (at, role) in ["viewer", "developer", "admin"].into_iter().enumerate() {
            let body = Some(json!({"email": format!("{role}@example.com"), "role": role}));
            let given = api.call(Method::POST, MEMBERS, &ADA, body).await;
            let (status, what) = (given.status.as_u16(), &given.body);
            assert_eq!(status, if at < may_give { 201 } else { 403 }, "{role} without {lacks:?}: {what}");
            assert!(status == 201 || what["message"].as_str().unwrap().contains("nobody gives more than they have"), "{what}");
        }
        assert_eq!(api.cluster.objects("/rolebindings/").len(), may_give);
    }
}

#[tokio::test]
async fn a_member_is_made_no_more_than_the_caller_is_and_only_by_who_may_also_take_away() {
    let eve = |role: &str| Some(json!({"email": "eve@example.com", "role": role}));
    for (lacks, role, status) in [
        (("delete", "agents"), "admin", 403),
        (("delete", "agents"), "developer", 200),
        (("delete", "rolebindings"), "developer", 403),
        // The role that she has.
        (("delete", "rolebindings"), "viewer", 403),
    ] {
        let api = without(&[lacks, ("bind", "clusterroles")]).await;
        let made = api.call(Method::POST, MEMBERS, &ADA, eve("viewer")).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let path = format!("{MEMBERS}/{}", made.body["data"]["id"].as_str().unwrap());
        let changed = api.call(Method::PATCH, &path, &ADA, Some(json!({"role": role}))).await;
        assert_eq!(changed.status, status, "{role} without {lacks:?}: {}", changed.body);
        let roles: Vec<_> = api.cluster.objects("/rolebindings/").iter().map(|binding| binding["roleRef"]["name"].clone()).collect();
        assert_eq!(roles, [json!(if status == 200 { "slipway-developer" } else { "slipway-viewer" })]);
    }
}
