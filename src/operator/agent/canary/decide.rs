//! Decides about a canary, from the Agent and what was gathered. Pure.
//!
//! Reasons have one order of precedence: a request by a user, what stops the agent, faults, a gate, the capacity of the pods, and
//! last the analysis. A patch of the spec comes back as a spec without a canary, and [`ending`](super::ending) publishes the
//! Event: a canary ends the same way by REST, kubectl, analysis and a change of the spec.

mod analysis;
mod ends;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use slipway_api::canary::{CanaryPhase, TRACK_VERSION};
use slipway_api::condition::{self, CANARY_READY, Finding};
use slipway_api::{Agent, Canary, CanaryStatus, labels};
use slipway_release::content_of;

use super::decision::{Act, Decision, cut};
use super::evaluation::{Evaluation, EvaluationState};
use super::events::{self, CanaryEvent};
use super::figures::figures;
use super::gather::CanarySeen;
use super::steps;
use super::{asked_for, ending, in_status, said_before, spec_hash};
use crate::agent::content;
use crate::agent::track_pods::PodTrouble;
use crate::caches::canary::Reading;

/// What kubelet says of a container that it starts again only after a while, as it has crashed before.
const CRASHES: &str = "CrashLoopBackOff";
/// What to do about evaluations without a verdict: as long as they are there, they count for each canary of the same content.
const ONCE_MORE: &str = "delete that EvaluationRun to have this content evaluated once more, or change the canary";
/// Reason of a canary whose agent is stopped.
const STOPPED: &str = "AgentStopped";
/// When a canary is looked at again whose end was decided and has yet to be told.
const SOON: Duration = Duration::from_secs(1);

/// None where it has to be known first who has written what of the Agent ([`CanarySeen::book`]).
pub(super) fn decide(agent: &Agent, seen: &CanarySeen, now: Timestamp) -> Option<Decision> {
    let before = agent.canary_status();
    let word = asked_for(agent);
    let in_manifest = word.is_some() && seen.book.as_ref()?.in_manifest;
    let is_active = before.is_some_and(|before| before.phase.is_active());
    let asked = agent.canary().filter(|_| !agent.is_flaggers());
    let mut decision = match (before, asked) {
        (Some(before), _) if before.phase == CanaryPhase::Promoting => ending::promoting(before, seen, now),
        (Some(before), _) if before.phase == CanaryPhase::Draining => ending::draining(agent, before, now),
        (Some(before), Some(canary)) if before.phase == CanaryPhase::RolledBack && before.spec_hash == spec_hash(canary) => {
            ending::rolled_back(before, now)
        }
        (Some(before), None) if before.phase == CanaryPhase::RolledBack => ending::draining(agent, before, now),
        (Some(before), None) => ending::ended(agent, before, seen, now)?,
        (None, None) => ending::none(agent),
        // It must not meet the canary that is about to begin.
        (before, Some(_)) if word.is_some() && !is_active && !in_manifest => {
            Decision { status: before.cloned(), finding: said_before(agent), ..Decision::default() }
        }
        (before, Some(canary)) => Course::new(agent, canary, before, seen, now).run(word.filter(|_| is_active))?,
    };
    if word.is_some() && !is_active || has_weight(agent) && before.is_some_and(|before| ending::is_ending(before, now)) {
        decision.act = Act::DropAnnotation;
    }
    leave(agent, in_manifest, &mut decision);
    Some(decision)
}

/// The annotation stays where the engine of a GitOps tool would put it back. The status says that it has counted, and the condition too.
fn leave(agent: &Agent, in_manifest: bool, decision: &mut Decision) {
    let counts = in_manifest && decision.act == Act::DropAnnotation;
    if counts {
        decision.act = Act::Nothing;
        // Without a canary there is no status that could say so.
        decision.next = decision.next.or_else(|| decision.status.is_some().then_some(SOON));
    }
    let counted = agent.canary_action().filter(|_| counts || asked_for(agent).is_none());
    if let Some(status) = &mut decision.status {
        status.counted_action = counted.map(|word| in_status(word).to_owned());
    }
    let note =
        format!("the annotation {} stands in a manifest, has counted and stays; another word there counts again", labels::CANARY_ACTION);
    let silent = decision.finding.as_mut().filter(|finding| counted.is_some() && !finding.message.contains(&note));
    if let Some(finding) = silent {
        let said = std::mem::take(&mut finding.message);
        finding.message = if said.is_empty() { note } else { format!("{said}; {note}") };
    }
}

/// Whether an annotation says something of the weight.
fn has_weight(agent: &Agent) -> bool {
    agent.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(labels::CANARY_WEIGHT))
}

/// A canary that is to run.
struct Course<'a> {
    agent: &'a Agent,
    canary: &'a Canary,
    /// This very canary as it stood last; none of one that begins.
    before: Option<&'a CanaryStatus>,
    seen: &'a CanarySeen,
    now: Timestamp,
    status: CanaryStatus,
    events: Vec<CanaryEvent>,
}

impl<'a> Course<'a> {
    /// Another content is another canary, which begins anew.
    fn new(agent: &'a Agent, canary: &'a Canary, stood: Option<&'a CanaryStatus>, seen: &'a CanarySeen, now: Timestamp) -> Self {
        let content = content::promoted(agent).map(|promoted| content_of(&promoted).content_hash()).unwrap_or_default();
        let hash = spec_hash(canary);
        let is_same = |stood: &&CanaryStatus| stood.phase.is_active() && stood.spec_hash == hash && stood.content == content;
        let before = stood.filter(is_same);
        let began = || Some(Time(condition::whole_seconds(now)));
        let fresh =
            || CanaryStatus { content, spec_hash: hash.clone(), started_at: began(), step_started_at: began(), ..CanaryStatus::default() };
        let mut status = before.cloned().unwrap_or_else(fresh);
        status.desired_weight = steps::wanted(agent, canary, before);
        status.version = Some(canary.version.clone().unwrap_or_else(|| TRACK_VERSION.to_owned()));
        status.stable_version.clone_from(&seen.stable_version);
        let mut course = Self { agent, canary, before, seen, now, status, events: Vec::new() };
        course.count();
        course.measure();
        if before.is_none() {
            course.events.push(events::started(agent, &course.status));
        }
        course
    }

    /// Pods, what they run, and the number of its step.
    fn count(&mut self) {
        let deployment = self.seen.deployment.as_ref();
        (self.status.replicas, self.status.ready_replicas) = deployment.map_or((0, 0), |it| (it.wanted.max(0), it.ready.max(0)));
        self.number();
        let runs = self.seen.run_hash.clone();
        if runs.is_some() && self.status.run_hash != runs {
            // What was measured before was measured of something else.
            if self.status.run_hash.is_some() {
                self.restart_step(0);
                self.status.canary = None;
            }
            self.status.run_hash = runs;
        }
        if let Some(evaluation) = &self.seen.evaluation {
            if let Some(run) = &evaluation.run {
                (self.status.evaluation, self.status.attempt) = (Some(run.name.clone()), run.attempt);
            }
        } else {
            (self.status.evaluation, self.status.attempt) = (None, 0);
        }
    }

    /// Numbers the step by the weight that is wanted. A weight by annotation leaves it as it is.
    fn number(&mut self) {
        let weights = self.canary.step_weights();
        let number = |count: usize| i32::try_from(count).ok().filter(|_| self.canary.analysis.is_some());
        let stood = self.status.step.filter(|_| self.agent.canary_weight().is_some());
        self.status.step = stood.or_else(|| number(steps::reached(&weights, self.status.desired_weight) + 1));
        self.status.steps = number(weights.len());
    }

    /// The figures, as they stood where there are none now.
    fn measure(&mut self) {
        let stable = self.seen.stable_run_hash.as_deref();
        let is_evidence = |reading: &&Reading| reading.is_evidence(&self.status, stable, self.now);
        let Some(reading) = self.seen.reading.as_ref().filter(is_evidence) else { return };
        self.status.canary = Some(figures(&reading.canary, self.seen.score()));
        self.status.stable = Some(figures(&reading.stable, reading.stable.evidence.score));
    }

    /// What its pods had had when that was read last: a step that begins while nothing can be read does not count them again.
    fn requests(&self) -> i64 {
        self.status.canary.as_ref().map_or(0, |figures| figures.requests)
    }

    fn restart_step(&mut self, requests: i64) {
        (self.status.step_started_at, self.status.step_requests) = (Some(Time(condition::whole_seconds(self.now))), requests);
    }

    /// `word` is what is asked for by annotation.
    fn run(mut self, word: Option<&str>) -> Option<Decision> {
        match word {
            Some(word) if self.before.is_some() => return self.asked(word),
            Some("promote") => return Some(self.mistaken()),
            // One that begins has yet to be told of, so that its end can be.
            _ => {}
        }
        if let Some(why) = self.agent.stopped_by() {
            return Some(self.rests(Some(false), STOPPED, why.to_owned()));
        }
        if said_before(self.agent).is_some_and(|said| said.reason == STOPPED) {
            // It has waited for nothing meanwhile.
            let requests = self.requests();
            self.restart_step(requests);
        }
        if let Some(fault) = &self.seen.fault {
            let message = match fault.message.strip_prefix("canary.") {
                Some(field) => format!("spec.canary.{field}"),
                None => format!("spec.canary: {}", fault.message),
            };
            return Some(self.rests(Some(false), fault.reason, message));
        }
        if let Some(PodTrouble { reason, message }) = self.seen.given_up(self.status.weight) {
            if self.canary.analysis.is_some() {
                return self.roll_back(format!("its pods do not start: {message}"));
            }
            return Some(self.rests(Some(false), reason, message.clone()));
        }
        if let Some(PodTrouble { message, .. }) = self.crashes() {
            return self.roll_back(format!("its pods crash: {message}"));
        }
        if let Some(evaluation) = &self.seen.evaluation {
            match &evaluation.state {
                EvaluationState::Failed(why) => {
                    if evaluation.is_gate {
                        (self.status.weight, self.status.phase) = (0, CanaryPhase::Progressing);
                    }
                    return self.roll_back(why.clone());
                }
                EvaluationState::Spent(why) if evaluation.is_gate => {
                    return self.roll_back(format!("its evaluations ended without a verdict; the last one: {why}; {ONCE_MORE}"));
                }
                EvaluationState::Unknown | EvaluationState::Absent | EvaluationState::Runs if evaluation.is_gate => {
                    return Some(self.awaits(evaluation));
                }
                EvaluationState::Unknown
                | EvaluationState::Absent
                | EvaluationState::Runs
                | EvaluationState::Passed(_)
                | EvaluationState::Spent(_) => {}
            }
        }
        self.weigh();
        if self.status.phase == CanaryPhase::Progressing {
            let (holds, reason, message) = self.on_its_way();
            return Some(self.waits(holds, &reason, message));
        }
        match &self.canary.analysis {
            Some(analysis) => self.analyse(analysis),
            None if self.status.weight != self.status.desired_weight => Some(self.rises()),
            None => Some(self.serves(None)),
        }
    }

    /// What all pods of a canary that has served crash of, again and again. Kubernetes gives up a rollout alone, and analysis would begin
    /// its step anew each time that they come back, with users whom they lose.
    fn crashes(&self) -> Option<&'a PodTrouble> {
        let analysis = self.canary.analysis.as_ref().filter(|analysis| !analysis.paused);
        let has_served = self.status.canary.as_ref().is_some_and(|figures| figures.requests > 0);
        let is_down = self.seen.is_as_wanted && self.seen.serving_pods() == 0;
        let trouble = self.seen.trouble.as_ref().filter(|_| analysis.is_some() && has_served && is_down)?;
        (trouble.reason == CRASHES).then_some(trouble)
    }

    /// Waits for the run of its gate, which begins once its pods are ready. Until then it serves nobody.
    fn awaits(self, evaluation: &Evaluation) -> Decision {
        let name = evaluation.run.as_ref().map(|run| run.name.clone()).unwrap_or_default();
        let is_ready = self.seen.is_settled() && self.seen.serving_pods() > 0;
        let awaiting = |words: String| (None, condition::AWAITING_EVALUATION.to_owned(), words);
        let (holds, reason, message) = match evaluation.state {
            EvaluationState::Runs => awaiting(format!("it serves nobody until evaluation {name} has passed")),
            _ if !is_ready => self.on_its_way(),
            EvaluationState::Unknown => awaiting("waiting to read what it is evaluated by".to_owned()),
            _ => awaiting(format!("it serves nobody until evaluation {name} has passed, which begins")),
        };
        self.rests(holds, &reason, message)
    }

    /// What it is on the way to: the words of its pods, or of what they wait for.
    fn on_its_way(&self) -> (Option<bool>, String, String) {
        if let Some(trouble) = &self.seen.trouble {
            return (Some(false), trouble.reason.clone(), trouble.message.clone());
        }
        let words = match (&self.seen.waits, &self.seen.deployment) {
            (Some(why), _) => why.clone(),
            (None, Some(pods)) if pods.wanted == 0 && pods.settled() => "it has no pods, as replicas are 0".to_owned(),
            (None, Some(pods)) => format!("{} of {} pods are ready", pods.available, pods.wanted),
            (None, None) => "its Deployment is being made".to_owned(),
        };
        (None, "Progressing".to_owned(), words)
    }

    /// Sets the weight that is in force. It falls at once and rises when there are pods for it. Another weight begins its step anew.
    fn weigh(&mut self) {
        let (in_force, desired) = (self.status.weight, self.status.desired_weight);
        let weight = match self.seen.serving_pods() {
            ..=0 => 0,
            _ if self.seen.is_settled() => desired,
            _ => in_force.min(desired),
        };
        let is_changed = self.before.is_some_and(|before| before.desired_weight != desired);
        if weight != in_force || (is_changed && weight != desired) {
            let requests = self.requests();
            self.restart_step(requests);
            self.status.weight = weight;
        }
        let serves = weight > 0 || (desired == 0 && self.seen.serving_pods() > 0);
        self.status.phase = if serves { CanaryPhase::Serving } else { CanaryPhase::Progressing };
    }

    /// Something is in the way of its weight. With analysis somebody has to decide once that has lasted too long.
    fn waits(self, holds: Option<bool>, reason: &str, message: String) -> Decision {
        let is_stopped = self.agent.stopped_by().is_some() || self.agent.canary_weight().is_some();
        let analysis = self.canary.analysis.as_ref().filter(|analysis| !analysis.paused && !is_stopped);
        match analysis {
            Some(analysis) if steps::is_late(analysis, &self.status, self.now) => {
                let reason = if holds == Some(false) { reason } else { steps::INCONCLUSIVE };
                self.inconclusive(reason, message)
            }
            _ => self.said(holds, reason, Some(message)),
        }
    }

    /// It serves nobody.
    fn rests(mut self, holds: Option<bool>, reason: &str, message: String) -> Decision {
        if self.status.weight != 0 {
            let requests = self.requests();
            self.restart_step(requests);
        }
        (self.status.phase, self.status.weight) = (CanaryPhase::Progressing, 0);
        self.waits(holds, reason, message)
    }

    fn serves(self, why: Option<String>) -> Decision {
        let reason = if self.status.phase == CanaryPhase::Paused { "Paused" } else { "Serving" };
        self.said(Some(true), reason, why)
    }

    fn said(mut self, holds: Option<bool>, reason: &str, message: Option<String>) -> Decision {
        let mut words = Vec::new();
        if self.status.phase != CanaryPhase::Progressing {
            words.push(format!("{} % of conversations", self.status.weight));
        }
        self.status.message = message.map(cut);
        words.extend(self.status.message.clone());
        if has_weight(self.agent) && self.agent.canary_weight().is_none() {
            words.push(format!("the annotation {} is no number from 0 to 100 and does not count", labels::CANARY_WEIGHT));
        }
        let act = if self.seen.is_run_due() { Act::MakeRun } else { Act::Nothing };
        let finding = Finding { kind: CANARY_READY, holds, reason: reason.to_owned(), message: words.join("; ") };
        Decision { status: Some(self.status), events: self.events, act, finding: Some(finding), next: None }
    }
}
