//! The statuses of an ingestion, pure: each step makes the next one from the one before, and what changed becomes an Event.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use slipway_api::Ingestion;
use slipway_api::condition::{self, Finding, READY, RECONCILING, STALLED};
use slipway_api::ingestion::{ERRORS_MAX, IngestionPhase, IngestionStatus};
use slipway_cluster::event::EventSpec;

use super::plan::Cause;
use crate::tenancy::knowledge::IngestionProgress;

/// The status that an ingestion has, and the time of the step.
pub(super) struct Steps<'a> {
    pub ingestion: &'a Ingestion,
    pub before: &'a IngestionStatus,
    pub now: Timestamp,
}

impl Steps<'_> {
    /// It waits for what it names, for its turn, or for the database.
    pub(super) fn waiting(&self, cause: &Cause) -> IngestionStatus {
        let phase = self.before.phase.filter(|phase| *phase == IngestionPhase::Running).unwrap_or_default();
        let reason = cause.reason;
        self.with(phase, None, [(false, reason), (true, reason), (false, reason)], &cause.message)
    }

    /// Its Job is there. `trouble` is what keeps its pod from starting.
    pub(super) fn running(&self, progress: Option<&IngestionProgress>, trouble: Option<&Cause>) -> IngestionStatus {
        let (reason, message) = match (trouble, progress) {
            (Some(cause), _) => (cause.reason, &*cause.message),
            (None, Some(_)) => ("Running", "documents are read"),
            (None, None) => ("Starting", "its pod starts"),
        };
        let mut status = self.with(IngestionPhase::Running, progress, [(false, reason), (true, reason), (false, reason)], message);
        status.started_at.get_or_insert_with(|| Time(condition::whole_seconds(self.now)));
        status
    }

    pub(super) fn completed(&self, progress: &IngestionProgress) -> IngestionStatus {
        let documents = &progress.documents;
        let failed = if documents.failed > 0 { format!(", {} could not be read", documents.failed) } else { String::new() };
        let message = format!(
            "{} documents: {} new or changed, {} as before, {} removed{failed}",
            documents.seen, documents.changed, documents.unchanged, documents.removed
        );
        let reason = if documents.failed > 0 { "CompletedWithErrors" } else { "Completed" };
        self.with(IngestionPhase::Completed, Some(progress), [(true, reason), (false, reason), (false, reason)], &message)
    }

    pub(super) fn failed(&self, cause: &Cause, progress: Option<&IngestionProgress>) -> IngestionStatus {
        let reason = cause.reason;
        self.with(IngestionPhase::Failed, progress, [(false, reason), (false, reason), (true, reason)], &cause.message)
    }

    pub(super) fn cancelled(&self, progress: Option<&IngestionProgress>) -> IngestionStatus {
        let reasons = [(false, "Cancelled"), (false, "Cancelled"), (true, "Cancelled")];
        self.with(IngestionPhase::Cancelled, progress, reasons, "spec.cancel is true; the ingestion was ended, and what it has read stays")
    }

    /// `reasons` are those of Ready, Reconciling and Stalled.
    fn with(
        &self,
        phase: IngestionPhase,
        progress: Option<&IngestionProgress>,
        reasons: [(bool, &str); 3],
        message: &str,
    ) -> IngestionStatus {
        let generation = self.ingestion.metadata.generation;
        let kinds = [READY, RECONCILING, STALLED];
        let findings = kinds.into_iter().zip(reasons).map(|(kind, (holds, reason))| Finding::new(kind, holds, reason, message)).collect();
        let ended = phase.is_final().then(|| Time(condition::whole_seconds(self.now)));
        let mut status = IngestionStatus {
            phase: Some(phase),
            observed_generation: generation,
            finished_at: self.before.finished_at.clone().or(ended),
            conditions: condition::conditions(findings, &self.before.conditions, generation, self.now),
            ..self.before.clone()
        };
        if let Some(progress) = progress {
            status.documents = Some(progress.documents);
            (status.pages, status.chunks) = (Some(progress.pages), Some(progress.chunks));
            status.errors = progress.errors.iter().take(ERRORS_MAX).cloned().collect();
        }
        status
    }
}

/// How an ingestion began or ended, as metrics count it.
pub(super) fn outcome(before: &IngestionStatus, now: &IngestionStatus) -> Option<&'static str> {
    if before.phase == now.phase {
        return None;
    }
    match now.phase? {
        IngestionPhase::Pending => None,
        IngestionPhase::Running => Some("started"),
        IngestionPhase::Completed => Some("completed"),
        IngestionPhase::Failed => Some("failed"),
        IngestionPhase::Cancelled => Some("cancelled"),
    }
}

/// The Event of a step, if it is one of which people want to hear.
pub(super) fn event(before: &IngestionStatus, now: &IngestionStatus) -> Option<EventSpec> {
    let message = || now.conditions.first().map(|condition| condition.message.clone()).unwrap_or_default();
    let (warning, reason, note) = match outcome(before, now)? {
        "started" => (false, "IngestionStarted", "its Job was made".to_owned()),
        "completed" => (false, "IngestionCompleted", message()),
        "failed" => (true, "IngestionFailed", message()),
        _ => (false, "IngestionCancelled", message()),
    };
    Some(EventSpec { warning, reason: reason.to_owned(), action: "Ingest", note })
}

#[cfg(test)]
mod tests {
    use slipway_api::ingestion::{DocumentError, IngestedDocuments};

    use super::*;

    fn told(status: &IngestionStatus) -> String {
        let conditions = status.conditions.iter().map(|condition| format!("{}={} {}", condition.type_, condition.status, condition.reason));
        conditions.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn an_ingestion_goes_from_pending_to_its_end() {
        let ingestion: Ingestion =
            serde_yaml::from_str("{metadata: {name: i, generation: 1}, spec: {knowledgeBase: docs, upload: u}}").unwrap();
        let step = |before: &IngestionStatus, second, of: &dyn Fn(Steps<'_>) -> IngestionStatus| {
            let now = of(Steps { ingestion: &ingestion, before, now: Timestamp::from_second(second).unwrap() });
            let event = event(before, &now).map(|event| event.reason).unwrap_or_default();
            (now, event)
        };
        let cause = Cause::new("SecretMissing", "there is none");
        let (waiting, event) = step(&IngestionStatus::default(), 1, &|steps| steps.waiting(&cause));
        assert_eq!((waiting.phase, event.as_str()), (Some(IngestionPhase::Pending), ""));
        assert_eq!(told(&waiting), "Ready=False SecretMissing, Reconciling=True SecretMissing, Stalled=False SecretMissing");
        let (starting, event) = step(&waiting, 2, &|steps| steps.running(None, None));
        assert_eq!((starting.phase, event.as_str()), (Some(IngestionPhase::Running), "IngestionStarted"));
        assert!(told(&starting).starts_with("Ready=False Starting"));
        let documents = IngestedDocuments { seen: 3, changed: 1, unchanged: 1, failed: 1, removed: 2 };
        let errors = vec![DocumentError { document: "a".to_owned(), message: "b".to_owned() }; 30];
        let progress = IngestionProgress { documents, pages: 7, chunks: 9, errors, ..IngestionProgress::default() };
        let (running, event) = step(&starting, 3, &|steps| steps.running(Some(&progress), None));
        assert_eq!((running.started_at.clone(), running.pages, event.as_str()), (starting.started_at.clone(), Some(7), ""));
        assert_eq!((running.documents, running.errors.len()), (Some(documents), ERRORS_MAX));
        let (away, _) = step(&running, 4, &|steps| steps.waiting(&Cause::new("DatabaseUnavailable", "x")));
        assert_eq!((away.phase, away.documents), (Some(IngestionPhase::Running), Some(documents)), "what is known stays");
        let (done, event) = step(&away, 5, &|steps| steps.completed(&progress));
        assert_eq!(event, "IngestionCompleted");
        assert_eq!(done.conditions[0].message, "3 documents: 1 new or changed, 1 as before, 2 removed, 1 could not be read");
        assert_eq!(told(&done), "Ready=True CompletedWithErrors, Reconciling=False CompletedWithErrors, Stalled=False CompletedWithErrors");
        assert_eq!(done.finished_at, Some(Time(Timestamp::from_second(5).unwrap())));
        let (failed, event) = step(&running, 6, &|steps| steps.failed(&cause, None));
        assert_eq!((event.as_str(), failed.documents), ("IngestionFailed", Some(documents)));
        assert_eq!(told(&failed), "Ready=False SecretMissing, Reconciling=False SecretMissing, Stalled=True SecretMissing");
        let (cancelled, event) = step(&running, 7, &|steps| steps.cancelled(None));
        assert_eq!((cancelled.phase, event.as_str()), (Some(IngestionPhase::Cancelled), "IngestionCancelled"));
    }
}
