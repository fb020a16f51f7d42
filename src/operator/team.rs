//! The team controller: a namespace for each Team, and all that keeps tenants apart in it.

mod build;

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use serde_json::Value;
use slipway_api::condition::{self, DATABASE_ISOLATED, Finding, READY, STALLED};
use slipway_api::names::TeamSlug;
use slipway_api::{Agent, Team, TeamStatus, ids};

use crate::event::Happening;
use crate::tenancy::{Access, Standing};
use crate::world::{ChildKind, World};
use crate::write::{self, Outcome};
use slipway_cluster::Key;
use slipway_cluster::controller::RESYNC;

/// The field manager of everything that this controller writes.
pub(crate) const MANAGER: &str = "slipway/team";
/// The Secret in a team's namespace that completes what ConfigMaps must not hold.
pub(crate) const RUNTIME_SECRET: &str = "slipway-runtime";
/// Keeps a Team until its namespace is empty and gone.
const FINALIZER: &str = "agents.slipway.dev/team";
/// How long the API server may take to heed a new RoleBinding.
const BINDING_TAKES: Duration = Duration::from_millis(200);
/// How long after our kinds were installed Kubernetes knows how to count their objects.
const KINDS_ARE_KNOWN: SignedDuration = SignedDuration::from_secs(60);
/// For how many seconds a Team that is being deleted waits for the database.
const PATIENCE: i64 = 240;
/// How many agents a message names.
const NAMED: usize = 5;

/// Where a Team stands.
struct Verdict {
    ready: bool,
    stalled: bool,
    reason: &'static str,
    message: String,
}

pub(crate) async fn reconcile(world: &World, key: &Key) -> Result<Option<Duration>, write::Error> {
    let Some(object) = world.teams.get(key) else {
        world.untroubled("Team", key);
        return Ok(None);
    };
    let Ok(team) = &object.0 else {
        // Teams are few and simple; the API server's schema is enough to keep this from happening.
        tracing::warn!(team = %key, "a Team does not fit the present schema and is left alone");
        return Ok(Some(RESYNC));
    };
    let finalizers = team.finalizers().to_vec();
    if team.meta().deletion_timestamp.is_some() {
        return if finalizers.iter().any(|name| name == FINALIZER) { dissolve(world, team).await } else { Ok(None) };
    }
    if !finalizers.iter().any(|name| name == FINALIZER) {
        let with = finalizers.into_iter().chain([FINALIZER.to_owned()]).collect::<Vec<_>>();
        write::finalizers(&world.client, team, &with).await?;
        return Ok(Some(RESYNC));
    }
    let standing = match (&world.tenancy, world.home_of(&key.name)) {
        (Some(tenancy), Some(home)) => Some(tenancy.ensure(&home).await),
        _ => None,
    };
    let mut outcomes = Vec::new();
    let mut verdict = Verdict { ready: true, stalled: false, reason: "NamespaceReady", message: "the namespace is in shape".to_owned() };
    for (kind, value) in desired(world, key).unwrap_or_default() {
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let outcome = write::child(world, kind, team.uid().as_deref().unwrap_or_default(), &value, MANAGER).await?;
        verdict = match &outcome {
            Outcome::Taken | Outcome::Left => {
                let message = if kind == ChildKind::Namespace {
                    format!(
                        "namespace {name} exists and does not belong to this Team; to give it to the Team, label it {}={}",
                        slipway_api::labels::TEAM,
                        key.name
                    )
                } else {
                    format!("{kind:?} {name} exists in the namespace and does not belong to this Team; delete it")
                };
                Verdict { ready: false, stalled: true, reason: "NameTaken", message }
            }
            Outcome::Refused(why) => Verdict {
                ready: false,
                stalled: true,
                reason: "Refused",
                message: format!("the API server refused {kind:?} {name}: {why}"),
            },
            _ => verdict,
        };
        let just_bound = kind == ChildKind::RoleBinding && outcome == Outcome::Created;
        outcomes.push((kind, name, outcome));
        if verdict.stalled {
            break;
        }
        if just_bound {
            // The right to write Secrets takes effect in a moment; what comes next needs it.
            return Ok(Some(BINDING_TAKES));
        }
    }
    if !verdict.stalled {
        remove_orphans(world, team).await?;
    }
    if let Some(names) = write::named(&outcomes, &Outcome::Repaired) {
        let note = format!("Put back after a change by somebody else: {names}");
        world
            .events
            .publish(&team.object_ref(&()), Happening { warning: false, reason: "Repaired".to_owned(), action: "Apply", note })
            .await;
    }
    let due = report(world, team, &verdict, standing).await?;
    Ok(Some(due.map_or(RESYNC, |due| due.min(RESYNC))))
}

/// What a Team's namespace should hold, the namespace first.
pub(crate) fn desired(world: &World, key: &Key) -> Option<Vec<(ChildKind, Value)>> {
    let object = world.teams.get(key)?;
    let team = object.0.as_ref().ok()?;
    let uid = team.uid().unwrap_or_default();
    let access = world.tenancy.as_ref().map_or(Access::Without, |tenancy| tenancy.access(&key.name, &uid));
    build::build(team, build::Around { settings: &world.settings, access: &access, counts: counts(world) }).ok()
}

/// Whether Kubernetes' quota controller can be taken to know our kinds, which it looks for every 30 s. What a quota names
/// before that is refused to everybody until it is looked at again, which may take minutes; so a platform that was installed
/// just now has no quota on its own kinds for a moment. A Team that is old enough came when our kinds were there.
fn counts(world: &World) -> bool {
    if world.counts.load(Ordering::Relaxed) {
        return true;
    }
    let counts = {
        let now = Timestamp::now();
        let is_old = |key: &Key| {
            let created = world.teams.get(key).and_then(|team| team.meta().creation_timestamp.clone());
            created.is_some_and(|created| now.duration_since(created.0) >= KINDS_ARE_KNOWN)
        };
        world.teams.keys().iter().any(is_old)
    };
    world.counts.store(counts, Ordering::Relaxed);
    counts
}

/// One of these. A Team has a dozen children at most and several of a kind, so all are built to find it.
pub(crate) fn desired_child(world: &World, key: &Key, kind: ChildKind, child: &Key) -> Option<Value> {
    let all = desired(world, key)?;
    all.into_iter().find(|(of, body)| *of == kind && body["metadata"]["name"] == child.name.as_str()).map(|(_, body)| body)
}

/// A quota or limit that is no longer wanted goes.
async fn remove_orphans(world: &World, team: &Team) -> Result<(), write::Error> {
    let namespace = namespace(team);
    let unwanted = [
        (ChildKind::ResourceQuota, build::amounts(team, &world.settings, counts(world)).is_empty()),
        (ChildKind::LimitRange, team.spec.container_limits.is_none()),
        (ChildKind::NetworkPolicy, !world.settings.team_network.enabled),
    ];
    for (kind, _) in unwanted.into_iter().filter(|(_, unwanted)| *unwanted) {
        for (key, child) in world.children(kind).in_namespace(&namespace) {
            if child.owner == team.uid() && !child.deleting {
                write::delete(world, kind, &key).await?;
            }
        }
    }
    Ok(())
}

/// Takes a Team apart once nothing is left in it.
async fn dissolve(world: &World, team: &Team) -> Result<Option<Duration>, write::Error> {
    let namespace = namespace(team);
    let key = Key::new("", &namespace);
    let home = world.children(ChildKind::Namespace).get(&key).filter(|home| home.owner == team.uid());
    let remain = match &home {
        Some(home) if !home.deleting => agents_remain(world, &namespace).await?,
        _ => None,
    };
    let verdict = match (&home, remain) {
        (Some(_), Some(message)) => Verdict { ready: false, stalled: false, reason: "NotEmpty", message },
        (Some(home), None) => {
            if !home.deleting {
                write::delete(world, ChildKind::Namespace, &key).await?;
            }
            let remains = remains(world, &namespace).await;
            let message = format!("namespace {namespace} is being deleted{remains}");
            Verdict { ready: false, stalled: false, reason: "Terminating", message }
        }
        (None, _) => {
            if let Some(verdict) = rows_remain(world, team).await {
                report(world, team, &verdict, None).await?;
                return Ok(Some(Duration::from_secs(5)));
            }
            let rest: Vec<_> = team.finalizers().iter().filter(|name| *name != FINALIZER).cloned().collect();
            write::finalizers(&world.client, team, &rest).await?;
            return Ok(None);
        }
    };
    report(world, team, &verdict, None).await?;
    Ok(Some(Duration::from_secs(5)))
}

/// What keeps a namespace that is being deleted, in the words of the cluster. The team looks again in a moment, and says
/// nothing of it where it cannot be asked.
async fn remains(world: &World, namespace: &str) -> String {
    let api: Api<Namespace> = Api::all(world.client.clone());
    match api.get_opt(namespace).await {
        Ok(found) => found.and_then(|found| found.status).map(|status| words(&status)).unwrap_or_default(),
        Err(error) => {
            tracing::debug!(namespace, %error, "what keeps a namespace could not be asked");
            String::new()
        }
    }
}

/// The conditions of a namespace that hold say what went wrong and what is left.
fn words(status: &NamespaceStatus) -> String {
    let holds = status.conditions.iter().flatten().filter(|condition| condition.status == "True");
    let mut words: Vec<&str> =
        holds.filter_map(|condition| condition.message.as_deref()).map(str::trim).filter(|text| !text.is_empty()).collect();
    words.sort_unstable();
    words.dedup();
    if words.is_empty() { String::new() } else { format!(": {}", words.join("; ")) }
}

/// What is to be said of agents that are left in a namespace, if any are. The API server has the last word: what is deleted
/// with a namespace does not come back, and the cache knows nothing of namespaces that are not watched.
async fn agents_remain(world: &World, namespace: &str) -> Result<Option<String>, write::Error> {
    let mut names: Vec<_> = world.agents.in_namespace(namespace).into_iter().map(|(key, _)| key.name).collect();
    if names.is_empty() {
        let api: Api<Agent> = Api::namespaced(world.client.clone(), namespace);
        match api.list_metadata(&ListParams::default().limit(100)).await {
            Ok(found) => names.extend(found.iter().map(ResourceExt::name_any)),
            Err(kube::Error::Api(refused)) if refused.code == 403 => {
                return Ok(Some(format!("whether it has agents cannot be asked, so that it stays: {}", refused.message)));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if names.is_empty() {
        return Ok(None);
    }
    names.sort();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    Ok(Some(format!("the Team goes once its agents are deleted: {}{rest}", names.join(", "))))
}

/// Deletes the team's rows in the database. While it cannot, the Team waits, but not for ever: a database that is gone
/// for good must not keep it from going.
async fn rows_remain(world: &World, team: &Team) -> Option<Verdict> {
    let tenancy = world.tenancy.as_ref()?;
    let name = team.name_any();
    let fault = tenancy.remove(&name).await.err()?;
    let since = team.meta().deletion_timestamp.as_ref().map_or_else(Timestamp::now, |time| time.0);
    if Timestamp::now().duration_since(since).as_secs() < PATIENCE {
        let message =
            format!("its rows in the database could not be deleted: {fault}; it is tried again, and the Team goes without it in the end");
        return Some(Verdict { ready: false, stalled: false, reason: "RowsRemain", message });
    }
    let note = format!("the Team goes, but its rows in the database are still there: {fault}; they are deleted when that can be done");
    tracing::warn!(team = name, %fault, "a Team goes before its rows in the database");
    let happening = Happening { warning: true, reason: "RowsRemain".to_owned(), action: "Delete", note };
    world.events.publish(&team.object_ref(&()), happening).await;
    None
}

fn namespace(team: &Team) -> String {
    TeamSlug::new(team.name_any()).map(|slug| slug.namespace()).unwrap_or_default()
}

/// When to look again for what has been said, where it waits.
async fn report(world: &World, team: &Team, verdict: &Verdict, standing: Option<Standing>) -> Result<Option<Duration>, write::Error> {
    let mut before = team.status.clone().unwrap_or_default();
    before.conditions = condition::ours(before.conditions);
    let namespace = namespace(team);
    let agents = i32::try_from(world.agents.in_namespace(&namespace).len()).unwrap_or(i32::MAX);
    let generation = team.meta().generation;
    let mut findings = vec![
        Finding::new(READY, verdict.ready, verdict.reason, &*verdict.message),
        if verdict.stalled {
            Finding::new(STALLED, true, verdict.reason, "see the condition Ready")
        } else {
            Finding::new(STALLED, false, "NotStalled", "")
        },
    ];
    findings.extend(standing.map(isolation));
    let status = TeamStatus {
        id: Some(ids::team(&team.name_any())),
        agents,
        observed_generation: generation,
        conditions: condition::conditions(findings, &before.conditions, generation, Timestamp::now()),
        namespace: Some(namespace),
    };
    let reason = |status: &TeamStatus| status.conditions.first().map(|condition| condition.reason.clone());
    let turned = reason(&status) != reason(&before);
    if status != before {
        write::status::<Team>(&world.client, &Key::of(team), &status, MANAGER).await?;
    }
    let about = team.object_ref(&());
    let happening =
        Happening { warning: verdict.stalled, reason: verdict.reason.to_owned(), action: "Report", note: verdict.message.clone() };
    if turned && !verdict.stalled {
        world.events.publish(&about, happening.clone()).await;
    }
    Ok(world.warn("Team", &Key::of(team), &about, verdict.stalled.then_some(happening), turned).await)
}

/// What a Team says of the database.
fn isolation(standing: Standing) -> Finding {
    match standing {
        Standing::Isolated => {
            Finding::new(DATABASE_ISOLATED, true, "RolePerTeam", "the team has a database login of its own, which sees its own rows alone")
        }
        Standing::Shared(why) => Finding::new(DATABASE_ISOLATED, false, "Shared", why),
        Standing::Unavailable(why) => {
            let message = format!("{why}; it is tried again, and agents that have a login keep it");
            Finding::new(DATABASE_ISOLATED, false, "DatabaseUnavailable", message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_cannot_go_says_why() {
        let said = |conditions: &str| words(&serde_yaml::from_str(&format!("{{phase: Terminating, conditions: [{conditions}]}}")).unwrap());
        let remaining =
            "{type: NamespaceContentRemaining, status: 'True', reason: SomeResourcesRemain, message: 'pods. has 1 resource instances'}";
        let finalizers = "{type: NamespaceFinalizersRemaining, status: 'True', message: 'example.com/keep in 1 resource instances'}";
        let fine = "{type: NamespaceDeletionContentFailure, status: 'False', message: 'All content successfully deleted'}";
        assert_eq!(said(fine), "");
        assert_eq!(
            said(&format!("{fine}, {remaining}, {finalizers}")),
            ": example.com/keep in 1 resource instances; pods. has 1 resource instances"
        );
    }
}
