//! The leader polls the pods of agents whose tools are servers that speak mcp for what these offer, and notes it for `approval`.
//! The manager itself never talks to such a server.
//!
//! Nothing is asked of other agents, and nobody in the cluster is told anything unless an answer is news.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, StatusCode};
use serde::Deserialize;
use slipway_api::{Tool, ids};
use slipway_cluster::Key;
use slipway_cluster::references::Kind;
use tokio::time::{Instant, sleep};

use super::Controller;
use super::approval::{OfferedTools, Pod, ToolChanges, is_digest};
use crate::agent;
use crate::context::Context;
use crate::control_port::{self, Fault, PodCall};

/// How often it is looked who is to be asked. It costs the manager a look at its caches.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);
/// How often each pod is asked.
const POLL_INTERVAL: Duration = Duration::from_mins(3);
const MAX_CONCURRENT: usize = 32;
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// What an agent said on its control port of the servers that it uses: by tool, and by the name that the model knows.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PolledTools {
    pub tool_digests: HashMap<String, String>,
    pub tool_changes: HashMap<String, ToolChanges>,
}

/// A pod and what it is asked about: the tools, with the server that each stands for.
struct Poll {
    pod: Pod,
    address: SocketAddr,
    servers: Vec<agent::Offering>,
}

pub(super) async fn run(controller: &Controller) {
    let mut due = HashMap::new();
    loop {
        sleep(ROUND_INTERVAL).await;
        round(controller, &mut due).await;
    }
}

async fn round(controller: &Controller, due: &mut HashMap<Pod, Instant>) {
    let (context, Some(sign)) = (&*controller.context, &controller.sign) else { return };
    let is_there = |(agent, name): &Pod| context.caches.pods.ready(agent).iter().any(|(ready, _)| ready == name);
    due.retain(|pod, _| is_there(pod));
    for tool in controller.reports.retain(is_there) {
        controller.requests.add(tool);
    }
    let now = Instant::now();
    let polls: Vec<Poll> =
        users(context).into_iter().flat_map(|agent| due_polls(context, &agent, |pod| due.get(pod).is_none_or(|at| *at <= now))).collect();
    let mut answers = futures::stream::iter(polls)
        .map(|poll| async move {
            let agent = &poll.pod.0;
            let answer = match sign(&ids::agent(&agent.namespace, &agent.name)) {
                Some(token) => ask(poll.address, &token).await,
                None => return (poll, None),
            };
            let answer = answer.inspect_err(
                |fault| tracing::debug!(agent = %poll.pod.0, pod = poll.pod.1, %fault, "a pod was asked for its tools in vain"),
            );
            (poll, answer.ok())
        })
        .buffer_unordered(MAX_CONCURRENT);
    while let Some((poll, answer)) = answers.next().await {
        note(controller, &poll, answer.unwrap_or_default());
        due.insert(poll.pod, Instant::now() + POLL_INTERVAL);
    }
}

/// The agents that name a Tool which speaks mcp.
fn users(context: &Context) -> BTreeSet<Key> {
    let speaks = |key: &Key| context.caches.tools.get(key).is_some_and(|tool| tool.0.as_ref().is_ok_and(|tool| tool.spec.speaks_mcp()));
    context.caches.tools.keys().into_iter().filter(speaks).flat_map(|key| context.caches.references.to(Kind::of::<Tool>(), &key)).collect()
}

/// The pods of an agent that it is time to ask. Those that run with an earlier configuration are left alone: they may
/// speak of another server than the Tool names now.
fn due_polls(context: &Context, agent: &Key, is_due: impl Fn(&Pod) -> bool) -> Vec<Poll> {
    let pods = context.caches.pods.ready(agent).into_iter().map(|(name, ready)| ((agent.clone(), name), ready));
    let pods: Vec<_> = pods.filter(|(pod, _)| is_due(pod)).collect();
    let Some((config, servers)) = (!pods.is_empty()).then(|| agent::offerings(context, agent)).flatten() else { return Vec::new() };
    let current = pods.into_iter().filter(|(_, ready)| ready.config == config);
    current.map(|(pod, ready)| Poll { pod, address: control_port::address(ready.address), servers: servers.clone() }).collect()
}

/// Takes note of what a pod said. Of servers that it did not speak of, what it said before stands.
fn note(controller: &Controller, poll: &Poll, mut answer: PolledTools) {
    for agent::Offering { name, tool, server } in &poll.servers {
        let Some(digest) = answer.tool_digests.remove(name).filter(|digest| is_digest(digest)) else { continue };
        let changes = answer.tool_changes.remove(name).unwrap_or_default().bounded();
        if controller.reports.note(tool, poll.pod.clone(), OfferedTools { server: server.clone(), digest, changes }) {
            controller.requests.add(tool.clone());
        }
    }
}

/// Asks an agent for its status. Of what it says, all may be untrue.
pub async fn ask(address: SocketAddr, token: &str) -> Result<PolledTools, Fault> {
    let call = PodCall { method: Method::GET, path: "/control/status", token, body: Bytes::new(), max_answer_bytes: MAX_ANSWER_BYTES };
    let answer = control_port::call(address, call).await?;
    if answer.status != StatusCode::OK {
        return Err(Fault::Refused(answer.status));
    }
    serde_json::from_slice(&answer.body).map_err(|error| Fault::Answer(error.into()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use k8s_openapi::api::core::v1::Pod as ClusterPod;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};
    use slipway_cluster::{Guarded, Object};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::caches::ChildKind;
    use crate::caches::child::Child;
    use crate::testing::context;

    /// An agent's control port: it keeps what it is asked, and says the same until told otherwise.
    #[derive(Default)]
    struct Port {
        asked: Mutex<Vec<String>>,
        says: Mutex<String>,
    }

    impl Port {
        async fn open(address: &str) -> Arc<Self> {
            let listener = TcpListener::bind((address, 8001)).await.unwrap();
            let port = Arc::new(Self::default());
            tokio::spawn({
                let port = port.clone();
                async move {
                    while let Ok((mut stream, _)) = listener.accept().await {
                        let mut head = Vec::new();
                        while !head.ends_with(b"\r\n\r\n") {
                            assert!(stream.read_buf(&mut head).await.unwrap() > 0);
                        }
                        port.asked.lock().unwrap().push(String::from_utf8(head).unwrap());
                        let answer = port.says.lock().unwrap().clone();
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            });
            port
        }

        fn say(&self, body: &Value) {
            let body = body.to_string();
            *self.says.lock().unwrap() = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        }

        fn polls(&self) -> usize {
            self.asked.lock().unwrap().len()
        }
    }

    fn object<K: DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn agent(context: &Context, name: &str, tools: &[&str]) -> Key {
        let key = Key::new("team-a", name);
        let spec = json!({"name": name, "framework": "custom", "tools": tools});
        let whole = json!({"metadata": {"name": name, "namespace": "team-a", "uid": name}, "spec": spec});
        context.caches.agents.insert(key.clone(), Guarded(Ok(object(whole))).into());
        context.caches.references.set(&key, tools.iter().map(|tool| (Kind::of::<Tool>(), Key::new("team-a", *tool))).collect());
        key
    }

    fn tool(context: &Context, name: &str, spec: &Value) -> Key {
        let key = Key::new("team-a", name);
        let whole = json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": spec});
        context.caches.tools.insert(key.clone(), Guarded(Ok(object(whole))));
        key
    }

    fn pod(of: &Key, address: &str, config: u64) -> ClusterPod {
        object(json!({
            "metadata": {"name": format!("{}-1", of.name), "namespace": of.namespace, "labels": {"agents.slipway.dev/agent": of.name},
                "annotations": {"agents.slipway.dev/config-hash": format!("{config:016x}")}},
            "status": {"podIP": address, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
    }

    fn home() -> Arc<Context> {
        let context = context();
        let namespace: Object = object(json!({"metadata": {"name": "team-a", "labels": {"agents.slipway.dev/team": "a"}}}));
        context.caches.children(ChildKind::Namespace).insert(Key::new("", "team-a"), Child::look(&namespace, None, || None, ""));
        let team = object(json!({"metadata": {"name": "a"}, "spec": {"name": "A"}}));
        context.caches.teams.insert(Key::new("", "a"), Guarded(Ok(team)));
        context.caches.know_secrets_of("team-a");
        context
    }

    #[tokio::test]
    async fn pods_are_asked_now_and_then_and_only_what_is_new_goes_on() {
        let (port, silent) = (Port::open("127.77.14.1").await, Port::open("127.77.14.2").await);
        let context = home();
        let clock = tool(&context, "clock", &json!({"name": "datetime", "type": "builtin"}));
        let remote = tool(&context, "remote", &json!({"name": "m", "type": "mcp", "mcpEndpoint": "https://m/mcp"}));
        let (helper, other) = (agent(&context, "helper", &["clock", "remote"]), agent(&context, "other", &["clock"]));
        let (config, servers) = agent::offerings(&context, &helper).unwrap();
        let server = "https://m/mcp".to_owned();
        assert_eq!(servers, [agent::Offering { name: "m".to_owned(), tool: remote.clone(), server: server.clone() }]);
        context.caches.pods.seen(&pod(&helper, "127.77.14.1", config));
        context.caches.pods.seen(&pod(&other, "127.77.14.2", agent::offerings(&context, &other).unwrap().0));
        let sign: crate::Sign = Box::new(|id| Some(format!("token-for-{id}")));
        let polling = Controller::new(context.clone(), Some(Arc::new(sign)));
        let mut requested = Box::pin(polling.requests.open());
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let reported = || polling.reports.of(&remote).into_iter().map(|(_, report)| report).collect::<Vec<_>>();
        let mut due = HashMap::new();

        port.say(&json!({"agent_id": "ag", "tool_digests": {"m": digest("a"), "x": digest("b")}}));
        round(&polling, &mut due).await;
        assert_eq!(reported(), [OfferedTools { server, digest: digest("a"), changes: ToolChanges::default() }]);
        assert_eq!(requested.next().await, Some(remote.clone()));
        polling.requests.begin(&remote);
        let request = port.asked.lock().unwrap()[0].to_ascii_lowercase();
        let token = format!("authorization: bearer token-for-{}\r\n", ids::agent("team-a", "helper"));
        assert!(request.starts_with("get /control/status http/1.1\r\n") && request.contains(&token), "{request}");
        round(&polling, &mut due).await;
        assert_eq!(port.polls(), 1, "it is too early to ask again");

        let asked_again = async |due: &mut HashMap<Pod, Instant>| {
            for at in due.values_mut() {
                *at = Instant::now();
            }
            round(&polling, due).await;
        };
        asked_again(&mut due).await;
        assert_eq!((port.polls(), polling.requests.depth()), (2, 0), "the same again is no news");
        port.say(&json!({"tool_digests": {"m": digest("b")}, "tool_changes": {"m": {"added": ["wipe"]}}}));
        asked_again(&mut due).await;
        assert_eq!(
            (reported()[0].digest.as_str(), reported()[0].changes.added.as_slice()),
            (digest("b").as_str(), &["wipe".to_owned()][..])
        );
        assert_eq!(polling.requests.depth(), 1);

        for lie in ["nonsense", "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]"]
        {
            *port.says.lock().unwrap() = lie.to_owned();
            asked_again(&mut due).await;
        }
        port.say(&json!({"tool_digests": {"m": "sha256:not-really"}}));
        asked_again(&mut due).await;
        assert_eq!((port.polls(), reported()[0].digest.as_str()), (7, digest("b").as_str()), "what cannot be used changes nothing");

        let polls = port.polls();
        context.caches.pods.seen(&pod(&helper, "127.77.14.1", config + 1));
        asked_again(&mut due).await;
        assert_eq!(port.polls(), polls, "a pod of another configuration may speak of another server");
        context.caches.pods.gone(&pod(&helper, "127.77.14.1", config));
        round(&polling, &mut due).await;
        assert_eq!((reported(), due.len(), silent.polls()), (Vec::new(), 0, 0), "{clock} has nothing to be asked about");
    }
}
