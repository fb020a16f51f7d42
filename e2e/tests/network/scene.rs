//! Who is there: two teams with agents, one of them with a worker and an ingestion, a pod of a team that is no agent, and a pod of no team,
//! which plays the world.

use std::fmt::{Display, Formatter};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use serde_json::{Value, json};
use slipway_e2e::{Agent, Foothold, Team, kubectl, platform, poll, until};

/// Where clouds tell machines who they are, with credentials.
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// An address of the world's, kept for examples.
const FAR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 80);
/// The namespace of no team.
const WORLD: &str = "e2e-fence-world";
/// A pod that does nothing, of the image that every pod of the local cluster has.
const IDLE: &str = "slipway.dev/pause:1";

/// From where to where, in words and in fact.
pub(super) struct Way<'a> {
    who: &'static str,
    from: &'a Foothold,
    whom: &'static str,
    to: Goal,
}

enum Goal {
    Port(SocketAddr),
    /// A name server that is asked.
    Names(SocketAddr),
}

pub(super) struct Scene<'a> {
    pub(super) speaker: Agent<'a>,
    pub(super) neighbour: Agent<'a>,
    /// One with `access: platform`.
    reserved: Agent<'a>,
    stranger: Agent<'a>,
    /// Footholds: in the agent `speaker`, in the pod beside it, in the world's pod, and in two pods of the platform.
    taken: Foothold,
    beside: Foothold,
    world: Foothold,
    rest: Foothold,
    manager: Foothold,
    /// Those of the team's knowledge bases, where there is a database.
    knowledge: Option<Knowledge>,
    /// Where the neighbour, the reserved agent and one of another team are.
    near: IpAddr,
    apart: IpAddr,
    theirs: IpAddr,
    /// What is open in the pods that do nothing.
    _open: Vec<TcpListener>,
    _world: World,
}

struct Knowledge {
    worker: Foothold,
    ingestion: Foothold,
    /// What is open in the ingestion's pod.
    _open: TcpListener,
}

impl<'a> Scene<'a> {
    pub(super) fn set(team: &'a Team, other: &'a Team) -> Self {
        let world_namespace = World::begin();
        idle(&team.namespace, "idle", &json!({"app": "idle"}));
        idle(WORLD, "idle", &json!({"app": "idle"}));
        let knowledge = platform::has_database().then(|| Knowledge::begin(team));
        let (speaker, neighbour) = (team.agent("speaker", &json!({})), team.agent("neighbour", &json!({})));
        let (reserved, stranger) = (team.agent("reserved", &json!({"access": "platform"})), other.agent("stranger", &json!({})));
        for agent in [&speaker, &neighbour, &reserved, &stranger] {
            agent.ready();
        }
        let (beside, world) = (Foothold::of(&running(&team.namespace, "app=idle")), Foothold::of(&running(WORLD, "app=idle")));
        let taken = Foothold::of(&speaker.pods()[0]);
        for address in [METADATA, FAR] {
            world.take(address);
            let of_knowledge = knowledge.iter().flat_map(|knowledge| [&knowledge.worker, &knowledge.ingestion]);
            for pod in [&taken, &beside].into_iter().chain(of_knowledge) {
                pod.find(address);
            }
        }
        let open = [(METADATA, 80), (METADATA, 443), (FAR, 80), (FAR, 443), (world.address, 443)].map(|at| world.listen(at));
        let address = |agent: &Agent| Foothold::of(&agent.pods()[0]).address.into();
        Self {
            near: address(&neighbour),
            apart: address(&reserved),
            theirs: address(&stranger),
            _open: open.into_iter().chain([beside.listen((beside.address, 8000)), beside.listen((beside.address, 9000))]).collect(),
            rest: Foothold::of(&running(platform::NAMESPACE, "app.kubernetes.io/component=rest")),
            manager: Foothold::of(&running(platform::NAMESPACE, "app.kubernetes.io/component=manager")),
            _world: world_namespace,
            knowledge,
            speaker,
            neighbour,
            reserved,
            stranger,
            taken,
            beside,
            world,
        }
    }

    pub(super) fn namespaces(&self) -> [&str; 2] {
        [&self.speaker.team.namespace, WORLD]
    }

    pub(super) fn speaker_port(&self) -> SocketAddr {
        (self.taken.address, 8000).into()
    }

    /// What must be closed to them.
    pub(super) fn closed(&self) -> Vec<Way<'_>> {
        let agent = |whom, to: SocketAddr| Way { who: "an agent", from: &self.taken, whom, to: Goal::Port(to) };
        let beside = |whom, to: SocketAddr| Way { who: "a pod of the team that is no agent", from: &self.beside, whom, to: Goal::Port(to) };
        let world = |whom, to: SocketAddr| Way { who: "a pod of no team", from: &self.world, whom, to: Goal::Port(to) };
        let (api, own) = (api_server(), self.taken.address);
        let of_platform = |component: &str, port| SocketAddr::new(platform_pod(component), port);
        let mut closed = vec![
            agent("an agent of another team", (self.theirs, 8000).into()),
            agent("an agent of another team, by its Service", service_of(&self.stranger, 8000)),
            agent("the control port of another team's agent", (self.theirs, 8001).into()),
            agent("the control port of its neighbour", (self.near, 8001).into()),
            agent("the control port of its neighbour, by its Service", service_of(&self.neighbour, 8001)),
            agent("a neighbour that is the platform's alone", (self.apart, 8000).into()),
            agent("a neighbour that is the platform's alone, by its Service", service_of(&self.reserved, 8000)),
            agent("a port of its team that is no agent's", (self.beside.address, 9000).into()),
            agent("a pod of its team that is no agent", (self.beside.address, 8000).into()),
            agent("the metadata address", (METADATA, 80).into()),
            agent("the metadata address, by TLS", (METADATA, 443).into()),
            agent("the API server", api),
            agent("the API server, by its Service", service("default", "kubernetes", 443)),
            agent("the node's kubelet", (node(), 10250).into()),
            agent("a pod of no team", (self.world.address, 443).into()),
            agent("the outside without TLS", (FAR, 80).into()),
            agent("the manager's metrics", of_platform("manager", 8080)),
            agent("REST's metrics", of_platform("rest", 8080)),
            agent("the history", of_platform("state", 8091)),
            beside("an agent of its team", self.speaker_port()),
            beside("the metadata address", (METADATA, 80).into()),
            beside("the API server", api),
            beside("REST", of_platform("rest", 8090)),
            Way {
                who: "a pod of the team that is no agent",
                from: &self.beside,
                whom: "the name server",
                to: Goal::Names((node(), 53).into()),
            },
            world("an agent", (own, 8000).into()),
            world("the control port of an agent", (own, 8001).into()),
            world("the manager's metrics", of_platform("manager", 8080)),
            world("the history", of_platform("state", 8091)),
            Way { who: "REST", from: &self.rest, whom: "the control port of an agent", to: Goal::Port((own, 8001).into()) },
        ];
        if let Some(Knowledge { worker, ingestion, .. }) = &self.knowledge {
            let (serves, works) = ((worker.address, 8000).into(), (ingestion.address, 8000).into());
            closed.extend([
                agent("its team's worker", serves),
                agent("its team's worker, by its Service", service(&self.speaker.team.namespace, "slipway-worker", 8000)),
                agent("an ingestion", works),
                beside("its team's worker", serves),
                beside("an ingestion", works),
                world("a worker", serves),
                Way { who: "REST", from: &self.rest, whom: "an ingestion", to: Goal::Port(works) },
                Way { who: "an ingestion", from: ingestion, whom: "its team's worker", to: Goal::Port(serves) },
                Way { who: "a worker", from: worker, whom: "an ingestion", to: Goal::Port(works) },
            ]);
            for (who, from) in [("a worker", worker), ("an ingestion", ingestion)] {
                let ways = [
                    ("an agent of its team", self.speaker_port()),
                    ("the control port of an agent", (own, 8001).into()),
                    ("an agent of another team", (self.theirs, 8000).into()),
                    ("the metadata address", (METADATA, 80).into()),
                    ("the metadata address, by TLS", (METADATA, 443).into()),
                    ("the API server", api),
                    ("the node's kubelet", (node(), 10250).into()),
                    ("a pod of no team", (self.world.address, 443).into()),
                    ("a source that the chart does not list", (FAR, 443).into()),
                ];
                closed.extend(ways.map(|(whom, to)| Way { who, from, whom, to: Goal::Port(to) }));
            }
        }
        closed
    }

    /// What agents and the platform need.
    pub(super) fn needed(&self) -> Vec<Way<'_>> {
        let agent = |whom, to: SocketAddr| Way { who: "an agent", from: &self.taken, whom, to: Goal::Port(to) };
        let platform = |who, from, port: u16| Way { who, from, whom: "an agent", to: Goal::Port((self.taken.address, port).into()) };
        let mut needed = vec![
            agent("its neighbour", (self.near, 8000).into()),
            agent("its neighbour, by its Service", service_of(&self.neighbour, 8000)),
            agent("REST, by its Service", service(platform::NAMESPACE, platform::REST, 80)),
            Way { who: "an agent", from: &self.taken, whom: "the name server", to: Goal::Names((node(), 53).into()) },
            platform("REST", &self.rest, 8000),
            platform("the manager", &self.manager, 8001),
            Way { who: "REST", from: &self.rest, whom: "an agent that is the platform's alone", to: Goal::Port((self.apart, 8000).into()) },
        ];
        if let Some(Knowledge { worker, ingestion, .. }) = &self.knowledge {
            let database = service(platform::NAMESPACE, "postgres", 5432);
            needed.push(agent("the database", database));
            needed.push(Way { who: "REST", from: &self.rest, whom: "a worker", to: Goal::Port((worker.address, 8000).into()) });
            for (who, from) in [("a worker", worker), ("an ingestion", ingestion)] {
                needed.push(Way { who, from, whom: "the database", to: Goal::Port(database) });
                needed.push(Way { who, from, whom: "the name server", to: Goal::Names((node(), 53).into()) });
            }
        }
        needed
    }

    /// What is open where the world has been opened.
    pub(super) fn outside(&self) -> Vec<Way<'_>> {
        vec![Way { who: "an agent", from: &self.taken, whom: "the outside", to: Goal::Port((FAR, 443).into()) }]
    }
}

impl Knowledge {
    /// A worker comes with the first knowledge base. Ingestions end soon, so that a pod with their labels, which does nothing, stands for one.
    fn begin(team: &Team) -> Self {
        team.apply(&json!({
            "apiVersion": "agents.slipway.dev/v1", "kind": "KnowledgeBase", "metadata": {"name": "docs"}, "spec": {"name": "docs"},
        }));
        let labels = json!({"app.kubernetes.io/name": "slipway-ingestion", "app.kubernetes.io/component": "ingestion"});
        idle(&team.namespace, "ingestion", &labels);
        let of = |component: &str| Foothold::of(&running(&team.namespace, &format!("app.kubernetes.io/component={component}")));
        let (worker, ingestion) = (of("worker"), of("ingestion"));
        let open = ingestion.listen((ingestion.address, 8000));
        Self { worker, ingestion, _open: open }
    }
}

impl Way<'_> {
    fn go(&self) -> io::Result<()> {
        match self.to {
            Goal::Port(at) => self.from.connect(at),
            Goal::Names(server) => self.from.look_up(server, "kubernetes.default.svc.cluster.local"),
        }
    }
}

impl Display for Way<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (Goal::Port(at) | Goal::Names(at)) = self.to;
        write!(f, "{} ({}) → {} ({at})", self.who, self.from.address, self.whom)
    }
}

/// Each of these ways is open. What was just made may take a moment.
#[track_caller]
pub(super) fn get_through(when: &str, ways: &[Way]) {
    for way in ways {
        poll(10, || way.go().map_err(|fault| format!("{when} this should get through: {way}: {fault}")));
    }
}

/// Each of these ways is closed: not merely that nobody is at its end, who would say so.
#[track_caller]
pub(super) fn stop(ways: &[Way]) {
    let gone = thread::scope(|scope| {
        let all: Vec<_> = ways.iter().map(|way| scope.spawn(move || (way, way.go()))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    let stopped = |fault: &io::Error| matches!(fault.kind(), ErrorKind::HostUnreachable | ErrorKind::TimedOut | ErrorKind::WouldBlock);
    let open = gone.iter().filter(|(_, outcome)| !outcome.as_ref().is_err_and(stopped));
    let open: Vec<_> = open.map(|(way, outcome)| format!("{way}: {outcome:?}")).collect();
    assert!(open.is_empty(), "these should be stopped, and are not:\n{}", open.join("\n"));
}

/// The namespace of no team, while this lives.
struct World(());

impl World {
    fn begin() -> Self {
        kubectl(format!("delete namespace {WORLD} --ignore-not-found --timeout=60s")).ok();
        kubectl(format!("create namespace {WORLD}")).ok();
        Self(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        kubectl(format!("delete namespace {WORLD} --ignore-not-found --wait=false")).run();
    }
}

/// A pod that does nothing. A namespace is good for pods once it has its account.
fn idle(namespace: &str, name: &str, labels: &Value) {
    let context = json!({"runAsNonRoot": true, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}});
    let confined = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let container = json!({"name": "idle", "image": IDLE, "imagePullPolicy": "Never", "securityContext": confined,
        "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": {
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "securityContext": context, "containers": [container],
    }});
    poll(20, || {
        let outcome = kubectl(format!("apply -n {namespace} -f -")).input(&pod).run();
        if outcome.code == Some(0) { Ok(()) } else { Err(outcome.stderr) }
    });
}

/// One of these pods that is ready.
fn running(namespace: &str, labels: &str) -> Value {
    until(&format!("pods -n {namespace} -l {labels}"), 60, |pods| {
        let ready =
            |pod: &&Value| slipway_e2e::condition(pod, "Ready")["status"] == "True" && pod["metadata"]["deletionTimestamp"].is_null();
        pods.iter().find(ready).cloned().ok_or_else(|| "one should be ready".to_owned())
    })
}

fn platform_pod(component: &str) -> IpAddr {
    let pod = running(platform::NAMESPACE, &format!("app.kubernetes.io/component={component}"));
    pod["status"]["podIP"].as_str().and_then(|address| address.parse().ok()).unwrap()
}

fn address(line: &str) -> IpAddr {
    let text = kubectl(line).ok();
    text.trim().parse().unwrap_or_else(|e| panic!("kubectl {line} should print an address, not {text:?}: {e}"))
}

fn service(namespace: &str, name: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address(&format!("get service {name} -n {namespace} -o jsonpath={{.spec.clusterIP}}")), port)
}

fn service_of(agent: &Agent, port: u16) -> SocketAddr {
    service(&agent.team.namespace, &agent.name, port)
}

fn node() -> IpAddr {
    address("get nodes -o jsonpath={.items[0].status.addresses[?(@.type==\"InternalIP\")].address}")
}

/// Where it really is, behind its Service.
fn api_server() -> SocketAddr {
    let slices = kubectl("get endpointslices -n default -l kubernetes.io/service-name=kubernetes").json();
    let slice = &slices["items"][0];
    let address = slice["endpoints"][0]["addresses"][0].as_str().and_then(|address| address.parse().ok());
    let port = slice["ports"][0]["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    match (address, port) {
        (Some(address), Some(port)) => SocketAddr::new(address, port),
        _ => panic!("the API server should say where it is: {slice:#}"),
    }
}
