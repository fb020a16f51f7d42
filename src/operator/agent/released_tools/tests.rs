//! Tools, KnowledgeBases and servers of models as releases keep them, before a cluster that is played.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Mutex;

use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use slipway_api::{AgentStatus, Track};

use super::*;
use crate::agent::gather;
use crate::agent::pin::tests::{agent_of, release_of};
use crate::agent::tracks;
use crate::caches::HeldRelease;
use crate::testing::context_of;

/// ConfigMaps by name, and what was asked of them.
#[derive(Clone, Default)]
struct Cluster {
    maps: Arc<Mutex<BTreeMap<String, Value>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    /// A manager that has just begun, with these Tools.
    fn context(&self, endpoints: &[(&str, &str)]) -> Arc<Context> {
        let held = self.clone();
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let cluster = held.clone();
            async move {
                let (parts, body) = request.into_parts();
                let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
                cluster.asked.lock().unwrap().push(format!("{} {name}", parts.method));
                if parts.method == Method::PATCH {
                    let body = body.collect().await.unwrap().to_bytes();
                    let mut made: Value = serde_json::from_slice(&body).unwrap();
                    made["metadata"]["uid"] = json!(format!("uid-{name}"));
                    made["metadata"]["resourceVersion"] = json!("7");
                    cluster.maps.lock().unwrap().insert(name.clone(), made);
                }
                let found = cluster.maps.lock().unwrap().get(&name).cloned();
                let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
                let nothing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": ""});
                let body = Body::from(found.unwrap_or(nothing).to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
            }
        });
        let context = context_of(Client::new(server, "default"));
        for (name, endpoint) in endpoints {
            offer(&context, name, endpoint);
        }
        context
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn tool(name: &str, endpoint: &str) -> Tool {
    let spec = json!({"name": name, "description": "d", "type": "http", "category": "api", "endpoint": endpoint});
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": spec})).unwrap()
}

/// Makes a Tool be there.
fn offer(context: &Context, name: &str, endpoint: &str) {
    context.caches.tools.insert(Key::new("team-a", name), Guarded(Ok(tool(name, endpoint))));
}

/// A release that was made when its Tools had these endpoints.
fn release(agent: &Agent, version: u64, endpoints: &[(&str, &str)]) -> Release {
    let mut release = release_of(agent, version);
    let digest = |(name, endpoint): &(&str, &str)| digest(&serde_json::to_value(tool(name, endpoint).spec).unwrap());
    release.artifact.resolved.tools = endpoints.iter().map(|tool| (tool.0.to_owned(), digest(tool))).collect();
    release
}

/// An agent whose release v1 is active.
fn gated() -> Agent {
    let agent = agent_of("tools: [fetch, other], governance: {minQualityScore: 60}");
    Agent { status: Some(AgentStatus { active_release: Some(1), ..AgentStatus::default() }), ..agent }
}

/// The endpoints that a track uses, the Tools that were kept for it, and those that were lost.
fn used(context: &Context, agent: &Agent, track: Track) -> (Vec<String>, Vec<String>, Vec<String>) {
    let workloads = tracks::of(agent, context).expect("it is known what runs").workloads;
    let InForce { tools, differs, .. } = in_force(workloads.iter().find(|it| it.track == track).expect("it has the track"), context);
    let endpoint = |tool: Arc<Guarded<Tool>>| tool.0.as_ref().unwrap().spec.endpoint.clone().unwrap();
    let differs = differs.unwrap_or_default();
    (tools.into_iter().filter_map(|(_, tool)| tool).map(endpoint).collect(), differs.kept, differs.lost)
}

const A: &str = "https://a.example/";
const B: &str = "https://b.example/";

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn what_a_release_was_made_with_stays_whatever_becomes_of_the_tool() {
    let (cluster, agent) = (Cluster::default(), gated());
    let key = Key::of(&agent);
    let active = release(&agent, 1, &[("fetch", A)]);
    let context = cluster.context(&[("fetch", A)]);
    context.caches.pins.insert(key.clone(), active.clone());
    assert!(tracks::of(&agent, &context).is_none(), "it has yet to be read what was kept");
    read(&agent, &context).await.unwrap();
    assert_eq!(cluster.asked(), ["GET helper-v1-tools", "PATCH helper-v1-tools"]);
    read(&agent, &context).await.unwrap();
    assert!(cluster.asked().is_empty(), "it is known");
    let made = cluster.maps.lock().unwrap()["helper-v1-tools"].clone();
    assert_eq!((&made["immutable"], &made["metadata"]["ownerReferences"][0]["uid"]), (&json!(true), &json!("r1")));
    assert!(desired(&context, &agent, "helper-v1-tools").is_some() && desired(&context, &agent, "other-tools").is_none());
    assert_eq!(used(&context, &agent, Track::Stable), (names(&[A]), vec![], vec![]));
    offer(&context, "fetch", B);
    assert_eq!(used(&context, &agent, Track::Stable), (names(&[A]), names(&["fetch"]), vec![]), "it was edited");
    offer(&context, "other", B);
    assert_eq!(used(&context, &agent, Track::Stable), (names(&[A]), names(&["fetch", "other"]), vec![]), "it was switched on");
    context.caches.tools.remove(&Key::new("team-a", "fetch"));
    context.caches.tools.remove(&Key::new("team-a", "other"));
    assert_eq!(used(&context, &agent, Track::Stable), (names(&[A]), names(&["fetch"]), vec![]), "it was deleted");
    // Another manager reads what was kept.
    let later = cluster.context(&[("fetch", B)]);
    later.caches.pins.insert(key.clone(), active.clone());
    read(&agent, &later).await.unwrap();
    assert_eq!(used(&later, &agent, Track::Stable), (names(&[A]), names(&["fetch"]), vec![]));
    // Of an agent without a gate nothing is kept.
    let free = agent_of("tools: [fetch]");
    read(&free, &later).await.unwrap();
    assert!(later.caches.released_tools.get(&key).is_none());
    cluster.asked();
    read(&free, &later).await.unwrap();
    assert_eq!((used(&later, &free, Track::Stable), cluster.asked()), ((names(&[B]), vec![], vec![]), vec![]));
}

#[tokio::test]
async fn only_what_has_the_digest_of_the_release_is_believed() {
    let (cluster, agent) = (Cluster::default(), gated());
    let forged = serde_json::to_value(tool("fetch", B).spec).unwrap().to_string();
    let map = json!({"metadata": {"name": "helper-v1-tools"}, "data": {"fetch": forged}});
    cluster.maps.lock().unwrap().insert("helper-v1-tools".to_owned(), map);
    let context = cluster.context(&[("fetch", B)]);
    context.caches.pins.insert(Key::of(&agent), release(&agent, 1, &[("fetch", A)]));
    read(&agent, &context).await.unwrap();
    assert_eq!(used(&context, &agent, Track::Stable), (names(&[B]), vec![], names(&["fetch"])), "it is as it was before gates kept Tools");
    assert_eq!(cluster.asked(), ["GET helper-v1-tools"], "what was cannot be told");
    // The Tool is what it was: now it can be.
    offer(&context, "fetch", A);
    cluster.maps.lock().unwrap().clear();
    context.caches.released_tools.remove(&Key::of(&agent));
    read(&agent, &context).await.unwrap();
    assert_eq!(cluster.asked(), ["GET helper-v1-tools", "PATCH helper-v1-tools"]);
}

#[tokio::test]
async fn a_candidate_uses_what_its_release_names_and_the_stable_track_what_is_approved() {
    let (cluster, mut agent) = (Cluster::default(), gated());
    let key = Key::of(&agent);
    let context = cluster.context(&[("fetch", A)]);
    context.caches.pins.insert(key.clone(), release(&agent, 1, &[("fetch", A)]));
    read(&agent, &context).await.unwrap();
    offer(&context, "fetch", B);
    let status = agent.status.as_mut().unwrap();
    (status.pending_release, status.pending_evaluation) = (Some(2), Some("ev-2".to_owned()));
    let pending = Arc::new(release(&agent, 2, &[("fetch", B)]));
    context.caches.held.insert(key.clone(), HeldRelease { run: "ev-2".to_owned(), release: pending.clone() });
    read(&agent, &context).await.unwrap();
    assert_eq!(used(&context, &agent, Track::Stable).0, [A]);
    assert_eq!(used(&context, &agent, Track::Candidate), (names(&[B]), vec![], vec![]));
    offer(&context, "fetch", "https://c.example/");
    assert_eq!((used(&context, &agent, Track::Stable).0, used(&context, &agent, Track::Candidate).0), (names(&[A]), names(&[B])));
    // It has passed.
    agent.status = Some(AgentStatus { active_release: Some(2), ..AgentStatus::default() });
    context.caches.pins.insert(key.clone(), (*pending).clone());
    cluster.asked();
    read(&agent, &context).await.unwrap();
    assert_eq!((used(&context, &agent, Track::Stable).0, cluster.asked()), (names(&[B]), vec![]));
    assert_eq!(context.caches.released_tools.get(&key).unwrap().specs.len(), 1, "what nobody uses is forgotten");
    // One whose Tool had changed before it was seen has none to be evaluated with.
    let status = agent.status.as_mut().unwrap();
    (status.pending_release, status.pending_evaluation) = (Some(3), Some("ev-3".to_owned()));
    let release = release(&agent, 3, &[("fetch", "https://d.example/")]).into();
    context.caches.held.insert(key.clone(), HeldRelease { run: "ev-3".to_owned(), release });
    read(&agent, &context).await.unwrap();
    assert_eq!(used(&context, &agent, Track::Candidate).2, ["fetch"]);
}

#[tokio::test]
async fn what_is_too_large_for_a_config_map_is_said() {
    let (cluster, agent) = (Cluster::default(), gated());
    let large = format!("{A}{}", "a".repeat(MAX_BYTES));
    let context = cluster.context(&[("fetch", &large)]);
    context.caches.pins.insert(Key::of(&agent), release(&agent, 1, &[("fetch", &large)]));
    read(&agent, &context).await.unwrap();
    assert_eq!(cluster.asked(), ["GET helper-v1-tools"]);
    let workloads = tracks::of(&agent, &context).unwrap().workloads;
    let finding = in_force(&workloads[0], &context).differs.unwrap().finding().unwrap();
    assert_eq!((finding.holds, &*finding.reason), (Some(false), "CannotBeKept"), "{finding:?}");
}

#[test]
fn what_was_approved_for_another_list_of_tools_does_not_count() {
    let of = |extra: Value| -> Tool {
        let mut spec = json!({"name": "t", "description": "d", "type": "mcp", "category": "mcp", "mcpEndpoint": A});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let status = json!({"toolsServer": A, "toolsDigest": "sha256:1"});
        serde_json::from_value(json!({"metadata": {"name": "t"}, "spec": spec, "status": status})).unwrap()
    };
    let released = of(json!({})).spec;
    let status =
        |now: Tool| as_released(&Key::new("team-a", "t"), released.clone(), Some(&Guarded(Ok(now)))).0.as_ref().unwrap().status.clone();
    assert!(status(of(json!({"timeout": 5}))).is_some());
    assert!(status(of(json!({"toolsDigest": "sha256:1"}))).is_none());
}

/// Makes the integration of models be there, with a login for `pinned` alone. With `own` that is the Secret `in-llm`.
fn offer_models(context: &Context, url: &str, pinned: &str, own: bool) {
    let mut spec = json!({"name": "L", "openai": {"baseUrl": url}});
    let mut status = json!({"observedGeneration": 1, "credentialKeys": ["api_key"]});
    if own {
        (status["origin"], status["credentials"]) = (json!(pinned.trim_end_matches('/')), json!("5eef"));
    } else {
        spec["credentialsSecret"] = json!("keys");
    }
    let integration = json!({"metadata": {"name": "llm", "namespace": "team-a"}, "spec": spec, "status": status});
    context.caches.integrations.insert(Key::new("team-a", "llm"), Guarded(Ok(serde_json::from_value(integration).unwrap())));
}

/// An agent whose models are asked where its integration says, and whose release v1 is active.
fn gated_models() -> Agent {
    let agent = agent_of("modelType: openai, modelId: m, modelIntegration: in_llm, governance: {minQualityScore: 60}");
    Agent { status: Some(AgentStatus { active_release: Some(1), ..AgentStatus::default() }), ..agent }
}

/// A release that was made when the integration had this server.
fn release_with_models(agent: &Agent, version: u64, url: &str, secret: &str) -> Release {
    let mut release = release_of(agent, version);
    let endpoint = json!({"baseUrl": url, "key": [secret, "api_key"]});
    release.artifact.resolved.integrations = BTreeMap::from([("llm".to_owned(), digest(&endpoint))]);
    release
}

/// The server that a track asks, or why it asks none; and whether another one than there is now was kept for it.
fn asked_models(context: &Context, agent: &Agent, track: Track) -> (Result<String, &'static str>, Option<bool>) {
    let workloads = tracks::of(agent, context).expect("it is known what runs").workloads;
    let InForce { model, differs, .. } = in_force(workloads.iter().find(|it| it.track == track).expect("it has the track"), context);
    let differs = differs.and_then(|differs| differs.integration);
    assert!(differs.as_ref().is_none_or(|(name, _)| name == "llm"), "{differs:?}");
    let model = model.expect("it names an integration");
    (model.map(|model| model.base_url).map_err(|fault| fault.reason), differs.map(|(_, is_kept)| is_kept))
}

#[tokio::test]
async fn models_are_asked_where_the_release_says_until_another_passes() {
    let (cluster, mut agent) = (Cluster::default(), gated_models());
    let key = Key::of(&agent);
    let context = cluster.context(&[]);
    offer_models(&context, A, "", false);
    context.caches.pins.insert(key.clone(), release_with_models(&agent, 1, A, "keys"));
    assert!(tracks::of(&agent, &context).is_none(), "it has yet to be read what was kept");
    read(&agent, &context).await.unwrap();
    assert_eq!(cluster.asked(), ["GET helper-v1-tools", "PATCH helper-v1-tools"]);
    let made = cluster.maps.lock().unwrap()["helper-v1-tools"]["data"].clone();
    let kept: Value = serde_json::from_str(made["in_llm"].as_str().unwrap()).unwrap();
    assert_eq!((kept, made.as_object().unwrap().len()), (json!({"baseUrl": A, "key": ["keys", "api_key"]}), 1));
    let server = |url: &str| Ok(url.to_owned());
    assert_eq!(asked_models(&context, &agent, Track::Stable), (server(A), None));
    offer_models(&context, B, "", false);
    assert_eq!(asked_models(&context, &agent, Track::Stable), (server(A), Some(true)), "it names another host");
    let finding = in_force(&tracks::of(&agent, &context).unwrap().workloads[0], &context).differs.unwrap().finding().unwrap();
    assert_eq!((finding.holds, &*finding.reason), (Some(true), "IntegrationChanged"), "{finding:?}");
    // Another manager reads what was kept.
    let later = cluster.context(&[]);
    later.caches.pins.insert(key.clone(), release_with_models(&agent, 1, A, "keys"));
    read(&agent, &later).await.unwrap();
    assert_eq!(asked_models(&later, &agent, Track::Stable), (server(A), Some(true)), "it was deleted");
    // The release with the new host is evaluated there, and when it has passed, what serves follows.
    let status = agent.status.as_mut().unwrap();
    (status.pending_release, status.pending_evaluation) = (Some(2), Some("ev-2".to_owned()));
    let pending = release_with_models(&agent, 2, B, "keys");
    context.caches.held.insert(key.clone(), HeldRelease { run: "ev-2".to_owned(), release: Arc::new(pending.clone()) });
    read(&agent, &context).await.unwrap();
    assert_eq!(asked_models(&context, &agent, Track::Stable), (server(A), Some(true)));
    assert_eq!(asked_models(&context, &agent, Track::Candidate), (server(B), None));
    agent.status = Some(AgentStatus { active_release: Some(2), ..AgentStatus::default() });
    context.caches.pins.insert(key.clone(), pending);
    read(&agent, &context).await.unwrap();
    assert_eq!(asked_models(&context, &agent, Track::Stable), (server(B), None));
}

#[tokio::test]
async fn a_server_that_was_not_kept_is_the_one_that_there_is() {
    let (cluster, agent) = (Cluster::default(), gated_models());
    let forged = json!({"baseUrl": B, "key": ["keys", "api_key"]}).to_string();
    let map = json!({"metadata": {"name": "helper-v1-tools"}, "data": {"in_llm": forged}});
    cluster.maps.lock().unwrap().insert("helper-v1-tools".to_owned(), map);
    let context = cluster.context(&[]);
    offer_models(&context, "https://c.example/", "", false);
    context.caches.pins.insert(Key::of(&agent), release_with_models(&agent, 1, A, "keys"));
    read(&agent, &context).await.unwrap();
    assert_eq!(asked_models(&context, &agent, Track::Stable), (Ok("https://c.example/".to_owned()), Some(false)));
    let differs = in_force(&tracks::of(&agent, &context).unwrap().workloads[0], &context).differs.unwrap();
    assert_eq!((&*differs.finding().unwrap().reason, differs.named(false).as_str()), ("NotKept", "Integration llm"));
}

#[tokio::test]
async fn the_login_of_an_integration_follows_no_kept_server() {
    let (cluster, agent) = (Cluster::default(), gated_models());
    let context = cluster.context(&[]);
    offer_models(&context, A, A, true);
    context.caches.pins.insert(Key::of(&agent), release_with_models(&agent, 1, A, "in-llm"));
    read(&agent, &context).await.unwrap();
    assert_eq!(asked_models(&context, &agent, Track::Stable), (Ok(A.to_owned()), None));
    offer_models(&context, B, A, true);
    assert_eq!(asked_models(&context, &agent, Track::Stable), (Ok(A.to_owned()), Some(true)), "its login is for the old host still");
    offer_models(&context, B, B, true);
    let refused = (Err(slipway_api::integration::ANOTHER_HOST), Some(true));
    assert_eq!(asked_models(&context, &agent, Track::Stable), refused, "what was written anew is for the new one");
    context.caches.integrations.remove(&Key::new("team-a", "llm"));
    assert_eq!(asked_models(&context, &agent, Track::Stable), refused, "nobody says whose it is");
}

fn base(description: &str, source: &str) -> KnowledgeBase {
    let spec = json!({"name": "Docs", "description": description, "sources": [{"name": source, "local": {"path": "/"}}]});
    serde_json::from_value(json!({"metadata": {"name": "docs", "namespace": "team-a"}, "spec": spec})).unwrap()
}

/// Makes the KnowledgeBase be there.
fn offer_base(context: &Context, description: &str, source: &str) {
    context.caches.knowledge_bases.insert(Key::new("team-a", "docs"), Guarded(Ok(base(description, source))));
}

/// An agent that searches a knowledge base, and whose release v1 is active.
fn gated_base(further: &str) -> Agent {
    let agent = agent_of(&format!("knowledgeBases: [kb_docs], {further} governance: {{minQualityScore: 60}}"));
    Agent { status: Some(AgentStatus { active_release: Some(1), ..AgentStatus::default() }), ..agent }
}

/// A release that was made when the KnowledgeBase had this description, and Tools these endpoints.
fn release_with_base(agent: &Agent, version: u64, description: &str, endpoints: &[(&str, &str)]) -> Release {
    let mut release = release(agent, version, endpoints);
    let digest = digest(&serde_json::to_value(base(description, "any").spec.without_sources()).unwrap());
    release.artifact.resolved.knowledge_bases = BTreeMap::from([("docs".to_owned(), digest)]);
    release
}

/// What a track is told of the knowledge base, if there is one; and what is said of that.
type Told = (Option<String>, Option<(Option<bool>, String)>);

fn told(context: &Context, agent: &Agent, track: Track) -> Told {
    let workloads = tracks::of(agent, context).expect("it is known what runs").workloads;
    let seen = gather::gather(workloads.iter().find(|it| it.track == track).expect("it has the track"), context);
    let [(name, base)] = &seen.knowledge_bases[..] else { panic!("it names one") };
    assert_eq!(name, "docs");
    let description = base.as_ref().map(|base| base.0.as_ref().unwrap().spec.description.clone().unwrap());
    let finding = seen.differs.as_ref().and_then(Differs::finding);
    (description, finding.map(|finding| (finding.holds, finding.reason)))
}

#[tokio::test]
async fn a_knowledge_base_is_as_released_until_another_release_passes() {
    let (cluster, mut agent) = (Cluster::default(), gated_base(""));
    let key = Key::of(&agent);
    let context = cluster.context(&[]);
    offer_base(&context, "one", "first");
    context.caches.pins.insert(key.clone(), release_with_base(&agent, 1, "one", &[]));
    assert!(tracks::of(&agent, &context).is_none(), "it has yet to be read what was kept");
    read(&agent, &context).await.unwrap();
    assert_eq!(cluster.asked(), ["GET helper-v1-tools", "PATCH helper-v1-tools"]);
    let made = cluster.maps.lock().unwrap()["helper-v1-tools"]["data"].clone();
    let kept: Value = serde_json::from_str(made["kb_docs"].as_str().unwrap()).unwrap();
    let wanted = json!({"name": "Docs", "description": "one", "chunkSize": 512, "chunkOverlap": 50});
    assert_eq!((kept, made.as_object().unwrap().len()), (wanted, 1));
    let is = |description: &str| -> Told { (Some(description.to_owned()), None) };
    let kept = || -> Told { (Some("one".to_owned()), Some((Some(true), "KnowledgeBasesChanged".to_owned()))) };
    offer_base(&context, "one", "second");
    assert_eq!(told(&context, &agent, Track::Stable), is("one"), "a release does not have the sources");
    offer_base(&context, "two", "second");
    assert_eq!(told(&context, &agent, Track::Stable), kept(), "it was edited");
    context.caches.knowledge_bases.remove(&Key::new("team-a", "docs"));
    assert_eq!(told(&context, &agent, Track::Stable), (None, None), "its documents have gone with it");
    offer_base(&context, "two", "first");
    assert_eq!(told(&context, &agent, Track::Stable), kept(), "it was made again");
    // Another manager reads what was kept.
    let later = cluster.context(&[]);
    offer_base(&later, "two", "first");
    later.caches.pins.insert(key.clone(), release_with_base(&agent, 1, "one", &[]));
    read(&agent, &later).await.unwrap();
    assert_eq!(told(&later, &agent, Track::Stable), kept());
    // The release with the edited one is evaluated with it, and when it has passed, what serves follows.
    let status = agent.status.as_mut().unwrap();
    (status.pending_release, status.pending_evaluation) = (Some(2), Some("ev-2".to_owned()));
    let pending = release_with_base(&agent, 2, "two", &[]);
    context.caches.held.insert(key.clone(), HeldRelease { run: "ev-2".to_owned(), release: Arc::new(pending.clone()) });
    read(&agent, &context).await.unwrap();
    assert_eq!((told(&context, &agent, Track::Stable), told(&context, &agent, Track::Candidate)), (kept(), is("two")));
    agent.status = Some(AgentStatus { active_release: Some(2), ..AgentStatus::default() });
    context.caches.pins.insert(key.clone(), pending);
    read(&agent, &context).await.unwrap();
    assert_eq!(told(&context, &agent, Track::Stable), is("two"));
    // Without a gate it is as it is.
    let free = agent_of("knowledgeBases: [docs]");
    offer_base(&context, "three", "first");
    read(&free, &context).await.unwrap();
    assert_eq!(told(&context, &free, Track::Stable), is("three"));
}

#[tokio::test]
async fn a_knowledge_base_that_was_not_kept_is_as_it_is() {
    let (cluster, agent) = (Cluster::default(), gated_base("tools: [fetch],"));
    let key = Key::of(&agent);
    // A version that kept Tools alone has made it.
    let text = serde_json::to_value(tool("fetch", A).spec).unwrap().to_string();
    let map = json!({"metadata": {"name": "helper-v1-tools"}, "data": {"fetch": text}});
    cluster.maps.lock().unwrap().insert("helper-v1-tools".to_owned(), map);
    let context = cluster.context(&[("fetch", B)]);
    offer_base(&context, "two", "first");
    context.caches.pins.insert(key.clone(), release_with_base(&agent, 1, "one", &[("fetch", A)]));
    read(&agent, &context).await.unwrap();
    assert_eq!(cluster.asked(), ["GET helper-v1-tools"], "what was cannot be told");
    assert_eq!(told(&context, &agent, Track::Stable), (Some("two".to_owned()), Some((Some(false), "NotKept".to_owned()))));
    let differs = in_force(&tracks::of(&agent, &context).unwrap().workloads[0], &context).differs.unwrap();
    assert_eq!((differs.named(false).as_str(), differs.named(true).as_str()), ("KnowledgeBase docs", "Tool fetch"));
    // It is what it was: now it is kept beside the Tool.
    offer_base(&context, "one", "first");
    context.caches.released_tools.remove(&key);
    read(&agent, &context).await.unwrap();
    assert_eq!(cluster.asked(), ["GET helper-v1-tools", "PATCH helper-v1-tools"]);
    let made = cluster.maps.lock().unwrap()["helper-v1-tools"]["data"].clone();
    assert_eq!(made.as_object().unwrap().keys().collect::<Vec<_>>(), ["fetch", "kb_docs"]);
    offer_base(&context, "two", "first");
    assert_eq!((told(&context, &agent, Track::Stable).0, used(&context, &agent, Track::Stable).0), (Some("one".to_owned()), names(&[A])));
}
