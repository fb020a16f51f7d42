//! The four policies that a team begins with: made once, and its admins' from then on. What was deleted stays deleted.
//!
//! The Team's status says which were made, written after that. Each is made with a finalizer, which goes once the status has its
//! name: one that is deleted in between is still there for the next leader to find, and is not made twice. The name is
//! written under a field manager of its own, so that an earlier version of the manager does not take it out of the status.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use slipway_api::guardrail_policy::{DEFAULT_NAMES, GuardrailPolicySpec, defaults};
use slipway_api::{GuardrailPolicy, Team};
use slipway_cluster::event::EventSpec;
use slipway_cluster::quota::{is_quota_conflict, retry_on_quota_conflict};
use slipway_cluster::{Guarded, Key, write};

use super::{MANAGER, namespace};
use crate::caches::ChildKind;
use crate::caches::guardrail_policy::{CachedPolicy, UNRECORDED};
use crate::context::Context;

/// The field manager of the names in the status.
const RECORD_MANAGER: &str = "slipway/team-defaults";

/// The Teams, by UID, whose status is known to have all four: the cache may yet have to hear of it.
#[derive(Default)]
pub(super) struct Recorded(Mutex<HashSet<String>>);

impl Recorded {
    fn has(&self, uid: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(uid)
    }

    fn insert(&self, uid: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(uid);
    }
}

/// What came of making them.
#[derive(Default)]
pub(super) struct Made {
    /// All names that the status is to have, where it lacks some.
    names: Option<Vec<String>>,
    /// What the API server said of one that it refused.
    refused: Option<String>,
    /// What is tried again, once all else of the team has been seen to.
    error: Option<write::Error>,
}

/// Makes those that were never made. They are in the cache from then on, so that the team's first file has them.
pub(super) async fn make(context: &Context, team: &Team, recorded: &Recorded) -> Made {
    try_to_make(context, team, recorded).await.unwrap_or_else(|error| Made { error: Some(error), ..Made::default() })
}

async fn try_to_make(context: &Context, team: &Team, recorded: &Recorded) -> Result<Made, write::Error> {
    let uid = team.uid().unwrap_or_default();
    let home = context.caches.children(ChildKind::Namespace).get(&Key::new("", namespace(team)));
    let has_home = home.is_some_and(|home| home.owner.as_deref() == Some(&*uid) && !home.deleting);
    if !has_home || is_complete(recorded_names(team)) || recorded.has(&uid) {
        return Ok(Made::default());
    }
    // Whether they were made is asked of the API server, as the cache may be behind.
    let teams: Api<Team> = Api::all(context.client.clone());
    let Some(live) = teams.get_opt(&team.name_any()).await?.filter(|live| live.uid().as_deref() == Some(&*uid)) else {
        return Ok(Made::default());
    };
    let before = recorded_names(&live);
    let (mut names, mut made) = (before.to_vec(), Made::default());
    for (name, spec) in defaults() {
        if before.iter().any(|known| known == name) {
            continue;
        }
        match create(context, team, name, spec).await {
            Ok(None) => names.push(name.to_owned()),
            Ok(Some(why)) => made.refused = Some(format!("GuardrailPolicy {name}: {why}")),
            Err(error) => {
                made.error = Some(error);
                break;
            }
        }
    }
    if is_complete(before) {
        recorded.insert(uid);
    }
    Ok(Made { names: (names.len() > before.len()).then_some(names), ..made })
}

/// Writes down which were made, and takes the finalizer from those of which that is known.
pub(super) async fn record(context: &Context, team: &Team, made: Made, recorded: &Recorded) -> Result<(), write::Error> {
    let Made { names, refused, error } = made;
    if let Some(names) = names {
        write::status::<Team>(&context.client, &Key::of(team), &json!({"defaultPolicies": names}), RECORD_MANAGER).await?;
        if is_complete(&names) {
            recorded.insert(team.uid().unwrap_or_default());
        }
    }
    if let Some(why) = refused {
        tracing::warn!(team = team.name_any(), why, "a default policy was refused; it is tried again");
        if context.reported.is_new("TeamDefaults", &Key::of(team), &why) {
            let note = format!("the API server refused a default policy, which is tried again: {why}");
            let event = EventSpec { warning: true, reason: "DefaultPolicyRefused".to_owned(), action: "Create", note };
            context.events.publish(&team.object_ref(&()), event).await;
        }
    }
    let known = recorded_names(team);
    release(context, team, |name| is_complete(known) || known.iter().any(|known| known == name)).await?;
    error.map_or(Ok(()), Err)
}

fn recorded_names(team: &Team) -> &[String] {
    team.status.as_ref().map(|status| status.default_policies.as_slice()).unwrap_or_default()
}

fn is_complete(made: &[String]) -> bool {
    DEFAULT_NAMES.iter().all(|name| made.iter().any(|known| known == name))
}

/// Why it was refused, if it was. One that is there, even if only until its finalizer goes, was made, by whomever.
async fn create(context: &Context, team: &Team, name: &str, spec: GuardrailPolicySpec) -> Result<Option<String>, write::Error> {
    let mut policy = GuardrailPolicy::new(name, spec);
    policy.metadata.finalizers = Some(vec![UNRECORDED.to_owned()]);
    let api: Api<GuardrailPolicy> = Api::namespaced(context.client.clone(), &namespace(team));
    let how = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match retry_on_quota_conflict(|| api.create(&how, &policy)).await {
        Ok(made) => {
            // It cannot be gone before its finalizer is, so that this is no later word than the watch's.
            let made = CachedPolicy::from(Guarded(Ok(made)));
            context.caches.guardrail_policies.replace(Key::new(namespace(team), name), made, |present, _| present.is_none());
            Ok(None)
        }
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) && !is_quota_conflict(&status) => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}

/// Takes the finalizer from what is meant of the team's policies, which the cache says have it.
pub(super) async fn release(context: &Context, team: &Team, is_meant: impl Fn(&str) -> bool) -> Result<(), write::Error> {
    let namespace = namespace(team);
    let api: Api<GuardrailPolicy> = Api::namespaced(context.client.clone(), &namespace);
    for (key, policy) in context.caches.guardrail_policies.in_namespace(&namespace) {
        if !policy.is_unrecorded || !is_meant(&key.name) {
            continue;
        }
        let Some(live) = api.get_opt(&key.name).await? else { continue };
        let (ours, rest): (Vec<String>, Vec<String>) = live.finalizers().iter().cloned().partition(|name| name == UNRECORDED);
        if !ours.is_empty() {
            write::finalizers(&context.client, &live, &rest).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
