//! The Tools of an agent with a gate, as its active release and the one that waits name them. Each of these releases keeps them in
//! a ConfigMap, made when the release is first seen and its Tools are what it names, so that a Tool may change or go.
//!
//! What stands there is believed only where it has the digest that the artifact has. Other agents have no such ConfigMap.

use std::sync::Arc;

use kube::core::DeserializeGuard;
use serde_json::{Value, json};
use slipway_api::condition::{Finding, TOOLS_AS_RELEASED};
use slipway_api::tool::ToolSpec;
use slipway_api::{Agent, Tool, labels};
use slipway_cluster::cached::Guarded;
use slipway_cluster::{Key, write};
use slipway_release::digest;

use super::tracks::Workload;
use super::{MANAGER, candidate, pin};
use crate::caches::{ChildKind, Release, ReleasedTools};
use crate::children::{self, Outcome};
use crate::context::Context;
use crate::integrations;

/// What the API server takes in one ConfigMap.
const MAX_BYTES: usize = 1024 * 1024;

/// The Tools that a workload uses, in the order of its Agent.
pub(super) struct InForce {
    pub tools: Vec<(String, Option<Arc<Guarded<Tool>>>)>,
    /// How they compare with those that there are, where a release says which they are.
    pub differs: Option<Differs>,
}

/// What of a release's Tools is something else now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differs {
    pub version: u64,
    /// Used as the release has them.
    pub kept: Vec<String>,
    /// Not kept, so that they can only be used as they are now.
    pub lost: Vec<String>,
    /// Why they are kept in memory alone.
    pub trouble: Option<String>,
}

impl Differs {
    pub(super) fn finding(&self) -> Option<Finding> {
        let Self { version, kept, lost, trouble } = self;
        let names = |names: &[String]| format!("Tool{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", "));
        if !lost.is_empty() {
            let message = format!(
                "{}: changed or removed since release v{version}, which did not keep what it was; pods use what is there now, approved or not",
                names(lost)
            );
            return Some(Finding::new(TOOLS_AS_RELEASED, false, "NotKept", message));
        }
        if let Some(why) = trouble {
            let message = format!(
                "the Tools of release v{version} cannot be kept, so that a change of them reaches pods when the manager is restarted: {why}"
            );
            return Some(Finding::new(TOOLS_AS_RELEASED, false, "CannotBeKept", message));
        }
        let message = || format!("{}: changed or removed since; pods go on with what release v{version} has", names(kept));
        (!kept.is_empty()).then(|| Finding::new(TOOLS_AS_RELEASED, true, "ToolsChanged", message()))
    }
}

/// The ConfigMap of a release. No agent's or skill's ends like that.
fn config_map_name(release: &Release) -> String {
    format!("{}-tools", release.name)
}

fn version(release: &Release) -> u64 {
    release.artifact.metadata.version
}

fn names_tools(release: &Release) -> bool {
    !release.artifact.resolved.tools.is_empty()
}

/// Whether it can be said which Tools of a release were kept.
pub(super) fn is_read(agent: &Agent, release: &Release, context: &Context) -> bool {
    let known = context.caches.released_tools.get(&Key::of(agent));
    !names_tools(release) || known.is_some_and(|known| known.releases.contains_key(&version(release)))
}

/// Reads what the releases of an Agent with a gate have kept, unless that is known, and makes what is not there.
pub(super) async fn read(agent: &Agent, context: &Context) -> Result<(), write::Error> {
    let (key, cache) = (Key::of(agent), &context.caches.released_tools);
    let active = pin::approved(agent, context).filter(|release| names_tools(release));
    let pending = pin::pending(agent, context).map(|held| held.release.clone()).filter(|release| names_tools(release));
    if active.is_none() && pending.is_none() {
        cache.remove(&key);
        return Ok(());
    }
    let before = cache.get(&key);
    let mut known = before.as_deref().cloned().unwrap_or_default();
    let is_named =
        |digest: &String| [&active, &pending].into_iter().flatten().any(|it| it.artifact.resolved.tools.values().any(|of| of == digest));
    known.specs.retain(|digest, _| is_named(digest));
    known.releases.retain(|of, _| [&active, &pending].into_iter().flatten().any(|it| version(it) == *of));
    for (release, is_active) in [(active, true), (pending, false)] {
        if let Some(release) = release {
            read_one(&key, release, is_active, &mut known, context).await?;
        }
    }
    if before.as_deref() != Some(&known) {
        cache.insert(key, known);
    }
    Ok(())
}

async fn read_one(
    agent: &Key,
    mut release: Arc<Release>,
    is_active: bool,
    known: &mut ReleasedTools,
    context: &Context,
) -> Result<(), write::Error> {
    let version = version(&release);
    let is_new = !known.releases.contains_key(&version);
    let mut is_there = is_there(agent, &release, context);
    if is_new {
        is_there &= stored(agent, &release, known, context).await?;
    } else if is_there {
        return Ok(());
    }
    for (name, wanted) in &release.artifact.resolved.tools {
        if !known.specs.contains_key(wanted)
            && let Some((digest, text)) = present(&Key::new(&agent.namespace, name), context)
            && digest == *wanted
        {
            known.specs.insert(digest, text);
        }
    }
    let is_complete = |release: &Release| release.artifact.resolved.tools.values().all(|digest| known.specs.contains_key(digest));
    if is_there || !is_complete(&release) {
        known.releases.insert(version, None);
        return Ok(());
    }
    if !is_new && is_active {
        // It may have gone with an AgentRelease that somebody has deleted, in whose place there is another.
        match pin::read_again(agent, version, context).await? {
            Some(again) if again.artifact == release.artifact => release = again,
            _ => return Ok(()),
        }
    }
    let trouble = keep(&release, known, context).await?;
    if let Some(why) = trouble.as_ref().filter(|_| known.releases.get(&version) != Some(&trouble)) {
        tracing::warn!(agent = %agent, release = release.name, why, "the Tools of a release cannot be kept");
    }
    known.releases.insert(version, trouble);
    Ok(())
}

/// Whether the ConfigMap is there, and nobody has made something else of it.
fn is_there(agent: &Key, release: &Release, context: &Context) -> bool {
    let child = context.caches.children(ChildKind::ConfigMap).get(&Key::new(&agent.namespace, config_map_name(release)));
    child.is_some_and(|child| {
        child.owner.as_deref() == Some(&*release.uid) && !child.deleting && (child.matches_hash.is_some() || !child.compared)
    })
}

/// Takes from the ConfigMap what has a digest of the release; says whether that is all of it.
async fn stored(agent: &Key, release: &Release, known: &mut ReleasedTools, context: &Context) -> Result<bool, write::Error> {
    let api = children::api(context, ChildKind::ConfigMap, &agent.namespace);
    let Some(found) = api.get_opt(&config_map_name(release)).await? else { return Ok(false) };
    let mut is_all = true;
    for (name, wanted) in &release.artifact.resolved.tools {
        let text = found.data["data"][name].as_str().filter(|text| is_of(text, wanted));
        is_all &= text.is_some();
        if let Some(text) = text {
            known.specs.insert(wanted.clone(), text.to_owned());
        }
    }
    Ok(is_all)
}

fn is_of(text: &str, wanted: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|spec| digest(&spec) == *wanted)
}

/// Of a Tool as it is, the digest that a release would have, and its spec as JSON. None of one that is switched off, and of one whose
/// integration gives it nothing.
fn present(key: &Key, context: &Context) -> Option<(String, String)> {
    let tool = live(key, context)?;
    let spec = &tool.0.as_ref().ok().filter(|tool| tool.spec.enabled && !tool.spec.lacks_server())?.spec;
    let value = serde_json::to_value(spec).ok()?;
    Some((digest(&value), value.to_string()))
}

/// A Tool as it is now, with what its integration gives. Where that is nothing, it is as it was written.
fn live(key: &Key, context: &Context) -> Option<Arc<Guarded<Tool>>> {
    let tool = context.caches.tools.get(key)?;
    let merged = match &tool.0 {
        Ok(read) if read.spec.lacks_server() => {
            let spec = integrations::tool(&context.caches, &key.namespace, &read.spec).ok();
            spec.map(|spec| Tool { spec, ..read.clone() })
        }
        _ => None,
    };
    Some(merged.map_or(tool, |merged| Arc::new(DeserializeGuard(Ok(merged)))))
}

/// Makes the ConfigMap; why not, where it cannot be.
async fn keep(release: &Release, known: &ReleasedTools, context: &Context) -> Result<Option<String>, write::Error> {
    let name = config_map_name(release);
    let Some((value, size)) = config_map(release, known) else { return Ok(None) };
    if size > MAX_BYTES {
        return Ok(Some(format!("they have {size} bytes, and a ConfigMap takes {MAX_BYTES}")));
    }
    Ok(match children::apply(context, ChildKind::ConfigMap, &release.uid, &value, MANAGER).await? {
        Outcome::Taken => Some(format!("ConfigMap {name} exists and does not belong to the release; delete it")),
        Outcome::Left => Some(format!("ConfigMap {name} of an earlier release of this name has yet to go")),
        Outcome::Refused(why) => Some(format!("the API server refused ConfigMap {name}: {why}")),
        Outcome::Unchanged | Outcome::Created | Outcome::Updated | Outcome::Repaired => None,
    })
}

/// The ConfigMap and the size of its data, if all is known that belongs into it.
fn config_map(release: &Release, known: &ReleasedTools) -> Option<(Value, usize)> {
    let tools = &release.artifact.resolved.tools;
    let data = tools.iter().map(|(name, digest)| Some((name, known.specs.get(digest)?))).collect::<Option<Vec<_>>>()?;
    let size = data.iter().map(|(name, text)| name.len() + text.len()).sum();
    let data: serde_json::Map<String, Value> = data.into_iter().map(|(name, text)| (name.clone(), json!(text))).collect();
    let agent = &release.artifact.metadata.name;
    let value = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": config_map_name(release),
            "namespace": release.artifact.deployment.namespace,
            "labels": {
                labels::NAME: agent,
                labels::PART_OF: labels::PLATFORM,
                labels::MANAGED_BY: labels::OPERATOR,
                labels::AGENT: agent,
            },
            "ownerReferences": [candidate::owner(release)],
        },
        "immutable": true,
        "data": data,
    });
    Some((value, size))
}

/// What the ConfigMap of this name should be, if it is one of an Agent's releases and that can be said.
pub(super) fn desired(context: &Context, agent: &Agent, name: &str) -> Option<Value> {
    let known = context.caches.released_tools.get(&Key::of(agent))?;
    let pending = pin::pending(agent, context).map(|held| held.release.clone());
    let mut releases = [pin::approved(agent, context), pending].into_iter().flatten();
    let release = releases.find(|release| names_tools(release) && config_map_name(release) == name)?;
    config_map(&release, &known).map(|(value, _)| value)
}

/// The Tools that a workload uses: those of its release, if there is one that says it.
pub(super) fn in_force(workload: &Workload, context: &Context) -> InForce {
    let agent = Key::of(&*workload.agent);
    let named = workload.agent.spec.tools.iter().map(|name| (name.clone(), Key::new(&agent.namespace, name)));
    let Some(release) = &workload.release else {
        return InForce { tools: named.map(|(name, key)| (name, live(&key, context))).collect(), differs: None };
    };
    let known = context.caches.released_tools.get(&agent);
    let mut differs = Differs { version: version(release), ..Differs::default() };
    differs.trouble = known.as_ref().and_then(|known| known.releases.get(&differs.version).cloned().flatten());
    let mut tools = Vec::new();
    for (name, key) in named {
        let now = present(&key, context).map(|(digest, _)| digest);
        let wanted = release.artifact.resolved.tools.get(&name);
        let tool = live(&key, context);
        match (wanted, now) {
            // It was switched off.
            (None, None) => {}
            (None, Some(_)) => differs.kept.push(name),
            (Some(wanted), now) if now.as_ref() == Some(wanted) => tools.push((name, tool)),
            (Some(wanted), _) => {
                let spec = known.as_ref().and_then(|known| serde_json::from_str(known.specs.get(wanted)?).ok());
                if spec.is_some() { &mut differs.kept } else { &mut differs.lost }.push(name.clone());
                let tool = if let Some(spec) = spec { Some(as_released(&key, spec, tool.as_deref())) } else { tool };
                tools.push((name, tool));
            }
        }
    }
    InForce { tools, differs: Some(differs) }
}

/// A Tool with the spec that a release has. Its status counts where it speaks of the same server, and of no list that was
/// approved for another spec.
fn as_released(key: &Key, spec: ToolSpec, now: Option<&Guarded<Tool>>) -> Arc<Guarded<Tool>> {
    let mut tool = Tool::new(&key.name, spec);
    tool.metadata.namespace = Some(key.namespace.clone());
    let now = now.and_then(|now| now.0.as_ref().ok()).filter(|now| now.spec.tools_digest.is_none());
    tool.status = now.and_then(|now| now.status.clone());
    Arc::new(DeserializeGuard(Ok(tool)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::Mutex;

    use http::{Method, Response, StatusCode};
    use http_body_util::BodyExt;
    use kube::Client;
    use kube::client::Body;
    use slipway_api::{AgentStatus, Track};

    use super::*;
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
        context.caches.tools.insert(Key::new("team-a", name), DeserializeGuard(Ok(tool(name, endpoint))));
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
        let InForce { tools, differs } = in_force(workloads.iter().find(|it| it.track == track).expect("it has the track"), context);
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
        assert_eq!(
            used(&context, &agent, Track::Stable),
            (names(&[B]), vec![], names(&["fetch"])),
            "it is as it was before gates kept Tools"
        );
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
        let status = |now: Tool| {
            as_released(&Key::new("team-a", "t"), released.clone(), Some(&DeserializeGuard(Ok(now)))).0.as_ref().unwrap().status.clone()
        };
        assert!(status(of(json!({"timeout": 5}))).is_some());
        assert!(status(of(json!({"toolsDigest": "sha256:1"}))).is_none());
    }
}
