//! What remains of a deleted team.

use reqwest::Method;
use serde_json::json;
use slipway_rest::Authentication;

use crate::{Api, settings};

const ADA: [(&str, &str); 2] = [("authorization", "Bearer ada@example.com"), ("x-team", "a")];

async fn with_agents() -> Api {
    let api = Api::start(settings(), Authentication::On(None)).await;
    for name in ["One", "Two", "Three"] {
        let made = api.call(Method::POST, "/agents", &ADA, Some(json!({"name": name, "framework": "custom"}))).await;
        assert_eq!(made.status, 201, "{}", made.body);
    }
    api
}

fn left(api: &Api) -> (usize, usize) {
    (api.cluster.objects("/v1/teams/a").len(), api.cluster.objects("/namespaces/team-a/agents/").len())
}

#[tokio::test]
async fn force_deletes_the_agents_with_their_team() {
    let api = with_agents().await;
    let refused = api.call(Method::DELETE, "/teams/a", &ADA, None).await;
    assert_eq!((refused.status.as_u16(), left(&api)), (409, (1, 3)), "{}", refused.body);
    let deleted = api.call(Method::DELETE, "/teams/a?force=true", &ADA, None).await;
    assert_eq!((deleted.status.as_u16(), &deleted.body["data"]["deleted"]), (200, &json!(true)), "{}", deleted.body);
    assert_eq!(left(&api), (0, 0));
}

#[tokio::test]
async fn force_takes_the_right_to_delete_agents_and_deletes_nothing_without() {
    let api = with_agents().await;
    api.cluster.refuse(&[("delete", "agents")]);
    let refused = api.call(Method::DELETE, "/teams/a?force=true", &ADA, None).await;
    assert_eq!((refused.status.as_u16(), left(&api)), (403, (1, 3)), "{}", refused.body);
}

#[tokio::test]
async fn a_team_whose_agents_gitops_owns_is_not_half_deleted() {
    let api = with_agents().await;
    let owned = json!({"metadata": {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}}});
    api.cluster.set("/apis/agents.slipway.dev/v1/namespaces/team-a/agents/two", owned);
    let refused = api.call(Method::DELETE, "/teams/a?force=true", &ADA, None).await;
    assert_eq!((refused.status.as_u16(), left(&api)), (409, (1, 3)), "{}", refused.body);
}
