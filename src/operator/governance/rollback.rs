//! Asks for the release before, where a policy says so and answers of the present one break it so much more often that it cannot be
//! chance. It is asked for as people do it, by the Agent's annotation, and once for each release: who deploys the release again means it.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch};
use serde_json::json;
use slipway_api::release::{AgentReleaseStatus, ReleasePhase};
use slipway_api::{Agent, AgentRelease, Track, labels};
use slipway_cluster::event::EventSpec;
use slipway_cluster::{Key, write};
use slipway_database::{AgentUsage, AgentViolations, Stage};
use slipway_governance::rollback::{Demands, Evidence, Verdict, judge};

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
    let asks = |agent: &&Watched| !agent.is_suspended() && agent.policies.iter().any(|policy| policy.rollback);
    let asking: Vec<Watched> = fleet.iter().filter(asks).cloned().collect();
    for part in asking.chunks(PART) {
        let violations = tenancy.violations(&rows(part), now - LOOKBACK).await?;
        for (place, agent) in part.iter().enumerate() {
            let of_agent: Vec<_> = violations.iter().filter(|row| row.agent == place && is_of_answers(row)).collect();
            let Some(suspect) = suspect(context, agent, &of_agent) else { continue };
            let usage = tenancy.usage_by_run(&rows(std::slice::from_ref(agent)), now - LOOKBACK).await?;
            if let Err(error) = weigh(context, agent, &suspect, &of_agent, &usage).await {
                tracing::warn!(agent = %agent.key, %error, "whether a release is to be rolled back could not be settled; it is looked at again");
            }
        }
    }
    Ok(())
}

/// Found in what an agent said to people: candidates and canaries have their own verdicts.
fn is_of_answers(row: &AgentViolations) -> bool {
    row.stage == Stage::Output && row.track == Track::Stable.as_str()
}

/// An Agent whose release may be worse than the one before.
struct Suspect {
    agent: Agent,
    version: i64,
    run_hash: String,
}

/// Without asking anybody: most agents have nothing to look at.
fn suspect(context: &Context, watched: &Watched, rows: &[&AgentViolations]) -> Option<Suspect> {
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

async fn weigh(
    context: &Context,
    watched: &Watched,
    suspect: &Suspect,
    rows: &[&AgentViolations],
    usage: &[AgentUsage],
) -> Result<(), write::Error> {
    let Some(former) = former(context, &watched.key, suspect).await? else { return Ok(()) };
    for policy in watched.policies.iter().filter(|policy| policy.rollback) {
        let evidence = |run_hash: &str| evidence(&policy.id, run_hash, rows, usage);
        let (new, before) = (evidence(&suspect.run_hash), evidence(&former.run_hash));
        let verdict = judge(&new, &before, &Demands::default());
        tracing::debug!(agent = %watched.key, policy = policy.id, ?new, ?before, ?verdict, "releases compared");
        let Verdict::Worse { p } = verdict else { continue };
        let why = format!(
            "answers of release v{} broke policy {} in {} conversations of {} requests, those of v{} {} times in {} requests (Fisher's exact test, p = {p:.1e}); v{} is asked for",
            suspect.version, policy.id, new.conversations, new.requests, former.version, before.violations, before.requests, former.version
        );
        return ask(context, watched, suspect, former.version, why).await;
    }
    Ok(())
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
    Ok(before(&statuses, suspect.version, &suspect.run_hash))
}

/// The newest release before the active one that has run: those that were rejected have not.
fn before(releases: &[AgentReleaseStatus], version: i64, run_hash: &str) -> Option<Former> {
    releases.iter().find(|status| status.phase == Some(ReleasePhase::Active) && status.version == Some(version))?;
    let have_run = releases.iter().filter(|status| status.phase == Some(ReleasePhase::Archived));
    let earlier = have_run.filter_map(|status| Some((status.version.filter(|earlier| *earlier < version)?, status.run_hash.clone()?)));
    let (version, former_hash) = earlier.max_by_key(|(version, _)| *version)?;
    (!former_hash.is_empty() && former_hash != run_hash).then_some(Former { version, run_hash: former_hash })
}

fn evidence(policy: &str, run_hash: &str, rows: &[&AgentViolations], usage: &[AgentUsage]) -> Evidence {
    let of_run = || rows.iter().filter(|row| row.policy == policy && row.run_hash == run_hash);
    let requests =
        usage.iter().filter(|row| row.run_hash == run_hash && row.track == Track::Stable.as_str()).map(|row| row.used.requests).sum();
    Evidence {
        requests,
        violations: of_run().map(|row| row.count).sum(),
        // One conversation may have broken several rules: the most of one is what there are for sure.
        conversations: of_run().map(|row| row.conversations).max().unwrap_or(0),
        callers: None,
    }
}

async fn ask(context: &Context, watched: &Watched, suspect: &Suspect, version: i64, why: String) -> Result<(), write::Error> {
    let mut remembered = rolled_back(&suspect.agent);
    let this = suspect.version.to_string();
    remembered.push(&this);
    let kept = remembered.len().saturating_sub(MAX_REMEMBERED);
    let annotations = json!({labels::DEPLOY_RELEASE: version.to_string(), labels::ROLLED_BACK: remembered[kept..].join(",")});
    // Whoever has changed the Agent meanwhile may have mended it.
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
