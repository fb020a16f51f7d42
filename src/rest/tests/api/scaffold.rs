//! `POST /scaffold`: nothing is written to the cluster, and a Tool is copied for users who may read it.

use reqwest::Method;
use serde_json::{Value, json};
use slipway_rest::Authentication;

use crate::{Api, ApiAnswer, settings};

const ADA: [(&str, &str); 2] = [("authorization", "Bearer ada@example.com"), ("x-team", "a")];

/// An API in which nobody has these rights, with a Tool called clock.
async fn without(rights: &[(&'static str, &'static str)]) -> Api {
    let api = Api::start(settings(), Authentication::On(None)).await;
    let spec = json!({"name": "get_time", "type": "http", "endpoint": "https://clock.example.com/time"});
    let tool =
        json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Tool", "metadata": {"name": "clock", "namespace": "team-a"}, "spec": spec});
    api.cluster.make("/apis/agents.slipway.dev/v1/namespaces/team-a/tools", tool);
    api.cluster.refuse(rights);
    api
}

async fn scaffolded(api: &Api, tools: Value) -> ApiAnswer {
    let body = json!({"name": "Helper", "framework": "autogen", "tools": tools});
    api.call(Method::POST, "/scaffold", &ADA, Some(body)).await
}

#[tokio::test]
async fn a_project_is_an_archive_and_nothing_in_the_cluster() {
    let api = without(&[]).await;
    let made = scaffolded(&api, json!(["clock"])).await;
    assert_eq!(made.status, 200, "{}", made.body);
    for (name, value) in
        [("content-type", "application/zip"), ("content-disposition", "attachment; filename=\"helper.zip\""), ("x-slipway-scaffold", "1")]
    {
        assert_eq!(made.headers[name], value);
    }
    assert!(api.cluster.writers("").is_empty(), "{:?}", api.cluster.writers(""));
    let metrics = api.rest.metrics();
    assert!(metrics.contains(r#"slipway_rest_scaffolds_total{framework="autogen"} 1"#), "{metrics}");
}

#[tokio::test]
async fn it_takes_the_right_to_create_agents_and_to_read_tools() {
    for (lacks, tools, status, words) in [
        (("create", "agents"), json!([]), 403, "create agents"),
        (("get", "tools"), json!([]), 200, ""),
        (("get", "tools"), json!(["clock"]), 400, "tools[0]: there is no tool clock in this team"),
        (("list", "tools"), json!(["clock"]), 200, ""),
        (("list", "tools"), json!(["clock", "watch"]), 400, "tools[1]: there is no tool watch in this team"),
        (("list", "tools"), json!(["clock", "clock"]), 400, "tools[1]: tool clock is there twice"),
        (("list", "tools"), json!(["../secrets/x"]), 400, "tools[0]: there is no tool"),
    ] {
        let api = without(&[lacks]).await;
        let answer = scaffolded(&api, tools.clone()).await;
        assert_eq!(answer.status, status, "{tools} without {lacks:?}: {}", answer.body);
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{tools} without {lacks:?}: {message}");
    }
}
