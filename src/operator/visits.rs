//! Who leads asks the pods of agents that use servers which speak mcp what these offer, and notes it for `approval`. The
//! manager itself never talks to such a server.
//!
//! Nothing is asked of other agents, and nobody in the cluster is told anything unless an answer is news.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use slipway_api::{contract, ids};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::agent;
use crate::approval::{Changes, Pod, Report, is_digest};
use crate::queue::Key;
use crate::world::World;
use crate::world::references::Kind;

/// How often it is looked who is to be asked. It costs the manager a look at its caches.
const LOOK: Duration = Duration::from_secs(10);
/// How often each pod is asked.
const EVERY: Duration = Duration::from_mins(3);
/// The same of one that gave no answer, or did not reach all of its servers.
const AGAIN: Duration = Duration::from_mins(1);
/// An agent may wait 10 s for its servers.
const PATIENCE: Duration = Duration::from_secs(15);
const AT_ONCE: usize = 8;
const ANSWER: usize = 1024 * 1024;

/// Makes the token for an agent's control port from the agent's id.
pub type Sign = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What an agent said on its control port of the servers that it uses: by tool, and by the name that the model knows.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Answer {
    pub tool_digests: HashMap<String, String>,
    pub tool_changes: HashMap<String, Changes>,
}

#[derive(Debug, Error)]
pub enum Fault {
    #[error("it cannot be reached: {0}")]
    Unreachable(#[from] std::io::Error),
    #[error("the exchange broke off: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the request cannot be made: {0}")]
    Request(#[from] http::Error),
    #[error("it answered with status {0}")]
    Refused(StatusCode),
    #[error("its answer cannot be used: {0}")]
    Answer(Box<dyn std::error::Error + Send + Sync>),
    #[error("it did not answer within {} s", PATIENCE.as_secs())]
    Late,
}

/// A pod and what it is asked about: the tools, with the server that each stands for.
struct Visit {
    pod: Pod,
    address: SocketAddr,
    servers: Vec<agent::Offering>,
}

pub(crate) async fn keep(world: &World) {
    let Some(sign) = &world.sign else { return };
    let mut due = HashMap::new();
    loop {
        sleep(LOOK).await;
        round(world, sign, &mut due).await;
    }
}

async fn round(world: &World, sign: &Sign, due: &mut HashMap<Pod, Instant>) {
    let is_there = |(agent, name): &Pod| world.pods.ready(agent).iter().any(|(ready, _)| ready == name);
    due.retain(|pod, _| is_there(pod));
    for tool in world.reports.retain(is_there) {
        world.tool_queue.add(tool);
    }
    let now = Instant::now();
    let visits: Vec<Visit> =
        users(world).into_iter().flat_map(|agent| visits(world, &agent, |pod| due.get(pod).is_none_or(|at| *at <= now))).collect();
    let mut answers = futures::stream::iter(visits)
        .map(|visit| async move {
            let agent = &visit.pod.0;
            let answer = match sign(&ids::agent(&agent.namespace, &agent.name)) {
                Some(token) => ask(visit.address, &token).await,
                None => return (visit, None),
            };
            let answer = answer.inspect_err(
                |fault| tracing::debug!(agent = %visit.pod.0, pod = visit.pod.1, %fault, "a pod was asked for its tools in vain"),
            );
            (visit, answer.ok())
        })
        .buffer_unordered(AT_ONCE);
    while let Some((visit, answer)) = answers.next().await {
        let complete = answer.is_some_and(|answer| note(world, &visit, answer));
        due.insert(visit.pod, Instant::now() + if complete { EVERY } else { AGAIN });
    }
}

/// The agents that name a Tool which speaks mcp.
fn users(world: &World) -> BTreeSet<Key> {
    let speaks = |key: &Key| world.tools.get(key).is_some_and(|tool| tool.0.as_ref().is_ok_and(|tool| tool.spec.server().is_some()));
    world.tools.keys().into_iter().filter(speaks).flat_map(|key| world.references.to(Kind::Tool, &key)).collect()
}

/// The pods of an agent that it is time to ask. Those that run with an earlier configuration are left alone: they may
/// speak of another server than the Tool names now.
fn visits(world: &World, agent: &Key, is_due: impl Fn(&Pod) -> bool) -> Vec<Visit> {
    let pods = world.pods.ready(agent).into_iter().map(|(name, ready)| ((agent.clone(), name), ready));
    let pods: Vec<_> = pods.filter(|(pod, _)| is_due(pod)).collect();
    let Some((config, servers)) = (!pods.is_empty()).then(|| agent::offerings(world, agent)).flatten() else { return Vec::new() };
    let port = u16::try_from(contract::CONTROL_PORT).unwrap_or_default();
    let current = pods.into_iter().filter(|(_, ready)| ready.config == config);
    current.map(|(pod, ready)| Visit { pod, address: SocketAddr::new(ready.address, port), servers: servers.clone() }).collect()
}

/// Takes note of what a pod said; whether it said something of every server.
fn note(world: &World, visit: &Visit, mut answer: Answer) -> bool {
    let mut complete = true;
    for agent::Offering { name, tool, server } in &visit.servers {
        let Some(digest) = answer.tool_digests.remove(name).filter(|digest| is_digest(digest)) else {
            complete = false;
            continue;
        };
        let changes = answer.tool_changes.remove(name).unwrap_or_default().bounded();
        if world.reports.note(tool, visit.pod.clone(), Report { server: server.clone(), digest, changes }) {
            world.tool_queue.add(tool.clone());
        }
    }
    complete
}

/// Asks an agent for its status. Of what it says, all may be untrue.
pub async fn ask(address: SocketAddr, token: &str) -> Result<Answer, Fault> {
    let exchange = async {
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::get("/control/status")
            .header(header::HOST, address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(Empty::<Bytes>::new())?;
        let talk = async {
            let response = sender.send_request(request).await?;
            if response.status() != StatusCode::OK {
                return Err(Fault::Refused(response.status()));
            }
            let body = Limited::new(response.into_body(), ANSWER).collect().await.map_err(Fault::Answer)?;
            serde_json::from_slice(&body.to_bytes()).map_err(|error| Fault::Answer(error.into()))
        };
        tokio::pin!(connection, talk);
        tokio::select! {
            answer = &mut talk => answer,
            ended = &mut connection => {
                ended?;
                talk.await
            }
        }
    };
    timeout(PATIENCE, exchange).await.unwrap_or(Err(Fault::Late))
}
