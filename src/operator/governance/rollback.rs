//! Requests the release before, where a policy says so and answers of the present one break it so much more often that it cannot
//! be chance. It is requested as users do it, by the Agent's annotation, and once for each release: a user who deploys the
//! release again means it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch};
use serde_json::json;
use slipway_api::release::{AgentReleaseStatus, ReleasePhase};
use slipway_api::{Agent, AgentRelease, Track, labels};
use slipway_cluster::event::EventSpec;
use slipway_cluster::{Key, write};
use slipway_database::{AgentUsage, PolicyConversations, RunViolations};
use slipway_governance::rollback::{Demands, Evidence, RollbackVerdict, judge};

use super::delivery::reference;
use super::fleet::Watched;
use super::readings::{PART, rows};
use crate::context::Context;
use crate::tenancy::Tenancy;

/// How far evidence reaches back.
const LOOKBACK: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How many releases are remembered that were rolled back.
const MAX_REMEMBERED: usize = 10;
/// How many AgentReleases are read of one agent: the cluster keeps few of them.
const MAX_RELEASES: u32 = 100;
/// The field manager of the annotation, which the history names as its author.
const MANAGER: &str = "slipway/governance";

/// Looks at the agents that are held to a policy that asks for it.
pub(super) async fn look(context: &Context, tenancy: &Tenancy, fleet: &[Watched], now: Timestamp) -> Result<(), String> {
    let asks = |agent: &&Watched| !agent.is_suspended() && asking_policies(agent).next().is_some();
    let asking: Vec<Watched> = fleet.iter().filter(asks).cloned().collect();
    // Violations are summed up by the hour; usage is read from the same moment on.
    let since = start_of_hour(now - LOOKBACK);
    for part in asking.chunks(PART) {
        let policies: BTreeSet<&String> = part.iter().flat_map(asking_policies).collect();
        let policies: Vec<String> = policies.into_iter().cloned().collect();
        let found = tenancy.violations_by_run(&rows(part), &policies, since).await?;
        for (place, agent) in part.iter().enumerate() {
            let is_asked_about = |row: &&RunViolations| row.agent == place && asking_policies(agent).any(|policy| *policy == row.policy);
            let of_agent: Vec<&RunViolations> = found.iter().filter(is_asked_about).collect();
            let Some(suspect) = suspect(context, agent, &of_agent) else { continue };
            let former = match former(context, &agent.key, &suspect).await {
                Ok(Some(former)) => former,
                Ok(None) => continue,
                Err(error) => {
                    unsettled(agent, &error);
                    continue;
                }
            };
            let usage = tenancy.usage_by_run(&rows(std::slice::from_ref(agent)), since).await?;
            let comparison = Comparison { watched: agent, suspect: &suspect, former: &former, rows: &of_agent, usage: &usage };
            match comparison.outcome(tenancy, since).await? {
                Outcome::Stays => {}
                Outcome::Undecided(why) => comparison.tell_undecided(context, why).await,
                Outcome::Worse(why) => {
                    if let Err(error) = ask(context, agent, &suspect, former.version, why).await {
                        unsettled(agent, &error);
                    }
                }
            }
        }
    }
    Ok(())
}

fn unsettled(agent: &Watched, error: &write::Error) {
    tracing::warn!(agent = %agent.key, %error, "whether a release is to be rolled back could not be settled; it is looked at again");
}

/// The ids of the policies that ask for rollbacks.
fn asking_policies(watched: &Watched) -> impl Iterator<Item = &String> {
    watched.policies.iter().filter(|policy| policy.rollback).map(|policy| &policy.id)
}

fn start_of_hour(time: Timestamp) -> Timestamp {
    let second = time.as_second();
    Timestamp::from_second(second - second.rem_euclid(3_600)).unwrap_or(time)
}

/// An Agent whose release may be worse than the one before.
struct Suspect {
    agent: Agent,
    version: i64,
    run_hash: String,
}

/// Without asking anybody: most agents have nothing to look at.
fn suspect(context: &Context, watched: &Watched, rows: &[&RunViolations]) -> Option<Suspect> {
    if rows.is_empty() {
        return None;
    }
    let agent = context.caches.agents.get(&watched.key)?.agent().ok()?;
    let status = agent.status.as_ref()?;
    let (version, run_hash) = (status.active_release?, status.run_hash.clone()?);
    let is_asked = agent.annotations().contains_key(labels::DEPLOY_RELEASE) || rolled_back(&agent).contains(&version.to_string().as_str());
    let is_itself = agent.metadata.uid.as_deref() == Some(&*watched.row.uid) && agent.metadata.deletion_timestamp.is_none();
    (is_itself && !is_asked && rows.iter().any(|row| row.run_hash == run_hash)).then_some(Suspect { agent, version, run_hash })
}

/// The versions that were rolled back.
fn rolled_back(agent: &Agent) -> Vec<&str> {
    agent.annotations().get(labels::ROLLED_BACK).map_or(Vec::new(), |text| text.split(',').map(str::trim).collect())
}

/// The active release of an agent and the one before, and what was found of both.
struct Comparison<'a> {
    watched: &'a Watched,
    suspect: &'a Suspect,
    former: &'a Former,
    /// Of the policies that ask for rollbacks.
    rows: &'a [&'a RunViolations],
    usage: &'a [AgentUsage],
}

enum Outcome {
    Stays,
    /// Why they cannot be compared.
    Undecided(&'static str),
    /// The release is worse, in words.
    Worse(String),
}

impl Comparison<'_> {
    async fn outcome(&self, tenancy: &Tenancy, since: Timestamp) -> Result<Outcome, String> {
        if let Some(why) = self.cut_off() {
            return Ok(Outcome::Undecided(why));
        }
        // Conversations are many rows, and no more than violations: only where these are too many are those counted.
        let may_be_worse = |policy: &&String| {
            let (new, before) = (self.evidence(policy, &self.suspect.run_hash), self.evidence(policy, &self.former.run_hash));
            matches!(judge(&new, &before, &Demands::default()), RollbackVerdict::Worse { .. })
        };
        let policies: Vec<String> = asking_policies(self.watched).filter(may_be_worse).cloned().collect();
        if policies.is_empty() {
            return Ok(Outcome::Stays);
        }
        let counted = tenancy.violating_conversations(&self.watched.row, &self.suspect.run_hash, &policies, since).await?;
        Ok(counted.iter().find_map(|counted| self.worse(counted)).map_or(Outcome::Stays, Outcome::Worse))
    }

    /// How the release is worse, if it is.
    fn worse(&self, PolicyConversations { policy, conversations }: &PolicyConversations) -> Option<String> {
        let new = Evidence { conversations: *conversations, ..self.evidence(policy, &self.suspect.run_hash) };
        let before = self.evidence(policy, &self.former.run_hash);
        let verdict = judge(&new, &before, &Demands::default());
        tracing::debug!(agent = %self.watched.key, policy, ?new, ?before, ?verdict, "releases compared");
        let RollbackVerdict::Worse { p } = verdict else { return None };
        let (version, former) = (self.suspect.version, self.former.version);
        Some(format!(
            "answers of release v{version} broke policy {policy} in {conversations} conversations of {} requests, those of v{former} {} times in {} requests (Fisher's exact test, p = {p:.1e}); v{former} is asked for",
            new.requests, before.violations, before.requests
        ))
    }

    /// What was left out, if anything: without it the release before may look better than it was.
    fn cut_off(&self) -> Option<&'static str> {
        if self.rows.iter().any(|row| row.partial) {
            Some("more violations were recorded within seven days than are read of one agent")
        } else if self.usage.iter().any(|row| row.partial) {
            Some("more usage was recorded within seven days than is read of one agent")
        } else {
            None
        }
    }

    /// As if each violation were a conversation of its own.
    fn evidence(&self, policy: &str, run_hash: &str) -> Evidence {
        let of_run = |row: &&&RunViolations| row.policy == policy && row.run_hash == run_hash;
        let violations = self.rows.iter().filter(of_run).map(|row| row.count).sum();
        let is_stable = |row: &&AgentUsage| row.run_hash == run_hash && row.track == Track::Stable.as_str();
        let requests = self.usage.iter().filter(is_stable).map(|row| row.used.requests).sum();
        Evidence { requests, violations, conversations: violations, callers: None }
    }

    /// Once for each release.
    async fn tell_undecided(&self, context: &Context, why: &str) {
        let (version, former) = (self.suspect.version, self.former.version);
        tracing::warn!(agent = %self.watched.key, version, why, "releases cannot be compared");
        let note = format!("whether answers of release v{version} break policies more often than those of v{former} is not known: {why}");
        let event = EventSpec { warning: true, reason: "RollbackUndecided".to_owned(), action: "Rollback", note };
        let (uid, this) = (&self.watched.row.uid, version.to_string());
        let payload = json!({"version": version});
        context.events.publish_once(&reference(&self.watched.key, uid), event, &payload, &[uid, "rollback undecided", &this]).await;
    }
}

/// The release to go back to.
#[derive(Debug, PartialEq, Eq)]
struct Former {
    version: i64,
    run_hash: String,
}

async fn former(context: &Context, key: &Key, suspect: &Suspect) -> Result<Option<Former>, write::Error> {
    let api: Api<AgentRelease> = Api::namespaced(context.client.clone(), &key.namespace);
    let page = ListParams::default().fields(&format!("spec.agent={}", key.name)).limit(MAX_RELEASES);
    let releases = api.list(&page).await?;
    let statuses: Vec<_> = releases.items.into_iter().filter_map(|release| release.status).collect();
    Ok(before(&statuses, suspect.version, &suspect.run_hash, &rolled_back(&suspect.agent)))
}

/// The newest release before the active one that has run, and was not rolled back itself: those that were rejected have not run.
fn before(releases: &[AgentReleaseStatus], version: i64, run_hash: &str, rolled_back: &[&str]) -> Option<Former> {
    releases.iter().find(|status| status.phase == Some(ReleasePhase::Active) && status.version == Some(version))?;
    let have_run = releases.iter().filter(|status| status.phase == Some(ReleasePhase::Archived));
    let earlier = have_run
        .filter_map(|status| Some((status.version.filter(|earlier| *earlier < version)?, status.run_hash.clone()?)))
        .filter(|(earlier, _)| !rolled_back.contains(&earlier.to_string().as_str()));
    let (version, former_hash) = earlier.max_by_key(|(version, _)| *version)?;
    (!former_hash.is_empty() && former_hash != run_hash).then_some(Former { version, run_hash: former_hash })
}

async fn ask(context: &Context, watched: &Watched, suspect: &Suspect, version: i64, why: String) -> Result<(), write::Error> {
    let mut remembered = rolled_back(&suspect.agent);
    let this = suspect.version.to_string();
    remembered.push(&this);
    let kept = remembered.len().saturating_sub(MAX_REMEMBERED);
    let annotations = json!({labels::DEPLOY_RELEASE: version.to_string(), labels::ROLLED_BACK: remembered[kept..].join(",")});
    // A change of the Agent meanwhile may have mended it.
    let patch = json!({"metadata": {"resourceVersion": suspect.agent.resource_version(), "annotations": annotations}});
    let api: Api<Agent> = Api::namespaced(context.client.clone(), &watched.key.namespace);
    match api.patch(&watched.key.name, &write::by(MANAGER), &Patch::Merge(&patch)).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    tracing::warn!(agent = %watched.key, why, "a rollback is asked for");
    let event = EventSpec { warning: true, reason: "RollbackRequested".to_owned(), action: "Rollback", note: why };
    let payload = json!({"version": version, "from": suspect.version});
    context.events.publish_once(&reference(&watched.key, &watched.row.uid), event, &payload, &[&watched.row.uid, "rollback", &this]).await;
    Ok(())
}
