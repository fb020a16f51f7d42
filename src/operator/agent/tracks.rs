//! The tracks of an Agent, each with the spec that it runs. Each is gathered, resolved, built and applied by itself; a further
//! track is a further pair from [`of`].

use std::borrow::Cow;
use std::sync::Arc;

use slipway_api::agent::Storage;
use slipway_api::{Agent, AgentSpec, Track};

use super::canary::{self, Wants};
use super::pin::{self, SpecSource};
use super::{released_skills, released_tools};
use crate::caches::Release;
use crate::context::Context;

/// One workload of an Agent.
pub(super) struct Workload<'a> {
    pub track: Track,
    /// The Agent with the spec that is in force on this track.
    pub agent: Cow<'a, Agent>,
    /// The release that says which Tools, Skills and KnowledgeBases it uses. None: as they are.
    pub release: Option<Arc<Release>>,
}

/// The workloads of an Agent.
pub(super) struct Tracks<'a> {
    /// Those that it should have, the stable one first.
    pub workloads: Vec<Workload<'a>>,
    /// Those that stay as they are, with or without children.
    pub kept: Vec<Track>,
}

/// All workloads of an Agent; none while it cannot be said what the stable track runs.
pub(super) fn of<'a>(agent: &'a Agent, context: &Context) -> Option<Tracks<'a>> {
    let mut tracks = Tracks { workloads: Vec::new(), kept: Vec::new() };
    if pin::source(agent) == SpecSource::Nothing {
        // Whatever ran before the gate was set goes on.
        tracks.kept.push(Track::Stable);
    } else {
        let (effective, release) = (pin::effective(agent, context)?, pin::approved(agent, context));
        if release.as_ref().is_some_and(|release| !is_read(agent, release, context)) {
            return None;
        }
        tracks.workloads.push(Workload { track: Track::Stable, agent: effective, release });
    }
    if pin::pending_run(agent).is_some() {
        match candidate(agent, context) {
            Some(candidate) => tracks.workloads.push(candidate),
            None => tracks.kept.push(Track::Candidate),
        }
    }
    match canary::wants(agent) {
        // Its Tools are as they are: no release says what they are to be.
        Wants::Run(agent) => tracks.workloads.push(Workload { track: Track::Canary, agent: Cow::Owned(*agent), release: None }),
        Wants::Keep => tracks.kept.push(Track::Canary),
        Wants::Nothing => {}
    }
    Some(tracks)
}

/// Whether it is known what was kept of all that a release names.
fn is_read(agent: &Agent, release: &Release, context: &Context) -> bool {
    released_tools::is_read(agent, release, context) && released_skills::is_read(agent, release, context)
}

/// The Agent as its pending release has it. What it is told in an evaluation it forgets, one pod is enough, and no
/// autoscaler knows of it.
fn candidate(agent: &Agent, context: &Context) -> Option<Workload<'static>> {
    let release = pin::pending(agent, context)?.release.clone();
    if !is_read(agent, &release, context) {
        return None;
    }
    let spec = slipway_release::spec(&release.artifact, &agent.spec).ok()?;
    let spec = AgentSpec { storage: Some(Storage::Memory), database_url: None, database_credentials_secret: None, replicas: 1, ..spec };
    let agent = Cow::Owned(Agent { spec, ..agent.clone() });
    Some(Workload { track: Track::Candidate, agent, release: Some(release) })
}

#[cfg(test)]
mod tests {
    use slipway_api::canary::CanaryPhase;
    use slipway_api::{AgentStatus, CanaryStatus};
    use slipway_cluster::Key;

    use super::*;
    use crate::agent::pin::tests::{agent_of, release_of};
    use crate::caches::HeldRelease;
    use crate::testing::context;

    /// Track, prompt, replicas and storage of a workload.
    type Told = (Track, String, i32, Option<Storage>);

    /// Of each workload, and what is kept.
    fn told(agent: &Agent, context: &Context) -> Option<(Vec<Told>, Vec<Track>)> {
        let tracks = of(agent, context)?;
        let told = |workload: &Workload| {
            let spec = &workload.agent.spec;
            (workload.track, spec.system_prompt.clone().unwrap_or_default(), spec.replicas, spec.storage)
        };
        Some((tracks.workloads.iter().map(told).collect(), tracks.kept))
    }

    const GATED: &str = "governance: {minQualityScore: 75}, storage: postgresql";

    #[tokio::test]
    async fn a_gated_agent_runs_its_active_release_and_a_candidate_beside() {
        use Track::{Candidate, Stable};
        let context = context();
        let key = Key::new("team-a", "helper");
        let storage = Some(Storage::Postgresql);
        let with = |spec: &str, status: AgentStatus| Agent { status: Some(status), ..agent_of(spec) };
        let new = format!("systemPrompt: new, replicas: 3, {GATED}");
        // Before its first release there is nothing to run.
        let mut agent = with(&new, AgentStatus::default());
        assert_eq!(told(&agent, &context), Some((vec![], vec![Stable])));
        agent.status =
            Some(AgentStatus { pending_release: Some(1), pending_evaluation: Some("ev-1".to_owned()), ..AgentStatus::default() });
        assert_eq!(told(&agent, &context), Some((vec![], vec![Stable, Candidate])), "it has yet to be read");
        let held =
            |version, run: &str, spec: &str| HeldRelease { run: run.to_owned(), release: release_of(&agent_of(spec), version).into() };
        context.caches.held.insert(key.clone(), held(1, "ev-1", &new));
        let candidate = (Candidate, "new".to_owned(), 1, Some(Storage::Memory));
        assert_eq!(told(&agent, &context), Some((vec![candidate.clone()], vec![Stable])));
        // With an active release the stable track follows that, with the replicas of the spec.
        let status = AgentStatus {
            active_release: Some(1),
            pending_release: Some(2),
            pending_evaluation: Some("ev-2".to_owned()),
            ..AgentStatus::default()
        };
        agent.status = Some(status.clone());
        assert_eq!(told(&agent, &context), None, "what is active has yet to be read");
        context.caches.pins.insert(key.clone(), release_of(&agent_of(&format!("systemPrompt: old, replicas: 1, {GATED}")), 1));
        context.caches.held.insert(key.clone(), held(2, "ev-2", &new));
        let stable = |prompt: &str| (Stable, prompt.to_owned(), 3, storage);
        assert_eq!(told(&agent, &context), Some((vec![stable("old"), candidate], vec![])));
        // Passed or rejected, there is no candidate any more.
        agent.status = Some(AgentStatus { pending_release: None, pending_evaluation: None, ..status.clone() });
        assert_eq!(told(&agent, &context), Some((vec![stable("old")], vec![])));
        // A spec that asks for no gate is held by the one of the active release.
        let ungated = with("systemPrompt: new, replicas: 3, storage: postgresql", AgentStatus { quality_gate: Some(75), ..status });
        assert_eq!(told(&ungated, &context).unwrap().0[0], stable("old"));
        let free = AgentStatus { active_release: Some(1), ..AgentStatus::default() };
        assert_eq!(told(&with("systemPrompt: new, replicas: 3, storage: postgresql", free), &context), Some((vec![stable("new")], vec![])));
    }

    #[tokio::test]
    async fn a_canary_runs_its_own_spec_beside_and_stays_while_it_ends() {
        use Track::{Canary, Stable};
        let context = context();
        let asks = "systemPrompt: old, replicas: 3, storage: postgresql, canary: {enabled: true, weight: 50, systemPrompt: new}";
        let storage = Some(Storage::Postgresql);
        let stable = || (Stable, "old".to_owned(), 3, storage);
        let mut agent = agent_of(asks);
        assert_eq!(told(&agent, &context), Some((vec![stable(), (Canary, "new".to_owned(), 2, storage)], vec![])));
        let ending = CanaryStatus { phase: CanaryPhase::Draining, ..CanaryStatus::default() };
        agent.status = Some(AgentStatus { canary: Some(ending), ..AgentStatus::default() });
        assert_eq!(told(&agent, &context), Some((vec![stable()], vec![Canary])), "the next one begins when this one has gone");
        agent.spec.canary = None;
        assert_eq!(told(&agent, &context), Some((vec![stable()], vec![Canary])));
        agent.status = None;
        assert_eq!(told(&agent, &context), Some((vec![stable()], vec![])));
    }
}
