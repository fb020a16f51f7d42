//! What autoscalers measure by: the metrics-server of the Kubernetes project, as a process beside the cluster that the API
//! server asks through. `hack/test cluster` builds it.

use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::{Value, json};
use slipway_peers::{Server, free_port, repository};
use tempfile::TempDir;

use crate::kubectl::kubectl;

const NAME: &str = "metrics-server";
const NAMESPACE: &str = "kube-system";
const SERVICE: &str = "v1beta1.metrics.k8s.io";

/// The one that runs: the first test that needs it begins it.
static SHARED: Mutex<Weak<MetricsServer>> = Mutex::new(Weak::new());

fn shared() -> MutexGuard<'static, Weak<MetricsServer>> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// It ends with the last who has it, and the API server no longer knows of it.
pub struct MetricsServer {
    _server: Server,
    _certificates: TempDir,
}

impl MetricsServer {
    /// None where the cluster has one already.
    #[track_caller]
    pub fn start() -> Option<Arc<Self>> {
        let mut shared = shared();
        if let Some(running) = shared.upgrade() {
            return Some(running);
        }
        let begun = Arc::new(Self::begin()?);
        *shared = Arc::downgrade(&begun);
        Some(begun)
    }

    #[track_caller]
    fn begin() -> Option<Self> {
        let has = kubectl(format!("get apiservice {SERVICE} --ignore-not-found")).json();
        // One of ours that was killed has left its name behind.
        if !has.is_null() && has["metadata"]["labels"]["e2e"] != NAME {
            return None;
        }
        let certificates = tempfile::tempdir().unwrap_or_else(|e| panic!("no folder for certificates: {e}"));
        let authority = certificates.path().join("ca.crt");
        std::fs::write(&authority, authority_of_the_cluster()).unwrap_or_else(|e| panic!("{}: {e}", authority.display()));
        let (address, port) = (address(), free_port());
        let program = repository().join(".local/bin").join(NAME);
        assert!(program.exists(), "{} does not exist: hack/test cluster builds it", program.display());
        let kubeconfig = std::env::var("KUBECONFIG").unwrap_or_default();
        let mut command = Command::new(program);
        for flag in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
            command.arg(flag).arg(&kubeconfig);
        }
        command.args(["--bind-address", &address, "--secure-port", &port.to_string(), "--metric-resolution=10s"]);
        command.args(["--kubelet-request-timeout=5s", "--kubelet-preferred-address-types=InternalIP"]);
        command.arg("--kubelet-certificate-authority").arg(&authority).arg("--cert-dir").arg(certificates.path());
        let server = Server::start(command, &format!("{address}:{port}"));
        register(&address, port);
        let waited = kubectl(format!("wait apiservice {SERVICE} --for=condition=Available --timeout=60s")).run();
        if waited.code != Some(0) {
            withdraw();
            panic!("the API server should ask the metrics-server: {}", waited.stderr);
        }
        Some(Self { _server: server, _certificates: certificates })
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        let shared = shared();
        // The next one may have begun in the meantime, under the same name.
        if shared.strong_count() == 0 {
            withdraw();
        }
    }
}

/// An API without its server would keep every namespace from going.
fn withdraw() {
    kubectl(format!("delete apiservice {SERVICE} --ignore-not-found")).run();
    kubectl(format!("delete service {NAME} -n {NAMESPACE} --ignore-not-found")).run();
}

/// Where the API server listens, which is where it can reach us too.
#[track_caller]
fn address() -> String {
    let url = kubectl("config view --minify -o jsonpath={.clusters[0].cluster.server}").ok();
    let host = url.trim().trim_start_matches("https://").rsplit_once(':').map(|(host, _)| host.to_owned());
    host.unwrap_or_else(|| panic!("{url:?} is no address of an API server"))
}

/// Who signed the kubelet's certificate.
#[track_caller]
fn authority_of_the_cluster() -> String {
    let config = kubectl("get configmap kube-root-ca.crt -n default").json();
    config["data"]["ca.crt"].as_str().unwrap_or_else(|| panic!("the cluster does not say who signs for it: {config}")).to_owned()
}

#[track_caller]
fn register(address: &str, port: u16) {
    let metadata = |name: &str| json!({"name": name, "namespace": NAMESPACE, "labels": {"e2e": NAME}});
    let mut apiservice = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata(SERVICE),
        "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"name": NAME, "namespace": NAMESPACE, "port": 443},
        },
    });
    apiservice["metadata"]["namespace"].take();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(NAME),
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]}});
    let slice = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata(NAME),
        "subsets": [{"addresses": [{"ip": address}], "ports": [{"name": "https", "port": port}]}]});
    let all: Vec<Value> = vec![service, slice, apiservice];
    kubectl("apply -f -").input(json!({"apiVersion": "v1", "kind": "List", "items": all})).ok();
}
