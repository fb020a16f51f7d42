//! The API over HTTP, with a stand-in for the cluster: concurrent calls, impersonation, rights, metrics. The e2e tests use
//! a real cluster.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod callbacks;
mod canary;
mod canary_gate;
mod cluster;
mod evaluations;
mod failures;
mod feedback;
mod integrations;
mod knowledge;
mod metrics;
mod platform;
mod policies;
mod races;
mod radar;
mod reads;
mod repositories;
mod rights;
mod scaffold;
mod specification;
mod stored_conversations;
mod teams;
mod tokens;
mod turns;
mod uploads;
mod writers;

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use slipway_cluster::Tasks;
use slipway_rest::{Authentication, Context, PlatformSettings, RateLimits, Rest, RestSettings, ScaffoldSettings, StateSettings};
use tokio::net::TcpListener;

use cluster::Cluster;

/// REST with team `a`.
pub(crate) struct Api {
    pub rest: Rest,
    pub cluster: Cluster,
    address: SocketAddr,
    http: reqwest::Client,
}

pub(crate) struct ApiAnswer {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

pub(crate) fn settings() -> RestSettings {
    RestSettings {
        platform_namespace: "slipway-system".to_owned(),
        watch_namespaces: Vec::new(),
        cluster_domain: "cluster.local".to_owned(),
        default_team: "a".to_owned(),
        in_cluster: false,
        // Nothing listens there.
        agent_address: Some("http://127.0.0.1:1".to_owned()),
        chat_time: Duration::from_secs(5),
        importer: Vec::new(),
        platform: PlatformSettings::default(),
        scaffold: ScaffoldSettings::default(),
        state: StateSettings::default(),
        impersonate: false,
        limits: RateLimits::default(),
        gate_fail_closed: Vec::new(),
        sign: None,
    }
}

impl Api {
    pub(crate) async fn start(settings: RestSettings, authentication: Authentication) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let cluster = Cluster::new();
        let rest = Rest::open(Context::new(cluster.client(), settings, authentication).unwrap(), &Tasks::default());
        while !rest.is_ready() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = slipway_http::ServerLimits { secret_paths: slipway_rest::SECRET_PATHS, ..slipway_http::ServerLimits::default() };
        let served = rest.clone();
        let handler = move |request| {
            let rest = served.clone();
            async move { rest.answer(request).await }
        };
        tokio::spawn(async move { slipway_http::serve(listener, limits, handler, std::future::pending()).await });
        Self { rest, cluster, address, http: reqwest::Client::new() }
    }

    /// Without authentication.
    pub(crate) async fn open() -> Self {
        Self::start(settings(), Authentication::Off).await
    }

    pub(crate) async fn call(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> ApiAnswer {
        let mut request = self.http.request(method, format!("http://{}/api/v1{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default();
        ApiAnswer { status, headers, body }
    }

    /// Creates an agent.
    pub(crate) async fn agent(&self, name: &str, headers: &[(&str, &str)]) -> ApiAnswer {
        self.call(Method::POST, "/agents", headers, Some(json!({"name": name, "framework": "custom"}))).await
    }
}
