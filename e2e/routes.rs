//! A Gateway of other people's, Traefik, as a process beside the cluster; and the kinds by which Gateways and meshes are told where
//! requests go. `hack/test cluster` fetches both into `.local/gateway`. Tests install kinds late and take them away early.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use slipway_peers::{Server, free_port, repository};

use crate::api::{Api, Call};
use crate::kubectl::kubectl;
use crate::platform;
use crate::watch::poll;

/// On definitions that a test has installed, and on what belongs to its Gateway.
const LABEL: &str = "e2e";
const OURS: &str = "routes";
const GATEWAY_CLASS: &str = "e2e";

#[track_caller]
fn folder() -> PathBuf {
    let folder = repository().join(".local/gateway");
    assert!(folder.exists(), "{} does not exist: hack/test cluster makes it", folder.display());
    folder
}

/// Definitions of kinds. They go with this value, and their objects with them.
pub struct Kinds(Vec<Value>);

impl Kinds {
    /// Those of the Gateway API; none where the cluster has them from somebody else.
    #[track_caller]
    pub fn of_gateways() -> Option<Self> {
        Self::of("gateway-api.yaml", |_| true)
    }

    /// Those of Istio by which it weighs requests, in the same way.
    #[track_caller]
    pub fn of_istio() -> Option<Self> {
        let wanted = ["virtualservices.networking.istio.io", "destinationrules.networking.istio.io"];
        Self::of("istio.yaml", |name| wanted.contains(&name))
    }

    #[track_caller]
    fn of(file: &str, is_wanted: impl Fn(&str) -> bool) -> Option<Self> {
        let path = folder().join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let documents = text.split("\n---\n").filter_map(|document| serde_yaml::from_str::<Value>(document).ok());
        let mut definitions: Vec<Value> = documents.filter(|found| found["metadata"]["name"].as_str().is_some_and(&is_wanted)).collect();
        assert!(!definitions.is_empty(), "{} has no definitions", path.display());
        for definition in &mut definitions {
            definition["metadata"]["labels"] = json!({LABEL: OURS});
        }
        // kubectl says nothing of none, the object of one, and a list of more.
        let there = kubectl(format!("get --ignore-not-found {}", names(&definitions))).json();
        let all = there["items"].as_array().cloned().unwrap_or_else(|| vec![there.clone()]);
        let is_others = |found: &Value| !found.is_null() && found["metadata"]["labels"][LABEL] != OURS;
        let is_free = !all.iter().any(is_others);
        // Not made for nothing, since its end takes the kinds away.
        is_free.then(|| Self(definitions))
    }

    /// Installs them, if they are not.
    #[track_caller]
    pub fn install(&self) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": self.0});
        kubectl("apply --server-side --force-conflicts -f -").input(list).ok();
        kubectl(format!("wait --for=condition=Established --timeout=60s {}", names(&self.0))).ok();
    }

    /// Takes them away, and with them all of their objects.
    #[track_caller]
    pub fn remove(&self) {
        kubectl(format!("delete --ignore-not-found --timeout=60s {}", names(&self.0))).ok();
    }
}

/// As kubectl takes them.
fn names(definitions: &[Value]) -> String {
    let names = definitions.iter().filter_map(|definition| definition["metadata"]["name"].as_str());
    names.map(|name| format!("crd/{name}")).collect::<Vec<_>>().join(" ")
}

impl Drop for Kinds {
    fn drop(&mut self) {
        kubectl(format!("delete --ignore-not-found --wait=false {}", names(&self.0))).run();
    }
}

/// The Gateway that the chart names, with what serves it. Its kinds must be installed. It ends with this value.
pub struct DataPlane {
    _server: Server,
    port: u16,
    namespace: String,
    settings: Value,
}

impl DataPlane {
    /// None where the chart of the installed manager names no Gateway.
    #[track_caller]
    pub fn start() -> Option<Self> {
        let settings: Value = serde_json::from_str(&platform::setting("SLIPWAY_GATEWAY")?).ok()?;
        let text = |field: &str| settings[field].as_str().unwrap_or_default().to_owned();
        let (port, ping, namespace) = (free_port(), free_port(), text("namespace"));
        let metadata = |name: &str| json!({"name": name, "labels": {LABEL: OURS}});
        let mut gateway = metadata(&text("name"));
        gateway["namespace"] = json!(namespace);
        // As docs/exposing.md has it, but for TLS.
        let teams = json!({"matchExpressions": [{"key": "agents.slipway.dev/team", "operator": "Exists"}]});
        let listener = json!({"name": "http", "protocol": "HTTP", "port": port, "allowedRoutes": {"namespaces": {"from": "Selector", "selector": teams}}});
        let group = "gateway.networking.k8s.io/v1";
        let all = json!([
            {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(&namespace)},
            {"apiVersion": group, "kind": "GatewayClass", "metadata": metadata(GATEWAY_CLASS), "spec": {"controllerName": "traefik.io/gateway-controller"}},
            {"apiVersion": group, "kind": "Gateway", "metadata": gateway, "spec": {"gatewayClassName": GATEWAY_CLASS, "listeners": [listener]}},
        ]);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": all});
        // New kinds are discovered a moment later, and the namespace of an earlier one may be on its way out.
        poll(90, || match kubectl("apply -f -").input(&list).run() {
            outcome if outcome.code == Some(0) => Ok(()),
            outcome => Err(format!("there should be a Gateway: {}", outcome.stderr)),
        });
        let mut command = Command::new(folder().join("traefik"));
        command.arg(format!("--entrypoints.web.address=127.0.0.1:{port}")).arg(format!("--entrypoints.ping.address=127.0.0.1:{ping}"));
        command.args(["--ping", "--ping.entrypoint=ping", "--providers.kubernetesgateway", "--log.level=INFO"]);
        command.args(["--global.checknewversion=false", "--global.sendanonymoususage=false"]);
        let server = Server::start(command, &format!("http://127.0.0.1:{ping}/ping"));
        Some(Self { _server: server, port, namespace, settings })
    }

    /// The hostname of an agent.
    pub fn hostname(&self, team: &str, agent: &str) -> String {
        self.settings["hostname"].as_str().unwrap_or_default().replace("{agent}", agent).replace("{team}", team)
    }

    /// A call to whom the Gateway knows by this hostname, not made yet.
    pub fn call(&self, hostname: &str, method: &str, path: &str) -> Call {
        Api::at(SocketAddr::from(([127, 0, 0, 1], self.port))).whole(method, path).header("Host", hostname)
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        kubectl(format!("delete namespace {} --ignore-not-found --wait=false", self.namespace)).run();
    }
}
