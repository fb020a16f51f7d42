//! Plays the controllers and the kubelet for one team, and runs its pods: of each Deployment there is one pod of the present template,
//! with a process of the real runtime behind its address. For agents whose candidates have to answer the cases of an evaluation.
//!
//! A process has the variables of its template and the team's file of policies. Secrets and other volumes it is not given. A pod for which
//! a quota has no room is told of in its Deployment's status, as controllers do once the Deployment's deadline is over.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use slipway_peers::{Server, free_port};
use tempfile::TempDir;

use super::ground::ask;
use super::home::Home;
use super::pods::run;
use crate::api::built;
use crate::http::Reply;
use crate::proxy::splice;

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Where the platform asks a pod.
const CONTROL_PORT: u16 = 8001;
/// The team's policies, and the file that they are in a pod.
const POLICIES: &str = "slipway-policies";
const POLICIES_FILE: &str = "policies.json";

/// Its pods end with it.
pub struct Node {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    server: SocketAddr,
    namespace: String,
    ended: AtomicBool,
    pods: Mutex<Vec<Pod>>,
    /// What could not be done the last time.
    problem: Mutex<String>,
}

/// A pod that runs. What asks the process ends before it does.
struct Pod {
    name: String,
    workload: String,
    prompt: String,
    /// Of the Deployment.
    uid: String,
    template: Value,
    _control: ControlPort,
    _process: Server,
    _policies: TempDir,
}

impl Pod {
    fn is_of(&self, deployment: &Value) -> bool {
        deployment["metadata"]["uid"] == self.uid && deployment["spec"]["template"] == self.template
    }
}

impl Node {
    pub fn of(home: &Home) -> Self {
        let (server, namespace) = (home.ground.address(), home.namespace.clone());
        let shared =
            Arc::new(Shared { server, namespace, ended: AtomicBool::default(), pods: Mutex::default(), problem: Mutex::default() });
        let node = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut made = 0;
            while !node.ended.load(Ordering::SeqCst) {
                // What is not there yet is there the next time.
                if let Err(error) = node.look(&mut made) {
                    *locked(&node.problem) = error.to_string();
                }
                thread::sleep(POLL_INTERVAL);
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// The pods that run: of each its name, its Deployment and the prompt that its process was given.
    pub fn pods(&self) -> Vec<[String; 3]> {
        locked(&self.shared.pods).iter().map(|pod| [pod.name.clone(), pod.workload.clone(), pod.prompt.clone()]).collect()
    }
}

impl Drop for Node {
    #[expect(clippy::print_stderr, reason = "the test harness shows this for failed tests alone")]
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Why it has ended before, it has said.
        drop(self.thread.take().map(JoinHandle::join));
        if std::thread::panicking() {
            eprintln!("--- pods that run: {:?}; the last that could not be done: {}", self.pods(), locked(&self.shared.problem));
        }
        locked(&self.shared.pods).clear();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Brings pods, and what Deployments say of them, to what Deployments ask for.
    fn look(&self, made: &mut usize) -> io::Result<()> {
        let list = self.call("GET", &format!("/apis/apps/v1/namespaces/{}/deployments", self.namespace), JSON, &Value::Null)?;
        let deployments: Vec<&Value> = items(&list["items"]).filter(|found| found["metadata"]["deletionTimestamp"].is_null()).collect();
        let wanted: Vec<&Value> = deployments.iter().copied().filter(|found| found["spec"]["replicas"] != 0).collect();
        let mut refused = Vec::new();
        for deployment in &wanted {
            if !locked(&self.pods).iter().any(|pod| pod.is_of(deployment)) {
                if let Some(why) = self.refusal(deployment, *made + 1)? {
                    self.say_refused(deployment, &why)?;
                    refused.push(&deployment["metadata"]["uid"]);
                    continue;
                }
                *made += 1;
                let pod = self.begin(deployment, *made)?;
                locked(&self.pods).push(pod);
                if !deployment["status"]["conditions"].is_null() {
                    self.say(deployment, &json!({"conditions": null}))?;
                }
            }
        }
        // The old pod serves until the new one does.
        let all = std::mem::take(&mut *locked(&self.pods));
        let (staying, leaving): (Vec<Pod>, Vec<Pod>) = all.into_iter().partition(|pod| wanted.iter().any(|found| pod.is_of(found)));
        *locked(&self.pods) = staying;
        for pod in leaving {
            // With its Deployment it goes by itself.
            drop(ask(self.server, "DELETE", &self.path(&format!("pods/{}", pod.name)), &[], &Value::Null));
        }
        let mut others = deployments.iter().filter(|found| !refused.contains(&&found["metadata"]["uid"]));
        others.try_for_each(|deployment| run(self.server, deployment))
    }

    /// What the API server says of a pod for which a quota has no room.
    fn refusal(&self, deployment: &Value, number: usize) -> io::Result<Option<String>> {
        self.account()?;
        let reply = ask(self.server, "POST", &self.path("pods?dryRun=All"), &[("Content-Type", JSON)], &pod_of(deployment, number))?;
        let message = if reply.status == 403 { text(&reply.json()["message"]) } else { String::new() };
        Ok(Some(message).filter(|message| message.contains("exceeded quota")))
    }

    /// Says that a Deployment has no pod of the present template, and has given up.
    fn say_refused(&self, deployment: &Value, why: &str) -> io::Result<()> {
        let conditions = json!([
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "it has timed out progressing"},
            {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": why},
        ]);
        let status = json!({"observedGeneration": deployment["metadata"]["generation"], "updatedReplicas": 0, "conditions": conditions});
        let is_present = deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"];
        let is_said = is_present && items(&deployment["status"]["conditions"]).any(|condition| condition["message"] == why);
        if is_said { Ok(()) } else { self.say(deployment, &status) }
    }

    /// A merge patch of a Deployment's status.
    fn say(&self, deployment: &Value, status: &Value) -> io::Result<()> {
        let name = text(&deployment["metadata"]["name"]);
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/{name}/status", self.namespace);
        self.call("PATCH", &path, MERGE_PATCH, &json!({"status": status})).map(drop)
    }

    /// Starts a process, and makes the pod once it answers.
    fn begin(&self, deployment: &Value, number: usize) -> io::Result<Pod> {
        let (metadata, template) = (&deployment["metadata"], deployment["spec"]["template"].clone());
        let (workload, uid) = (text(&metadata["name"]), text(&metadata["uid"]));
        let variables = self.variables(&template)?;
        let policies = TempDir::new()?;
        for (file, content) in self.config_map(POLICIES)? {
            std::fs::write(policies.path().join(file), content)?;
        }
        let (port, control) = (free_port(), free_port());
        let mut command = Command::new(built("slipway-runtime"));
        command.envs(&variables).env("RUNTIME_PORT", port.to_string()).env("RUNTIME_CONTROL_PORT", control.to_string());
        command.env("RUNTIME_POLICIES_FILE", policies.path().join(POLICIES_FILE));
        let process = Server::start(command, &format!("http://127.0.0.1:{port}/readyz"));
        let control = ControlPort::before(control)?;

        let pod = pod_of(deployment, number);
        let name = text(&pod["metadata"]["name"]);
        self.call("POST", &self.path("pods"), JSON, &pod)?;
        let address = control.address.to_string();
        let ready = json!({"type": "Ready", "status": "True"});
        let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]});
        self.call("PATCH", &self.path(&format!("pods/{name}/status")), MERGE_PATCH, &json!({"status": status}))?;
        let prompt = variables.get("RUNTIME_SYSTEM_PROMPT").cloned().unwrap_or_default();
        Ok(Pod { name, workload, prompt, uid, template, _control: control, _process: process, _policies: policies })
    }

    /// Makes the account that every namespace has, and pods name. It may be there.
    fn account(&self) -> io::Result<()> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        ask(self.server, "POST", &self.path("serviceaccounts"), &[("Content-Type", JSON)], &account).map(drop)
    }

    /// The variables of the container, with its own after those of ConfigMaps.
    fn variables(&self, template: &Value) -> io::Result<BTreeMap<String, String>> {
        let container = &template["spec"]["containers"][0];
        let mut variables = BTreeMap::new();
        for source in items(&container["envFrom"]) {
            if let Some(name) = source["configMapRef"]["name"].as_str() {
                variables.extend(self.config_map(name)?);
            }
        }
        for variable in items(&container["env"]) {
            let (field, key) = (&variable["valueFrom"]["fieldRef"], &variable["valueFrom"]["configMapKeyRef"]);
            let value = if let Some(path) = field["fieldPath"].as_str() {
                let annotation = path.trim_start_matches("metadata.annotations['").trim_end_matches("']");
                text(&template["metadata"]["annotations"][annotation])
            } else if let Some(name) = key["name"].as_str() {
                self.config_map(name)?.remove(&text(&key["key"])).unwrap_or_default()
            } else {
                text(&variable["value"])
            };
            variables.insert(text(&variable["name"]), value);
        }
        Ok(variables)
    }

    fn config_map(&self, name: &str) -> io::Result<BTreeMap<String, String>> {
        let found = self.call("GET", &self.path(&format!("configmaps/{name}")), JSON, &Value::Null)?;
        let data: Option<BTreeMap<String, String>> = serde_json::from_value(found["data"].clone()).map_err(io::Error::other)?;
        Ok(data.unwrap_or_default())
    }

    /// Of something of the core group in the namespace.
    fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// A call that has to succeed.
    fn call(&self, method: &str, path: &str, media: &str, body: &Value) -> io::Result<Value> {
        let reply: Reply = ask(self.server, method, path, &[("Content-Type", media)], body)?;
        if (200..300).contains(&reply.status) { Ok(reply.json()) } else { Err(io::Error::other(format!("{method} {path}: {reply:?}"))) }
    }
}

/// The pod of a Deployment. Its name has the number, so that no other of the node's pods has it.
fn pod_of(deployment: &Value, number: usize) -> Value {
    let (metadata, template) = (&deployment["metadata"], &deployment["spec"]["template"]);
    let workload = text(&metadata["name"]);
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": workload, "uid": metadata["uid"], "controller": true});
    let mut about = template["metadata"].clone();
    (about["name"], about["ownerReferences"]) = (json!(format!("{workload}-{number}")), json!([owner]));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template["spec"]})
}

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// An address of a pod's own, where [`CONTROL_PORT`] leads to a port of this machine.
struct ControlPort {
    address: Ipv4Addr,
    ended: Arc<AtomicBool>,
}

impl ControlPort {
    fn before(port: u16) -> io::Result<Self> {
        let (listener, address) = listen()?;
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                // A client that is not served hears so.
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                    drop(splice(&client, server));
                }
            }
        });
        Ok(Self { address, ended })
    }
}

impl Drop for ControlPort {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // The thread looks at that when somebody comes.
        drop(TcpStream::connect((self.address, CONTROL_PORT)));
    }
}

/// On a loopback address that nobody has: other processes of this machine take such addresses, too.
fn listen() -> io::Result<(TcpListener, Ipv4Addr)> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 60_000).unwrap_or_default();
    for _ in 0..1000 {
        let [third, fourth] = first.wrapping_add(NEXT.fetch_add(1, Ordering::SeqCst)).to_be_bytes();
        let address = Ipv4Addr::new(127, 78, third, fourth);
        match TcpListener::bind((address, CONTROL_PORT)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return Ok((bound?, address)),
        }
    }
    Err(ErrorKind::AddrInUse.into())
}
