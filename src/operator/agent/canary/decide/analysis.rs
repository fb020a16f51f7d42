//! Decisions that follow from the measurements of a canary that serves.

use slipway_api::canary::{CanaryAnalysis, CanaryPhase, Promotion};
use slipway_api::{CanaryStatus, labels};

use super::Course;
use crate::agent::canary::decision::{Act, CanaryEnd, Decision};
use crate::agent::canary::events::{self, EndedBy};
use crate::agent::canary::gather::Book;
use crate::agent::canary::steps::{self, Move};

impl Course<'_> {
    /// It is told of once a step.
    pub(super) fn inconclusive(mut self, reason: &str, why: String) -> Decision {
        self.status.phase = CanaryPhase::Inconclusive;
        let is_told = |before: &CanaryStatus| before.phase == CanaryPhase::Inconclusive && before.step == self.status.step;
        if !self.before.is_some_and(is_told) {
            self.events.push(events::inconclusive(&self.status, reason, &why));
        }
        self.said(Some(false), reason, Some(why))
    }

    pub(super) fn analyse(mut self, analysis: &CanaryAnalysis) -> Option<Decision> {
        let stood = self.before.map(|before| before.phase);
        if self.agent.canary_weight().is_some() {
            self.status.phase = CanaryPhase::Paused;
            let why = format!("analysis waits, as the annotation {} sets the weight", labels::CANARY_WEIGHT);
            return Some(self.serves(Some(why)));
        }
        if analysis.paused {
            self.status.phase = CanaryPhase::Paused;
            return Some(self.serves(Some("analysis is paused".to_owned())));
        }
        if self.status.weight != self.status.desired_weight {
            return match steps::catastrophe(&self.status, self.seen, self.now) {
                Some(why) => self.roll_back(why),
                None => Some(self.rises()),
            };
        }
        let then = steps::next(self.canary, analysis, &self.status, self.seen, self.now);
        match then {
            Move::RollBack(why) => self.roll_back(why),
            Move::Promote => self.promote(analysis),
            Move::Wait(_) | Move::Inconclusive { .. } if stood == Some(CanaryPhase::Succeeded) && self.stays() => Some(self.succeeded()),
            Move::Wait(why) => Some(self.serves(Some(why))),
            Move::Advance(weight) => {
                let requests = self.requests();
                self.status.desired_weight = weight;
                self.number();
                self.restart_step(requests);
                self.events.push(events::advanced(&self.status, requests));
                Some(self.rises())
            }
            Move::Inconclusive { reason, why } => Some(self.inconclusive(reason, why)),
        }
    }

    /// Serves with a lower weight than it should, as pods are on their way.
    pub(super) fn rises(self) -> Decision {
        let trouble = self.seen.trouble.as_ref().map(|trouble| format!(": {}", trouble.said())).unwrap_or_default();
        let why = format!("{} % when there are pods for it{trouble}", self.status.desired_weight);
        self.waits(Some(true), "Serving", why)
    }

    /// Whether its spec is the one of which the status speaks.
    pub(super) fn stays(&self) -> bool {
        self.agent.status.as_ref().and_then(|status| status.observed_generation) == self.agent.metadata.generation
    }

    /// After the last step. What others own, and what the API server refuses, is asked for again when the spec changes, not before.
    pub(super) fn promote(mut self, analysis: &CanaryAnalysis) -> Option<Decision> {
        if self.before.is_some_and(|before| before.phase == CanaryPhase::Succeeded) && self.stays() {
            return Some(self.succeeded());
        }
        if analysis.promotion == Promotion::Manual {
            self.status.message = None;
            return Some(self.succeeded());
        }
        let Book { barrier, .. } = self.seen.book.as_ref()?;
        let Some(barrier) = barrier else {
            return Some(Decision {
                act: Act::Patch(CanaryEnd::Promoted),
                ..self.serves(Some("it kept its gates and is promoted".to_owned()))
            });
        };
        self.events.push(events::refused(&self.status, EndedBy::Analysis.word(), barrier));
        self.status.message = Some(format!("it kept its gates, and cannot be promoted: {barrier}"));
        Some(self.succeeded())
    }

    /// Every gate passed. The message says why it goes no further, where that is not for people to say.
    pub(super) fn succeeded(mut self) -> Decision {
        self.status.phase = CanaryPhase::Succeeded;
        let said = self.status.message.clone();
        let message = said.unwrap_or_else(|| "it kept its gates at the last step; promote it or roll it back".to_owned());
        self.said(Some(true), "Succeeded", Some(message))
    }
}
