//! The team controller: a namespace for each Team, and all that keeps tenants apart in it.

mod build;
mod default_policies;
mod policies;
mod worker;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus, Secret};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use serde_json::Value;
use slipway_api::agent::{AGENT_ENV, RUNTIME_SECRET};
use slipway_api::condition::{self, DATABASE_ISOLATED, Finding, READY, STALLED};
use slipway_api::contract::policies::CONFIG_MAP;
use slipway_api::names::TeamSlug;
use slipway_api::{Agent, GuardrailPolicy, Integration, KnowledgeBase, Team, TeamStatus, ids, labels};
use slipway_cluster::controller::{Next, Phase, RESYNC, Requests};
use slipway_cluster::event::EventSpec;
use slipway_cluster::{Key, Object, write};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admission;
use crate::caches::ChildKind;
use crate::caches::secret::keyed_hash;
use crate::children::{self, Outcome};
use crate::context::Context;
use crate::registry::{Change, Maker, Registered};
use crate::tenancy::{DatabaseAccess, DatabaseState, UNAVAILABLE_TTL};
use default_policies::Recorded;
use policies::PolicySelection;

const MAKER: Maker = Maker {
    kind: "Team",
    label: labels::TEAM,
    manager: MANAGER,
    children: &[
        ChildKind::ConfigMap,
        ChildKind::Namespace,
        ChildKind::RoleBinding,
        ChildKind::Secret,
        ChildKind::NetworkPolicy,
        ChildKind::ResourceQuota,
        ChildKind::LimitRange,
        ChildKind::Deployment,
        ChildKind::Service,
    ],
    is_namespaced: false,
};
/// The field manager of everything that this controller writes.
const MANAGER: &str = "slipway/team";
/// How many Teams are reconciled at once.
const CONCURRENCY: usize = 2;
/// When a Team counts its agents after one has come, changed or gone: soon enough, and one count of many changes.
const COUNT_DELAY: Duration = Duration::from_secs(1);
/// Keeps a Team until its namespace is empty and gone.
const FINALIZER: &str = "agents.slipway.dev/team";
/// How long the API server may take to heed a new RoleBinding.
const BINDING_TAKES: Duration = Duration::from_millis(200);
/// How long after our kinds were installed Kubernetes knows how to count their objects.
const KINDS_ARE_KNOWN: SignedDuration = SignedDuration::from_secs(60);
/// For how many seconds a Team that is being deleted waits for the database.
const MAX_DATABASE_SECONDS: i64 = 240;
/// How many agents a message names.
const MAX_NAMES: usize = 5;

pub(crate) struct Controller {
    context: Arc<Context>,
    requests: Requests,
    /// Whether Kubernetes can count objects of our kinds. Once it can, it always can.
    counts: AtomicBool,
    /// Teams whose default policies were made.
    recorded: Recorded,
}

impl Controller {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, requests: Requests::default(), counts: AtomicBool::new(false), recorded: Recorded::default() }
    }
}

impl Registered for Controller {
    fn changed(&self, change: &Change) {
        let of = |namespace: &str| namespace.strip_prefix("team-").map(|slug| Key::new("", slug));
        if let Some(key) = change.of::<Team>() {
            self.requests.add(key.clone());
        } else if let Some(team) = change.of::<Agent>().and_then(|agent| of(&agent.namespace)) {
            self.requests.add_after(team, COUNT_DELAY);
        } else if let Some(team) = change.of::<KnowledgeBase>().or(change.of::<Integration>()).and_then(|named| of(&named.namespace)) {
            // Whether it has one decides whether it has a worker; its status moves while it is filled, or tested.
            self.requests.add_after(team, COUNT_DELAY);
        } else if let Some(team) = change.of::<GuardrailPolicy>().and_then(|policy| of(&policy.namespace)) {
            // Several that are applied together make one file.
            self.requests.add_after(team, COUNT_DELAY);
        } else if let Some(secret) = change.of::<Secret>().filter(|secret| [AGENT_ENV, RUNTIME_SECRET].contains(&&*secret.name)) {
            self.requests.add_all(of(&secret.namespace));
        }
        match change {
            Change::Child("Team", key) => self.requests.add(key.clone()),
            Change::Namespace(namespace) => self.requests.add_all(of(namespace)),
            Change::Database { .. } | Change::Knowledge => self.request_all(),
            Change::RowsInTheWay(key) => self.requests.add_after(key.clone(), UNAVAILABLE_TTL),
            _ => {}
        }
    }

    fn maker(&self) -> Option<&'static Maker> {
        Some(&MAKER)
    }

    /// A Team has a score of children at most and several of a kind, so that all are built to find one.
    fn desired(&self, owner: &Key, kind: ChildKind, live: &Object) -> Option<Value> {
        let name = live.metadata.name.as_deref()?;
        let all = desired(self, owner)?;
        all.into_iter().find(|(of, body)| *of == kind && body["metadata"]["name"] == name).map(|(_, body)| body)
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        let (context, requests) = (self.context.clone(), self.requests.clone());
        vec![context.start::<Team, _>(phase, ("team", CONCURRENCY, &requests), move |key| {
            let controller = self.clone();
            async move { reconcile(&controller, &key).await }
        })]
    }

    fn request_all(&self) {
        self.requests.add_all(self.context.caches.teams.keys());
    }
}

/// Where a Team stands.
struct Verdict {
    ready: bool,
    stalled: bool,
    reason: &'static str,
    message: String,
}

async fn reconcile(controller: &Controller, key: &Key) -> Next<write::Error> {
    let context = &*controller.context;
    let Some(object) = context.caches.teams.get(key) else {
        context.untroubled("Team", key);
        context.untroubled("TeamPolicies", key);
        context.caches.team_policies.remove(key);
        return Ok(None);
    };
    let Ok(team) = &object.0 else {
        // Teams are few and simple; the API server's schema is enough to keep this from happening.
        tracing::warn!(team = %key, "a Team does not fit the present schema and is left alone");
        return Ok(Some(RESYNC));
    };
    let finalizers = team.finalizers().to_vec();
    if team.meta().deletion_timestamp.is_some() {
        return if finalizers.iter().any(|name| name == FINALIZER) { dissolve(context, team).await } else { Ok(None) };
    }
    if !finalizers.iter().any(|name| name == FINALIZER) {
        let with = finalizers.into_iter().chain([FINALIZER.to_owned()]).collect::<Vec<_>>();
        write::finalizers(&context.client, team, &with).await?;
        return Ok(Some(RESYNC));
    }
    let standing = match (&context.tenancy, admission::home_of(context, &key.name)) {
        (Some(tenancy), Some(home)) => Some(tenancy.ensure(&home).await),
        _ => None,
    };
    let mut outcomes = Vec::new();
    let mut verdict = Verdict { ready: true, stalled: false, reason: "NamespaceReady", message: "the namespace is in shape".to_owned() };
    let made = default_policies::make(context, team, &controller.recorded).await;
    let policies = PolicySelection::of(context, team);
    let all = desired(controller, key).unwrap_or_default();
    let wanted: BTreeSet<(ChildKind, String)> = all.iter().map(|(kind, body)| (*kind, children::name(body).to_owned())).collect();
    for (kind, value) in all {
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let outcome = children::apply(context, kind, team.uid().as_deref().unwrap_or_default(), &value, MANAGER).await?;
        verdict = match &outcome {
            Outcome::Taken | Outcome::Left => {
                let message = if kind == ChildKind::Namespace {
                    format!(
                        "namespace {name} exists and does not belong to this Team; to give it to the Team, label it {}={}",
                        labels::TEAM,
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
    if !verdict.stalled && !wanted.is_empty() {
        remove_orphans(context, team, &wanted).await?;
    }
    if let Some(names) = children::named(&outcomes, &Outcome::Repaired) {
        let note = format!("Put back after a change by somebody else: {names}");
        context
            .events
            .publish(&team.object_ref(&()), EventSpec { warning: false, reason: "Repaired".to_owned(), action: "Apply", note })
            .await;
    }
    let finding = policies.finding();
    let due = report(context, team, &verdict, standing, finding.as_ref()).await?;
    let is_file = |(kind, name, outcome): &(ChildKind, String, Outcome)| {
        let is_there = !matches!(outcome, Outcome::Taken | Outcome::Left | Outcome::Refused(_));
        *kind == ChildKind::ConfigMap && name == CONFIG_MAP && is_there
    };
    policies.publish(context, team, outcomes.iter().any(is_file));
    default_policies::record(context, team, made, &controller.recorded).await?;
    let warning = policies::warn(context, team, finding.as_ref()).await;
    let due = [due, warning].into_iter().flatten().min();
    Ok(Some(due.map_or(RESYNC, |due| due.min(RESYNC))))
}

/// What a Team's namespace should hold, the namespace first.
fn desired(controller: &Controller, key: &Key) -> Option<Vec<(ChildKind, Value)>> {
    let context = &*controller.context;
    let object = context.caches.teams.get(key)?;
    let team = object.0.as_ref().ok()?;
    let uid = team.uid().unwrap_or_default();
    let access = context.tenancy.as_ref().map_or(DatabaseAccess::Without, |tenancy| tenancy.access(&key.name, &uid));
    let namespace = namespace(team);
    let caches = &context.caches;
    // Without a database there is nothing to search.
    let has_bases = context.settings.database.is_some() && !caches.knowledge_bases.in_namespace(&namespace).is_empty();
    let has_worker = has_bases || !caches.integrations.in_namespace(&namespace).is_empty();
    let secrets_hash = if has_worker { secrets_hash(context, &namespace) } else { None };
    let surroundings = build::Surroundings {
        settings: &context.settings,
        access: &access,
        counts: counts(controller),
        has_worker,
        secrets_hash: secrets_hash.as_deref(),
        policies: &PolicySelection::of(context, team).text(),
    };
    build::build(team, surroundings).ok()
}

/// A keyed hash over the Secrets that the team's worker reads.
fn secrets_hash(context: &Context, namespace: &str) -> Option<String> {
    let secret = |name: &'static str| Some((name, context.caches.secrets.get(&Key::new(namespace, name))?.hash));
    let used: Vec<_> = [AGENT_ENV, RUNTIME_SECRET].into_iter().filter_map(secret).collect();
    let pairs = used.iter().map(|(name, hash)| (name.as_bytes(), hash.as_slice()));
    (!used.is_empty()).then(|| hex::encode(keyed_hash(&context.settings.secrets_hash_key, pairs)))
}

/// Whether Kubernetes' quota controller can be taken to know our kinds, which it looks for every 30 s. What a quota names
/// before that is refused to everybody until it is looked at again, which may take minutes; so a platform that was installed
/// just now has no quota on its own kinds for a moment. A Team that is old enough came when our kinds were there.
fn counts(controller: &Controller) -> bool {
    let context = &*controller.context;
    if controller.counts.load(Ordering::Relaxed) {
        return true;
    }
    let counts = {
        let now = Timestamp::now();
        let is_old = |key: &Key| {
            let created = context.caches.teams.get(key).and_then(|team| team.meta().creation_timestamp.clone());
            created.is_some_and(|created| now.duration_since(created.0) >= KINDS_ARE_KNOWN)
        };
        context.caches.teams.keys().iter().any(is_old)
    };
    controller.counts.store(counts, Ordering::Relaxed);
    counts
}

/// A quota, a limit, a network policy, a worker or REST's right to Secrets that is no longer wanted goes. What else a Team makes it
/// always wants.
async fn remove_orphans(context: &Context, team: &Team, wanted: &BTreeSet<(ChildKind, String)>) -> Result<(), write::Error> {
    let namespace = namespace(team);
    let kinds = [
        ChildKind::ResourceQuota,
        ChildKind::LimitRange,
        ChildKind::NetworkPolicy,
        ChildKind::Deployment,
        ChildKind::Service,
        ChildKind::RoleBinding,
    ];
    for kind in kinds {
        for (key, child) in context.caches.children(kind).in_namespace(&namespace) {
            if child.owner == team.uid() && !child.deleting && !wanted.contains(&(kind, key.name.clone())) {
                children::delete(context, kind, &key).await?;
            }
        }
    }
    Ok(())
}

/// Takes a Team apart once nothing is left in it.
async fn dissolve(context: &Context, team: &Team) -> Result<Option<Duration>, write::Error> {
    let namespace = namespace(team);
    let key = Key::new("", &namespace);
    let home = context.caches.children(ChildKind::Namespace).get(&key).filter(|home| home.owner == team.uid());
    default_policies::release(context, team, |_| true).await?;
    let remain = match &home {
        Some(home) if !home.deleting => agents_remain(context, &namespace).await?,
        _ => None,
    };
    let verdict = match (&home, remain) {
        (Some(_), Some(message)) => Verdict { ready: false, stalled: false, reason: "NotEmpty", message },
        (Some(home), None) => {
            if !home.deleting {
                children::delete(context, ChildKind::Namespace, &key).await?;
            }
            let remains = remains(context, &namespace).await;
            let message = format!("namespace {namespace} is being deleted{remains}");
            Verdict { ready: false, stalled: false, reason: "Terminating", message }
        }
        (None, _) => {
            if let Some(verdict) = rows_remain(context, team).await {
                report(context, team, &verdict, None, None).await?;
                return Ok(Some(Duration::from_secs(5)));
            }
            let rest: Vec<_> = team.finalizers().iter().filter(|name| *name != FINALIZER).cloned().collect();
            write::finalizers(&context.client, team, &rest).await?;
            return Ok(None);
        }
    };
    report(context, team, &verdict, None, None).await?;
    Ok(Some(Duration::from_secs(5)))
}

/// What keeps a namespace that is being deleted, in the words of the cluster. The team looks again in a moment, and says
/// nothing of it where it cannot be asked.
async fn remains(context: &Context, namespace: &str) -> String {
    let api: Api<Namespace> = Api::all(context.client.clone());
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
async fn agents_remain(context: &Context, namespace: &str) -> Result<Option<String>, write::Error> {
    let mut names: Vec<_> = context.caches.agents.in_namespace(namespace).into_iter().map(|(key, _)| key.name).collect();
    if names.is_empty() {
        let api: Api<Agent> = Api::namespaced(context.client.clone(), namespace);
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
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    Ok(Some(format!("the Team goes once its agents are deleted: {}{rest}", names.join(", "))))
}

/// Deletes the team's rows in the database. While it cannot, the Team waits, but not for ever: a database that is gone
/// for good must not keep it from going.
async fn rows_remain(context: &Context, team: &Team) -> Option<Verdict> {
    let tenancy = context.tenancy.as_ref()?;
    let name = team.name_any();
    let fault = tenancy.remove(&name).await.err()?;
    let since = team.meta().deletion_timestamp.as_ref().map_or_else(Timestamp::now, |time| time.0);
    if Timestamp::now().duration_since(since).as_secs() < MAX_DATABASE_SECONDS {
        let message =
            format!("its rows in the database could not be deleted: {fault}; it is tried again, and the Team goes without it in the end");
        return Some(Verdict { ready: false, stalled: false, reason: "RowsRemain", message });
    }
    let note = format!("the Team goes, but its rows in the database are still there: {fault}; they are deleted when that can be done");
    tracing::warn!(team = name, %fault, "a Team goes before its rows in the database");
    let event = EventSpec { warning: true, reason: "RowsRemain".to_owned(), action: "Delete", note };
    context.events.publish(&team.object_ref(&()), event).await;
    None
}

fn namespace(team: &Team) -> String {
    TeamSlug::new(team.name_any()).map(|slug| slug.namespace()).unwrap_or_default()
}

/// When to look again for what has been said, where it waits.
async fn report(
    context: &Context,
    team: &Team,
    verdict: &Verdict,
    standing: Option<DatabaseState>,
    policies: Option<&Finding>,
) -> Result<Option<Duration>, write::Error> {
    let mut before = team.status.clone().unwrap_or_default();
    before.conditions = condition::ours(before.conditions);
    // They are recorded under another name.
    before.default_policies.clear();
    let namespace = namespace(team);
    let agents = i32::try_from(context.caches.agents.in_namespace(&namespace).len()).unwrap_or(i32::MAX);
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
    findings.extend(policies.cloned());
    let status = TeamStatus {
        id: Some(ids::team(&team.name_any())),
        agents,
        default_policies: Vec::new(),
        observed_generation: generation,
        conditions: condition::conditions(findings, &before.conditions, generation, Timestamp::now()),
        namespace: Some(namespace),
    };
    let reason = |status: &TeamStatus| status.conditions.first().map(|condition| condition.reason.clone());
    let turned = reason(&status) != reason(&before);
    if status != before {
        context.write_status(team, &status, MANAGER).await?;
    }
    let about = team.object_ref(&());
    let event = EventSpec { warning: verdict.stalled, reason: verdict.reason.to_owned(), action: "Report", note: verdict.message.clone() };
    if turned && !verdict.stalled {
        context.events.publish(&about, event.clone()).await;
    }
    Ok(context.warn("Team", &Key::of(team), &about, verdict.stalled.then_some(event), turned).await)
}

/// What a Team says of the database.
fn isolation(standing: DatabaseState) -> Finding {
    match standing {
        DatabaseState::Isolated => {
            Finding::new(DATABASE_ISOLATED, true, "RolePerTeam", "the team has a database login of its own, which sees its own rows alone")
        }
        DatabaseState::Shared(why) => Finding::new(DATABASE_ISOLATED, false, "Shared", why),
        DatabaseState::Unavailable(why) => {
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
