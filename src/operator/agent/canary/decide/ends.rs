//! The ends of a canary, by a user or by Slipway. It is ended in the spec, or by its status where the spec is not Slipway's to
//! write.

use slipway_api::canary::CanaryPhase;
use slipway_api::condition::{CANARY_READY, Finding};
use slipway_api::{CanaryStatus, labels};

use super::{Course, SOON};
use crate::agent::canary::decision::{Act, CanaryEnd, Decision, cut};
use crate::agent::canary::events::{self, EndedBy};
use crate::agent::canary::gather::Book;
use crate::agent::canary::{ending, said_before};

impl Course<'_> {
    /// What somebody asks for by annotation. Its writer counts as who has ended the canary.
    pub(super) fn asked(mut self, word: &str) -> Option<Decision> {
        let Book { by, asked_at, barrier, .. } = self.seen.book.as_ref()?;
        let refused = match (word, barrier) {
            ("rollback", None) => return Some(self.patches(CanaryEnd::RolledBack)),
            ("promote", None) => return Some(self.patches(CanaryEnd::Promoted)),
            ("rollback", Some(_)) => return Some(self.ends(*by, None)),
            ("promote", Some(barrier)) => format!("it cannot be promoted: {barrier}"),
            _ => format!("the annotation {} is neither promote nor rollback", labels::CANARY_ACTION),
        };
        self.events.push(events::refused(&self.status, asked_at, &refused));
        Some(Decision { act: Act::DropAnnotation, ..self.stands() })
    }

    /// Somebody promotes the canary that was there, while the spec asks for another one, which nobody has seen. That one begins once the
    /// annotation is gone.
    pub(super) fn mistaken(self) -> Decision {
        let stood = self.agent.canary_status().cloned().unwrap_or_default();
        let generation = self.agent.metadata.generation.unwrap_or_default().to_string();
        let why = "it cannot be promoted, as the spec asks for another canary by now; promote that one when it has begun";
        let status = CanaryStatus { phase: CanaryPhase::Progressing, weight: 0, ..stood };
        Decision {
            events: vec![events::refused(&status, &generation, why)],
            act: Act::DropAnnotation,
            finding: Some(Finding::unknown(CANARY_READY, "Progressing", why)),
            status: Some(status),
            ..Decision::default()
        }
    }

    /// The status stays as it is until the spec has changed.
    pub(super) fn patches(self, end: CanaryEnd) -> Decision {
        Decision { act: Act::Patch(end), ..self.stands() }
    }

    pub(super) fn stands(self) -> Decision {
        let finding = said_before(self.agent);
        Decision { status: self.before.cloned(), events: self.events, finding, next: Some(SOON), ..Decision::default() }
    }

    /// Slipway rolls it back. The status says why before the spec changes, so that a manager that is killed in between does not lose the reason.
    pub(super) fn roll_back(mut self, why: String) -> Option<Decision> {
        let why = cut(why);
        if self.before.and_then(|before| before.message.as_ref()) != Some(&why) {
            let finding = Finding::new(CANARY_READY, false, "RolledBack", &*why);
            self.status.message = Some(why);
            return Some(Decision {
                status: Some(self.status),
                events: self.events,
                finding: Some(finding),
                next: Some(SOON),
                ..Decision::default()
            });
        }
        match &self.seen.book.as_ref()?.barrier {
            None => Some(self.patches(CanaryEnd::RolledBack)),
            Some(_) => Some(self.ends(EndedBy::Analysis, Some(why))),
        }
    }

    /// Ends it by its status alone, as the spec cannot be written: it stays so while the spec asks for the same.
    pub(super) fn ends(mut self, by: EndedBy, why: Option<String>) -> Decision {
        self.events.push(events::rolled_back(&self.status, by, why.as_deref()));
        (self.status.phase, self.status.weight, self.status.desired_weight) = (CanaryPhase::RolledBack, 0, 0);
        self.restart_step(0);
        let hint = "it was rolled back, and the spec still asks for it: take spec.canary away there, or change it for another canary";
        let message = cut(why.map_or_else(|| hint.to_owned(), |why| format!("{why}; {hint}")));
        let finding = Finding::new(CANARY_READY, false, "RolledBack", &*message);
        self.status.message = Some(message);
        Decision {
            status: Some(self.status),
            events: self.events,
            finding: Some(finding),
            next: Some(ending::DRAIN),
            ..Decision::default()
        }
    }
}
