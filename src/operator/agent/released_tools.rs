//! The Tools and KnowledgeBases of an agent with a gate, and the server of its models where an integration gives it, as its active
//! release and the one that waits name them. Each of these releases keeps them in a ConfigMap, which is made when the release is
//! first seen and they still match it, so that a Tool or an integration may change or be deleted, and a KnowledgeBase may change.
//!
//! The content of the ConfigMap is believed only where it has the digest that the artifact has. Agents without a gate have none.

mod differs;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use slipway_api::integration::ModelEndpoint;
use slipway_api::tool::ToolSpec;
use slipway_api::{Agent, KnowledgeBase, KnowledgeBaseSpec, Tool, ids, labels};
use slipway_cluster::{Guarded, Key, write};
use slipway_release::digest;

pub(super) use differs::Differs;

use super::tracks::Workload;
use super::{MANAGER, candidate, pin};
use crate::caches::{ChildKind, Release, ReleasedTools};
use crate::children::{self, Outcome};
use crate::context::Context;
use crate::fault::ConditionFault;
use crate::integrations;

/// What the API server takes in one ConfigMap.
const MAX_BYTES: usize = 1024 * 1024;

/// The KnowledgeBases that an Agent names, in its order.
type Bases = Vec<(String, Option<Arc<Guarded<KnowledgeBase>>>)>;

/// The Tools and KnowledgeBases that a workload uses, in the order of its Agent, and the server of its models, if it names an
/// integration for that.
pub(super) struct InForce {
    pub tools: Vec<(String, Option<Arc<Guarded<Tool>>>)>,
    pub knowledge_bases: Bases,
    pub model: Option<Result<ModelEndpoint, ConditionFault>>,
    /// How they compare with those that there are, where a release says which they are.
    pub differs: Option<Differs>,
}

/// The ConfigMap of a release. No agent's or skill's ends like that.
fn config_map_name(release: &Release) -> String {
    format!("{}-tools", release.name)
}

fn version(release: &Release) -> u64 {
    release.artifact.metadata.version
}

/// What is kept with a release: its key in the ConfigMap, and its digest. The id of a KnowledgeBase or an integration can be no
/// name of a Tool.
fn entries(release: &Release) -> impl Iterator<Item = (String, &String)> {
    let resolved = &release.artifact.resolved;
    let integrations = resolved.integrations.iter().map(|(name, digest)| (ids::integration(name), digest));
    let bases = resolved.knowledge_bases.iter().map(|(name, digest)| (ids::knowledge_base(name), digest));
    resolved.tools.iter().map(|(name, digest)| (name.clone(), digest)).chain(bases).chain(integrations)
}

fn keeps_any(release: &Release) -> bool {
    entries(release).next().is_some()
}

/// Whether it can be said what was kept with a release.
pub(super) fn is_read(agent: &Agent, release: &Release, context: &Context) -> bool {
    let known = context.caches.released_tools.get(&Key::of(agent));
    !keeps_any(release) || known.is_some_and(|known| known.releases.contains_key(&version(release)))
}

/// Reads what the releases of an Agent with a gate have kept, unless that is known, and makes what is not there.
pub(super) async fn read(agent: &Agent, context: &Context) -> Result<(), write::Error> {
    let (key, cache) = (Key::of(agent), &context.caches.released_tools);
    let active = pin::approved(agent, context).filter(|release| keeps_any(release));
    let pending = pin::pending(agent, context).map(|held| held.release.clone()).filter(|release| keeps_any(release));
    if active.is_none() && pending.is_none() {
        cache.remove(&key);
        return Ok(());
    }
    let before = cache.get(&key);
    let mut known = before.as_deref().cloned().unwrap_or_default();
    let is_named = |digest: &String| [&active, &pending].into_iter().flatten().any(|it| entries(it).any(|(_, of)| of == digest));
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
    let resolved = &release.artifact.resolved;
    let tools = resolved.tools.iter().map(|(name, wanted)| (wanted, present(&Key::new(&agent.namespace, name), context)));
    let integrations = resolved.integrations.iter().map(|(name, wanted)| (wanted, given(&agent.namespace, name, context)));
    let base = |name: &str| context.caches.knowledge_bases.get(&Key::new(&agent.namespace, name));
    let bases = resolved.knowledge_bases.iter().map(|(name, wanted)| (wanted, base(name).and_then(|base| described(&base))));
    for (wanted, now) in tools.chain(bases).chain(integrations) {
        if let Some((digest, text)) = now.filter(|(digest, _)| digest == wanted) {
            known.specs.entry(digest).or_insert(text);
        }
    }
    let is_complete = |release: &Release| entries(release).all(|(_, digest)| known.specs.contains_key(digest));
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
        tracing::warn!(agent = %agent, release = release.name, why, "what a release was made with cannot be kept");
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
    for (name, wanted) in entries(release) {
        let text = found.data["data"][&name].as_str().filter(|text| is_of(text, wanted));
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
    entry(&tool.0.as_ref().ok().filter(|tool| tool.spec.enabled && !tool.spec.lacks_server())?.spec)
}

/// The same of the server of models that an integration gives now.
fn given(namespace: &str, name: &str, context: &Context) -> Option<(String, String)> {
    entry(&integrations::endpoint(&context.caches, namespace, name).ok()?)
}

/// The same of a KnowledgeBase, without its sources.
fn described(base: &Guarded<KnowledgeBase>) -> Option<(String, String)> {
    entry(&base.0.as_ref().ok()?.spec.without_sources())
}

fn entry(of: &impl Serialize) -> Option<(String, String)> {
    let value = serde_json::to_value(of).ok()?;
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
    Some(merged.map_or(tool, |merged| Arc::new(Guarded(Ok(merged)))))
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
    let data = entries(release).map(|(name, digest)| Some((name, known.specs.get(digest)?))).collect::<Option<Vec<_>>>()?;
    let size = data.iter().map(|(name, text)| name.len() + text.len()).sum();
    let data: serde_json::Map<String, Value> = data.into_iter().map(|(name, text)| (name, json!(text))).collect();
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
    let release = releases.find(|release| keeps_any(release) && config_map_name(release) == name)?;
    config_map(&release, &known).map(|(value, _)| value)
}

/// The Tools and KnowledgeBases that a workload uses and the server of its models: those of its release, if there is one that says it.
pub(super) fn in_force(workload: &Workload, context: &Context) -> InForce {
    let agent = Key::of(&*workload.agent);
    let named = workload.agent.spec.tools.iter().map(|name| (name.clone(), Key::new(&agent.namespace, name)));
    let Some(release) = &workload.release else {
        let tools = named.map(|(name, key)| (name, live(&key, context))).collect();
        let knowledge_bases = bases(&workload.agent, context);
        return InForce { tools, knowledge_bases, model: model(&workload.agent, context), differs: None };
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
    let mut knowledge_bases = bases(&workload.agent, context);
    as_kept(&mut knowledge_bases, release, known.as_deref(), &mut differs);
    let (model, integration) = released_model(&workload.agent, release, known.as_deref(), context).unzip();
    differs.integration = integration.flatten();
    InForce { tools, knowledge_bases, model, differs: Some(differs) }
}

/// The KnowledgeBases that an Agent names, as they are now.
fn bases(agent: &Agent, context: &Context) -> Bases {
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    let names = agent.spec.knowledge_bases.iter().map(|reference| ids::knowledge_base_name(reference));
    let found = |name: String| {
        let base = context.caches.knowledge_bases.get(&Key::new(namespace, &*name));
        (name, base)
    };
    names.map(found).collect()
}

/// Puts what a release has in the place of KnowledgeBases that have changed since. One that was deleted is gone: its documents went
/// with it.
fn as_kept(bases: &mut Bases, release: &Release, known: Option<&ReleasedTools>, differs: &mut Differs) {
    for (name, base) in bases {
        let Some(wanted) = release.artifact.resolved.knowledge_bases.get(&*name) else { continue };
        let Some(now) = base.as_deref() else { continue };
        if described(now).is_some_and(|(digest, _)| digest == *wanted) {
            continue;
        }
        let spec: Option<KnowledgeBaseSpec> = known.and_then(|known| serde_json::from_str(known.specs.get(wanted)?).ok());
        if let Some(spec) = spec {
            let mut kept = KnowledgeBase::new(name, spec);
            kept.metadata.namespace = Some(release.artifact.deployment.namespace.clone());
            *base = Some(Arc::new(Guarded(Ok(kept))));
            differs.kept_bases.push(name.clone());
        } else {
            differs.lost_bases.push(name.clone());
        }
    }
}

/// What its integration gives an agent's models now.
fn model(agent: &Agent, context: &Context) -> Option<Result<ModelEndpoint, ConditionFault>> {
    let reference = agent.spec.model_integration.as_deref()?;
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    Some(integrations::model(&context.caches, namespace, reference, agent.spec.model_type))
}

/// A server of models, and what is other than in the release.
type ReleasedModel = (Result<ModelEndpoint, ConditionFault>, Option<(String, bool)>);

/// The server of an agent's models that its release has; and where another one is there now, the integration, and whether that of the
/// release was kept.
fn released_model(agent: &Agent, release: &Release, known: Option<&ReleasedTools>, context: &Context) -> Option<ReleasedModel> {
    let (reference, now) = (agent.spec.model_integration.as_deref()?, model(agent, context)?);
    let name = ids::integration_name(reference);
    let is_other = |wanted: &&String| now.as_ref().ok().and_then(entry).is_none_or(|(digest, _)| digest != **wanted);
    let Some(wanted) = release.artifact.resolved.integrations.get(&name).filter(is_other) else { return Some((now, None)) };
    let kept: Option<ModelEndpoint> = known.and_then(|known| serde_json::from_str(known.specs.get(wanted)?).ok());
    let differs = Some((name, kept.is_some()));
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    Some((kept.map_or(now, |kept| integrations::released(&context.caches, namespace, reference, kept)), differs))
}

/// A Tool with the spec that a release has. Its status counts where it speaks of the same server, and of no list that was
/// approved for another spec.
fn as_released(key: &Key, spec: ToolSpec, now: Option<&Guarded<Tool>>) -> Arc<Guarded<Tool>> {
    let mut tool = Tool::new(&key.name, spec);
    tool.metadata.namespace = Some(key.namespace.clone());
    let now = now.and_then(|now| now.0.as_ref().ok()).filter(|now| now.spec.tools_digest.is_none());
    tool.status = now.and_then(|now| now.status.clone());
    Arc::new(Guarded(Ok(tool)))
}
