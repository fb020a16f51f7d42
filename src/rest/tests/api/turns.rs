//! A call takes its permit before its body is read.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use reqwest::Method;
use serde_json::json;
use slipway_rest::{Authentication, RateLimit, RateLimits, RestSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::{Api, settings};

/// The Service that the operator would create.
async fn service(api: &Api) {
    let agent = &api.cluster.objects("/agents/helper")[0];
    let owner = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "name": "helper", "uid": agent["metadata"]["uid"], "controller": true,
    });
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "helper", "ownerReferences": [owner]},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7", "selector": {"agents.slipway.dev/agent": "helper"}},
    }))
    .unwrap();
    let services: kube::Api<Service> = kube::Api::namespaced(api.cluster.client(), "team-a");
    services.create(&kube::api::PostParams::default(), &service).await.unwrap();
}

#[tokio::test]
async fn a_chat_beyond_the_limit_is_refused_before_its_body_has_come() {
    // An agent that accepts and never answers.
    let agent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let one = RateLimit { at_once: 1, per_second: 0, burst: 0 };
    let limits = RateLimits { agent: one, ..RateLimits::default() };
    let agent_address = Some(format!("http://{}", agent.local_addr().unwrap()));
    let api = Api::start(RestSettings { limits, agent_address, ..settings() }, Authentication::Off).await;
    assert_eq!(api.agent("helper", &[]).await.status, 201);
    let deployed = api.call(Method::POST, "/agents/helper/deploy", &[], Some(json!({}))).await;
    assert!(deployed.status.is_success(), "{}", deployed.body);
    service(&api).await;
    let chat = "POST /api/v1/agents/helper/chat HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n";
    let mut answers = Vec::new();
    let mut first = TcpStream::connect(api.address).await.unwrap();
    first.write_all(format!("{chat}content-length: 2\r\n\r\n{{").as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..3 {
        let mut more = TcpStream::connect(api.address).await.unwrap();
        more.write_all(format!("{chat}content-length: 1048576\r\n\r\n{{").as_bytes()).await.unwrap();
        let mut head = [0; 12];
        timeout(Duration::from_secs(10), more.read_exact(&mut head)).await.unwrap().unwrap();
        answers.push(String::from_utf8_lossy(&head).into_owned());
    }
    assert_eq!(answers, ["HTTP/1.1 429"; 3]);
}
