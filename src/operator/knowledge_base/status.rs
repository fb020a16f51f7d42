//! The status of a knowledge base, pure.

use jiff::Timestamp;
use kube::ResourceExt;
use slipway_api::condition::{self, Finding, READY, RECONCILING, STALLED};
use slipway_api::ingestion::IngestionPhase;
use slipway_api::knowledge_base::{KnowledgePhase, LastIngestion, ScheduledSource};
use slipway_api::{Ingestion, KnowledgeBase, KnowledgeBaseStatus, ids};
use slipway_database::knowledge::{BaseInfo, Counts};

use crate::fault::ConditionFault;

/// What is in the way of a knowledge base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Somebody has to change something.
    Fault(ConditionFault),
    /// It goes away by itself.
    Waits(ConditionFault),
}

/// All that the status is made of.
pub(super) struct Facts<'a> {
    pub base: &'a KnowledgeBase,
    pub obstacle: Option<Obstacle>,
    /// What the database has, where it was asked.
    pub content: Option<&'a (BaseInfo, Counts)>,
    /// The model of bases that name none.
    pub model: &'a str,
    /// The ingestions of the base.
    pub ingestions: &'a [&'a Ingestion],
    pub schedules: Vec<ScheduledSource>,
    pub now: Timestamp,
}

pub(super) fn status(facts: Facts, before: &KnowledgeBaseStatus) -> KnowledgeBaseStatus {
    let base = facts.base;
    let generation = base.metadata.generation;
    let last = last(facts.ingestions);
    let count = |of: fn(&Counts) -> u64, before: Option<i64>| {
        facts.content.map_or(before, |(_, counts)| Some(i64::try_from(of(counts)).unwrap_or(i64::MAX)))
    };
    let documents = count(|counts| counts.ready, before.documents);
    let fixed = facts.content.and_then(|(info, _)| info.model.clone());
    let is_empty = documents.unwrap_or(0) == 0;
    let obstacle = facts.obstacle.or_else(|| {
        let failed = last.filter(|last| is_empty && phase(last) == IngestionPhase::Failed)?;
        let why = failed.status.as_ref().and_then(|status| Some(status.conditions.first()?.message.clone())).unwrap_or_default();
        let message = format!("nothing can be searched: Ingestion {} failed: {why}", failed.name_any());
        Some(Obstacle::Fault(ConditionFault { reason: "IngestionFailed", message }))
    });
    let (holds, reason, message) = match &obstacle {
        None => ([true, false, false], "Available", "documents can be added and searched".to_owned()),
        Some(Obstacle::Fault(fault)) => ([false, false, true], fault.reason, fault.message.clone()),
        Some(Obstacle::Waits(fault)) => ([false, true, false], fault.reason, fault.message.clone()),
    };
    let findings = [READY, RECONCILING, STALLED].into_iter().zip(holds).map(|(kind, holds)| Finding::new(kind, holds, reason, &*message));
    let is_under_way = last.is_some_and(|last| phase(last) == IngestionPhase::Running);
    KnowledgeBaseStatus {
        phase: Some(match obstacle {
            _ if is_under_way => KnowledgePhase::Processing,
            Some(Obstacle::Fault(_)) => KnowledgePhase::Error,
            _ if is_empty => KnowledgePhase::Empty,
            _ => KnowledgePhase::Ready,
        }),
        id: Some(ids::knowledge_base(&base.name_any())),
        slug: Some(base.name_any()),
        embedding_model: fixed.or_else(|| base.spec.embedding_model.clone()).or_else(|| Some(facts.model.to_owned())),
        dimensions: facts.content.map_or(before.dimensions, |(info, _)| info.dimensions.and_then(|length| i32::try_from(length).ok())),
        documents,
        failed_documents: count(|counts| counts.failed, before.failed_documents),
        chunks: count(|counts| counts.chunks, before.chunks),
        last_ingestion: last.map_or_else(
            || before.last_ingestion.clone(),
            |last| {
                Some(LastIngestion { name: last.name_any(), phase: phase(last), finished_at: last.status.as_ref()?.finished_at.clone() })
            },
        ),
        schedules: facts.schedules,
        observed_generation: generation,
        conditions: condition::conditions(findings.collect(), &before.conditions, generation, facts.now),
    }
}

/// The one that is under way and was begun last, else the one that ended last.
fn last<'a>(ingestions: &[&'a Ingestion]) -> Option<&'a Ingestion> {
    let started = |ingestion: &&&Ingestion| ingestion.status.as_ref().and_then(|status| status.started_at.clone()).map(|time| time.0);
    let ended = |ingestion: &&&Ingestion| ingestion.status.as_ref().and_then(|status| status.finished_at.clone()).map(|time| time.0);
    let under_way = ingestions.iter().filter(|ingestion| phase(ingestion) == IngestionPhase::Running).max_by_key(started);
    under_way.or_else(|| ingestions.iter().filter(|ingestion| phase(ingestion).is_final()).max_by_key(ended)).copied()
}

pub(super) fn phase(ingestion: &Ingestion) -> IngestionPhase {
    ingestion.status.as_ref().and_then(|status| status.phase).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn base() -> KnowledgeBase {
        serde_yaml::from_str("{metadata: {name: product-docs, generation: 2}, spec: {name: Docs}}").unwrap()
    }

    fn ingestion(name: &str, phase: &str, second: i64) -> Ingestion {
        let time = Timestamp::from_second(second).unwrap().to_string();
        let mut status = json!({"phase": phase, "startedAt": time});
        if phase != "Running" {
            status["finishedAt"] = json!(time);
        }
        serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {"knowledgeBase": "product-docs", "upload": "u"}, "status": status}),
        )
        .unwrap()
    }

    fn content(ready: u64, model: Option<&str>) -> (BaseInfo, Counts) {
        let info = BaseInfo {
            uid: "u".to_owned(),
            team: "tk_a".to_owned(),
            team_uid: "t".to_owned(),
            kb_id: "kb_product_docs".to_owned(),
            model: model.map(str::to_owned),
            dimensions: model.map(|_| 384),
            indexed: false,
        };
        (info, Counts { ready, failed: 1, chunks: 10 * ready, bytes: 0 })
    }

    #[test]
    fn the_phase_says_whether_it_can_be_searched() {
        let fault = || ConditionFault { reason: "X", message: "m".to_owned() };
        let (waits, faulty) = (|| Some(Obstacle::Waits(fault())), || Some(Obstacle::Fault(fault())));
        let of = |obstacle, content: Option<&(BaseInfo, Counts)>, ingestions: &[Ingestion]| {
            let all: Vec<&Ingestion> = ingestions.iter().collect();
            let facts = Facts {
                base: &base(),
                obstacle,
                content,
                model: "builtin:m",
                ingestions: &all,
                schedules: Vec::new(),
                now: Timestamp::UNIX_EPOCH,
            };
            let status = status(facts, &KnowledgeBaseStatus::default());
            let ready = &status.conditions[0];
            let last = status.last_ingestion.as_ref().map(|last| last.name.clone()).unwrap_or_default();
            (status.phase.unwrap().as_str(), ready.status == "True", ready.reason.clone(), last)
        };
        let expected = |phase, ready, reason: &str, last: &str| (phase, ready, reason.to_owned(), last.to_owned());
        let (none, some) = (content(0, None), content(3, Some("builtin:m")));
        let ended = |name, phase, second| ingestion(name, phase, second);
        assert_eq!(of(None, Some(&none), &[]), expected("Empty", true, "Available", ""));
        assert_eq!(of(waits(), None, &[]), expected("Empty", false, "X", ""));
        assert_eq!(of(faulty(), Some(&some), &[]), expected("Error", false, "X", ""));
        let two = [ended("old", "Failed", 1), ended("new", "Completed", 2)];
        assert_eq!(of(None, Some(&some), &two), expected("Ready", true, "Available", "new"));
        let running = [ended("new", "Completed", 9), ingestion("now", "Running", 3)];
        assert_eq!(of(None, Some(&some), &running), expected("Processing", true, "Available", "now"));
        let failed = [ended("first", "Failed", 1)];
        assert_eq!(of(None, Some(&none), &failed), expected("Error", false, "IngestionFailed", "first"));
        assert_eq!(of(None, Some(&some), &failed), expected("Ready", true, "Available", "first"), "what is there can be searched");
    }

    #[test]
    fn what_is_known_stays_while_the_database_is_away() {
        let of = |content, before: &KnowledgeBaseStatus| {
            let base = base();
            let facts = Facts {
                base: &base,
                obstacle: None,
                content,
                model: "builtin:m",
                ingestions: &[],
                schedules: Vec::new(),
                now: Timestamp::UNIX_EPOCH,
            };
            status(facts, before)
        };
        let (filled, empty) = (content(3, Some("nomic-embed-text")), content(0, None));
        let known = of(Some(&filled), &KnowledgeBaseStatus::default());
        assert_eq!((known.documents, known.failed_documents, known.chunks, known.dimensions), (Some(3), Some(1), Some(30), Some(384)));
        assert_eq!(known.embedding_model.as_deref(), Some("nomic-embed-text"), "the model that was fixed by the first ingestion");
        let away = of(None, &known);
        assert_eq!((away.documents, away.dimensions, away.slug.as_deref()), (Some(3), Some(384), Some("product-docs")));
        let fresh = of(Some(&empty), &KnowledgeBaseStatus::default());
        assert_eq!((fresh.embedding_model.as_deref(), fresh.dimensions), (Some("builtin:m"), None));
    }
}
