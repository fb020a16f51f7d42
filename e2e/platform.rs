//! The installed manager: its settings, its pods, what it counts.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::kubectl::{Outcome, kubectl};

pub const NAMESPACE: &str = "slipway-system";
pub const MANAGER: &str = "slipway-manager";
pub const REST: &str = "slipway-rest";
pub const STATE: &str = "slipway-state";

/// The value of a variable of the manager's container, given as is.
#[track_caller]
pub fn setting(name: &str) -> Option<String> {
    let deployment = kubectl(format!("get deployment {MANAGER} -n {NAMESPACE}")).json();
    let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array()?.clone();
    let variable = variables.into_iter().find(|variable| variable["name"] == name)?;
    Some(variable["value"].as_str().unwrap_or_default().to_owned())
}

/// What the chart makes in the platform's namespace to keep the configuration in, in another one that is to be it.
#[track_caller]
pub fn keep_configuration_in(namespace: &str) {
    for kind in ["ConfigMap", "Secret"] {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "slipway-platform"}});
        kubectl(format!("-n {namespace} apply -f -")).input(object).ok();
    }
}

/// The image of agents that name none.
#[track_caller]
pub fn runtime_image() -> String {
    std::env::var("RUNTIME_IMAGE").ok().or_else(|| setting("SLIPWAY_RUNTIME_IMAGE")).unwrap_or_default()
}

/// Whether the manager has a database to offer.
#[track_caller]
pub fn has_database() -> bool {
    setting("SLIPWAY_DATABASE_URL").is_some()
}

/// An address on the node that nobody listens on, if the node is the machine that this runs on.
#[track_caller]
pub fn on_the_node() -> Option<SocketAddr> {
    let path = "{.items[0].status.addresses[?(@.type==\"InternalIP\")].address}";
    let node = kubectl("get nodes -o").arg(format!("jsonpath={path}")).ok();
    TcpListener::bind(format!("{}:0", node.trim())).and_then(|listener| listener.local_addr()).ok()
}

/// A row of the platform's database, as JSON.
#[track_caller]
pub fn row(sql: &str) -> Value {
    let script = "read -r PGPASSWORD </run/secrets/postgres/password; export PGPASSWORD; exec psql -h /tmp -U postgres -Atc \"$0\"";
    let text = kubectl(format!("exec -n {NAMESPACE} postgres-0 -- sh -c")).arg(script).arg(sql).ok();
    serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{e}: {text:?}"))
}

/// Whether releases are kept.
#[track_caller]
pub fn has_state() -> bool {
    !kubectl(format!("get statefulset {STATE} -n {NAMESPACE} --ignore-not-found -o name")).ok().trim().is_empty()
}

/// How many tests want the installed state role to be stopped.
static UNWATCHED: Mutex<usize> = Mutex::new(0);

/// The installed state role is stopped while one of these lives, if there is one: no other may work on the same agents beside
/// a test's own. For tests with a turn of that kind, see [`crate::unwatched`].
pub struct WithoutState(());

impl WithoutState {
    #[track_caller]
    pub fn begin() -> Option<Self> {
        has_state().then(|| {
            let mut count = UNWATCHED.lock().unwrap_or_else(PoisonError::into_inner);
            *count += 1;
            let stopped = (*count == 1).then(stop_state);
            drop(count);
            let this = Self(());
            assert!(stopped.as_ref().is_none_or(|outcome| outcome.code == Some(0)), "the state role should end: {stopped:?}");
            this
        })
    }
}

fn stop_state() -> Outcome {
    kubectl(format!("scale statefulset {STATE} -n {NAMESPACE} --replicas=0")).run();
    kubectl(format!("wait --for=delete pod/{STATE}-0 -n {NAMESPACE} --timeout=90s")).run()
}

impl Drop for WithoutState {
    fn drop(&mut self) {
        let mut count = UNWATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        *count -= 1;
        if *count == 0 {
            kubectl(format!("scale statefulset {STATE} -n {NAMESPACE} --replicas=1")).run();
            kubectl(format!("rollout status statefulset {STATE} -n {NAMESPACE} --timeout=90s")).run();
        }
    }
}

/// The names of the manager's pods that are not on their way out.
#[track_caller]
pub fn pods() -> Vec<String> {
    let manager = kubectl(format!("get deployment {MANAGER} -n {NAMESPACE}")).json();
    let labels = manager["spec"]["selector"]["matchLabels"].as_object().cloned().unwrap_or_default();
    let selector: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let list = kubectl(format!("get pods -n {NAMESPACE} -l {}", selector.join(","))).json();
    let pods = list["items"].as_array().cloned().unwrap_or_default();
    let staying = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    staying.filter_map(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned).collect()
}

/// The pod that leads, by the manager's lease.
#[track_caller]
pub fn leader() -> String {
    let lease = kubectl(format!("get lease {MANAGER} -n {NAMESPACE}")).json();
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    pods()
        .into_iter()
        .find(|pod| holder.contains(pod.as_str()))
        .unwrap_or_else(|| panic!("no pod of the manager holds the lease: {lease:#}"))
}

/// What a pod of the manager answers, asked by way of the API server.
pub fn ask(pod: &str, path: &str) -> crate::Outcome {
    kubectl(format!("get --raw /api/v1/namespaces/{NAMESPACE}/pods/{pod}:8080/proxy{path}")).run()
}

/// The samples of `metric` in text as Prometheus reads it: labels and value.
pub fn samples(text: &str, metric: &str) -> Vec<(String, f64)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(metric)).filter(|rest| rest.starts_with(['{', ' ']));
    lines.filter_map(|rest| rest.rsplit_once(' ').and_then(|(labels, value)| Some((labels.to_owned(), value.parse().ok()?)))).collect()
}

/// The last lines of all pods of the manager.
pub fn logs() -> String {
    let each = pods().into_iter().map(|pod| kubectl(format!("logs -n {NAMESPACE} {pod} --all-containers --tail=-1")).run().stdout);
    each.collect::<Vec<_>>().join("\n")
}

/// A namespace as everybody sees it.
#[track_caller]
pub fn namespace(name: &str) -> Value {
    kubectl(format!("get namespace {name} --ignore-not-found")).json()
}
