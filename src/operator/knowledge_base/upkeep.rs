//! The upkeep of the database of knowledge bases while this process leads: its schema, and the end of bases that no KnowledgeBase
//! has any more. They are found by comparison, so that a database which is away keeps nobody from deleting one; those of Teams
//! that are gone go with the Team's other rows.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use kube::Resource;
use kube::api::Api;
use slipway_api::names::TeamSlug;
use slipway_api::{KnowledgeBase, ids};
use slipway_cluster::{Key, list};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::context::Context;
use crate::registry::Change;
use crate::tenancy::Tenancy;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// How often bases are compared though none is known to have gone, and uploads are looked through.
const COMPARE_INTERVAL: Duration = Duration::from_mins(5);
/// How long a KnowledgeBase is gone before its rows go: in that time a watch has told what there is.
const GRACE: Duration = Duration::from_secs(10);

/// Makes the database, after the platform's, and from then on drops what is owed.
pub(super) async fn run(context: &Context, tenancy: &Tenancy, departure: &Notify) {
    let mut pause = FIRST_PAUSE;
    while !tenancy.is_migrated() {
        tokio::time::sleep(FIRST_PAUSE).await;
    }
    loop {
        match tenancy.migrate_knowledge().await {
            Ok(migrated) => {
                tracing::info!(?migrated, "the schema of the database of knowledge bases is up to date");
                break;
            }
            Err(fault) => {
                tracing::warn!(fault, again_in = ?pause, "the database of knowledge bases could not be brought up to date");
                // Knowledge bases say why.
                context.registry.publish(&Change::Knowledge);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }
    context.registry.publish(&Change::Knowledge);
    let mut found = HashMap::new();
    loop {
        let next = match round(context, tenancy, &mut found, Instant::now()).await {
            Ok(next) => next,
            Err(fault) => {
                tracing::warn!(fault, again_in = ?MAX_PAUSE, "knowledge bases that are gone cannot be dropped yet");
                MAX_PAUSE
            }
        };
        tokio::select! {
            () = tokio::time::sleep(next) => {}
            () = departure.notified() => {}
        }
    }
}

/// Drops the bases that have had their grace; says when to look again.
async fn round(context: &Context, tenancy: &Tenancy, found: &mut HashMap<String, Instant>, now: Instant) -> Result<Duration, String> {
    let bases = tenancy.bases().await?;
    let mut next = COMPARE_INTERVAL;
    let mut strangers = HashSet::new();
    for base in bases {
        let Some(namespace) = home(context, &base.team) else { continue };
        if heard(context, &namespace, &base.uid) {
            continue;
        }
        strangers.insert(base.uid.clone());
        let since = *found.entry(base.uid.clone()).or_insert(now);
        if now < since + GRACE {
            next = next.min(since + GRACE - now);
            continue;
        }
        match asked(context, &namespace).await {
            Some(there) if !there.contains(&base.uid) => {
                tenancy.drop_base(&base.uid).await?;
                tracing::info!(team = base.team, base = base.kb_id, "a knowledge base that is gone was dropped");
            }
            _ => next = next.min(MAX_PAUSE),
        }
    }
    found.retain(|uid, _| strangers.contains(uid));
    tenancy.prune_knowledge().await?;
    Ok(next)
}

/// The namespace of a team that is there, if we hear of all that is in it.
fn home(context: &Context, team: &str) -> Option<String> {
    let namespace = TeamSlug::new(ids::team_slug(team)).ok()?.namespace();
    let watched = &context.settings.watch_namespaces;
    let is_watched = watched.is_empty() || watched.contains(&namespace);
    let is_there = context.caches.teams.get(&Key::new("", ids::team_slug(team))).is_some();
    (is_watched && is_there && context.caches.is_ready()).then_some(namespace)
}

/// Whether a KnowledgeBase of that UID is in the cache. One that cannot be read has its UID all the same.
fn heard(context: &Context, namespace: &str, uid: &str) -> bool {
    context.caches.knowledge_bases.in_namespace(namespace).iter().any(|(_, base)| base.meta().uid.as_deref() == Some(uid))
}

/// The UIDs of a namespace's KnowledgeBases, asked for now: what is deleted does not come back.
async fn asked(context: &Context, namespace: &str) -> Option<HashSet<String>> {
    let api: Api<KnowledgeBase> = Api::namespaced(context.client.clone(), namespace);
    match list::metadata(&api, |base| base.uid.clone().unwrap_or_default()).await {
        Ok(found) => Some(found.into_iter().collect()),
        Err(error) => {
            tracing::warn!(namespace, %error, "which KnowledgeBases there are could not be asked; none is dropped until it can");
            None
        }
    }
}
