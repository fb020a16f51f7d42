//! Deletes ingestions that have ended: each after its time, and of each knowledge base all but the newest.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Preconditions, PropagationPolicy};
use slipway_api::ingestion::IngestionPhase;
use slipway_api::{Ingestion, ids};
use slipway_cluster::{Key, write};

use crate::context::Context;
use crate::settings::IngestionSettings;

/// How often it is looked how many there are.
const COUNT_INTERVAL: Duration = Duration::from_mins(10);

/// Deletes an ingestion that has been kept for long enough; says when to look again.
pub(super) async fn keep(context: &Context, key: &Key, ingestion: &Ingestion) -> Result<Option<Duration>, write::Error> {
    let left = left(ingestion, &context.settings.worker.ingestion, Timestamp::now());
    if !left.is_zero() && !is_surplus(context, key, ingestion) {
        return Ok(Some(left.min(COUNT_INTERVAL)));
    }
    let preconditions = Preconditions { uid: ingestion.uid(), resource_version: None };
    let how = DeleteParams {
        preconditions: Some(preconditions),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let api: Api<Ingestion> = Api::namespaced(context.client.clone(), &key.namespace);
    match api.delete(&key.name, &how).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How much longer it is kept.
fn left(ingestion: &Ingestion, settings: &IngestionSettings, now: Timestamp) -> Duration {
    let own = ingestion.spec.ttl_seconds_after_finished.and_then(|ttl| u64::try_from(ttl).ok());
    let ttl = Duration::from_secs(own.unwrap_or(u64::from(settings.ttl_seconds)));
    let Some(ended) = ended(ingestion) else { return ttl };
    let ends = SignedDuration::try_from(ttl).ok().and_then(|ttl| ended.checked_add(ttl).ok()).unwrap_or(Timestamp::MAX);
    Duration::try_from(ends.duration_since(now)).unwrap_or_default()
}

fn ended(ingestion: &Ingestion) -> Option<Timestamp> {
    ingestion.status.as_ref()?.finished_at.as_ref().map(|time| time.0)
}

/// Whether as many newer ones of the knowledge base are kept as there may be.
fn is_surplus(context: &Context, key: &Key, ingestion: &Ingestion) -> bool {
    let kept = usize::try_from(context.settings.worker.ingestion.history).unwrap_or(usize::MAX);
    let base = |ingestion: &Ingestion| ids::knowledge_base_name(&ingestion.spec.knowledge_base);
    let own = (ended(ingestion), &key.name);
    let is_newer = |name: &String, other: &Ingestion| {
        let is_final = other.status.as_ref().and_then(|status| status.phase).is_some_and(IngestionPhase::is_final);
        base(other) == base(ingestion) && is_final && (ended(other), name) > own
    };
    let all = context.caches.ingestions.in_namespace(&key.namespace);
    all.iter().filter(|(key, other)| other.0.as_ref().is_ok_and(|other| is_newer(&key.name, other))).count() >= kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slipway_cluster::Guarded;

    use super::*;
    use crate::testing::context;

    fn ingestion(name: &str, ended: i64, more: &serde_json::Value) -> Ingestion {
        let mut whole = json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": {"knowledgeBase": "docs", "upload": "u"},
            "status": {"phase": "Completed", "finishedAt": Timestamp::from_second(ended).unwrap().to_string()}});
        whole["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn an_ingestion_is_kept_for_its_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let left =
            |more, now| left(&ingestion("i", 100, &more), &IngestionSettings { ttl_seconds: 50, ..IngestionSettings::default() }, at(now));
        assert_eq!(left(json!({"ttlSecondsAfterFinished": 10}), 104), Duration::from_secs(6));
        assert_eq!(left(json!({"ttlSecondsAfterFinished": 10}), 110), Duration::ZERO);
        assert_eq!(left(json!({}), 100), Duration::from_secs(50));
    }

    #[tokio::test]
    async fn the_newest_ingestions_of_a_base_are_kept() {
        let context = context();
        let key = |name: &str| Key::new("team-a", name);
        for at in 0..=20 {
            let name = format!("i{at:02}");
            context.caches.ingestions.insert(key(&name), Guarded(Ok(ingestion(&name, at, &json!({})))));
        }
        let surplus = |name: &str, at, more: &serde_json::Value| is_surplus(&context, &key(name), &ingestion(name, at, more));
        assert!(surplus("i00", 0, &json!({})));
        assert!(surplus("i00", 0, &json!({"knowledgeBase": "kb_docs"})), "named by id, it is the same base");
        assert!(!surplus("i01", 1, &json!({})));
        assert!(!surplus("i00", 0, &json!({"knowledgeBase": "other"})));
    }
}
