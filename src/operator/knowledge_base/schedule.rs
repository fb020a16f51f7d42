//! When sources are read by themselves, pure. The next time of each stands in the status, so that none is forgotten while nobody
//! leads, and the name of an Ingestion follows from it, so that none is made twice.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, ResourceExt};
use sha2::{Digest, Sha256};
use slipway_api::knowledge_base::ScheduledSource;
use slipway_api::{Ingestion, IngestionSpec, KnowledgeBase, labels};

/// How many characters of the knowledge base's name are in that of an Ingestion.
const NAME_MAX: usize = 24;

/// A source whose time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Due {
    pub source: String,
    pub at: Timestamp,
}

/// The next times of the sources, and those whose time has come. What was missed is made up for once.
pub(super) fn turns(base: &KnowledgeBase, before: &[ScheduledSource], now: Timestamp) -> (Vec<ScheduledSource>, Vec<Due>) {
    let (mut next, mut due) = (Vec::new(), Vec::new());
    for source in &base.spec.sources {
        let Ok(Some(schedule)) = source.schedule() else { continue };
        // A time that the schedule does not know is of an earlier one.
        let known = before.iter().find(|known| known.name == source.name).map(|known| known.next_at.0).filter(|at| schedule.holds_at(*at));
        let is_due = known.is_some_and(|at| at <= now);
        if let Some(at) = known.filter(|_| is_due) {
            due.push(Due { source: source.name.clone(), at });
        }
        if let Some(at) = known.filter(|_| !is_due).or_else(|| schedule.next_after(now)) {
            next.push(ScheduledSource { name: source.name.clone(), next_at: Time(at) });
        }
    }
    (next, due)
}

/// The Ingestion of a source at a time. It goes with the knowledge base.
pub(super) fn ingestion(base: &KnowledgeBase, due: &Due) -> Ingestion {
    let name = base.name_any();
    let digest = hex::encode(Sha256::digest(format!("{}/{}", base.uid().unwrap_or_default(), due.source)));
    let short: String = name.chars().take(NAME_MAX).collect();
    let time = due.at.to_zoned(TimeZone::UTC).datetime();
    let stamp = format!("{:04}{:02}{:02}{:02}{:02}", time.year(), time.month(), time.day(), time.hour(), time.minute());
    let fixed = [(labels::PART_OF, labels::PLATFORM), (labels::MANAGED_BY, labels::OPERATOR)];
    Ingestion {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}-{stamp}", short.trim_end_matches('-'), &digest[..8])),
            namespace: base.namespace(),
            labels: Some(fixed.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            owner_references: base.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: IngestionSpec { knowledge_base: name, source_name: Some(due.source.clone()), ..IngestionSpec::default() },
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use slipway_api::ingestion::NAME_MAX;

    use super::*;

    fn base(name: &str, schedule: &str) -> KnowledgeBase {
        serde_yaml::from_str(&format!(
            "{{metadata: {{name: {name}, namespace: team-a, uid: u}}, spec: {{name: N, sources: [{{name: files, schedule: '{schedule}', local: {{path: a}}}}, {{name: other, local: {{path: b}}}}]}}}}"
        ))
        .unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_source_is_read_once_at_each_of_its_times() {
        let nightly = base("docs", "0 3 * * *");
        let (next, due) = turns(&nightly, &[], at("2026-01-01T12:00:00Z"));
        assert_eq!((next.len(), next[0].next_at.0, due.len()), (1, at("2026-01-02T03:00:00Z"), 0), "not before its time");
        let (same, due) = turns(&nightly, &next, at("2026-01-02T02:59:59Z"));
        assert_eq!((same, due.len()), (next.clone(), 0));
        let (after, due) = turns(&nightly, &next, at("2026-01-02T03:00:00Z"));
        assert_eq!(due, [Due { source: "files".to_owned(), at: at("2026-01-02T03:00:00Z") }]);
        assert_eq!(after[0].next_at.0, at("2026-01-03T03:00:00Z"));
        let (late, due) = turns(&nightly, &next, at("2026-01-09T00:00:00Z"));
        assert_eq!((due.len(), late[0].next_at.0), (1, at("2026-01-09T03:00:00Z")), "what was missed is made up for once");
        let (changed, due) = turns(&base("docs", "0 4 * * *"), &next, at("2026-01-09T00:00:00Z"));
        assert_eq!((changed[0].next_at.0, due.len()), (at("2026-01-09T04:00:00Z"), 0), "a changed schedule begins anew");
    }

    #[test]
    fn the_name_of_an_ingestion_follows_from_its_time() {
        let due = |source: &str| Due { source: source.to_owned(), at: at("2026-01-02T03:00:00Z") };
        let one = ingestion(&base("docs", "0 3 * * *"), &due("files"));
        assert_eq!(one.name_any(), ingestion(&base("docs", "0 3 * * *"), &due("files")).name_any());
        assert_ne!(one.name_any(), ingestion(&base("docs", "0 3 * * *"), &due("other")).name_any());
        assert!(one.name_any().starts_with("docs-") && one.name_any().ends_with("-202601020300"), "{}", one.name_any());
        assert_eq!((one.spec.knowledge_base.as_str(), one.spec.source_name.as_deref()), ("docs", Some("files")));
        assert_eq!(one.owner_references()[0].name, "docs");
        let long = ingestion(&base(&format!("{}-{}", "a".repeat(23), "b".repeat(39)), "0 3 * * *"), &due("files"));
        assert!(long.name_any().len() <= NAME_MAX && !long.name_any().contains("--"), "{}", long.name_any());
    }
}
