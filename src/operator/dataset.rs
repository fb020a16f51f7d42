//! The dataset controller: checks each Dataset and says how many cases it has and what their digest is. It makes nothing. Cases
//! in a ConfigMap are read through the API server, and again only when the ConfigMap has another version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::{Resource, ResourceExt};
use slipway_api::condition::{self, Finding, READY};
use slipway_api::dataset::{self, CasesFrom, DatasetPhase};
use slipway_api::{Dataset, DatasetStatus, Team, ids};
use slipway_cluster::controller::{Next, Phase, RESYNC, Requests};
use slipway_cluster::event::EventSpec;
use slipway_cluster::{Key, write};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::caches::dataset::{CachedDataset, Content};
use crate::context::Context;
use crate::fault::ConditionFault;
use crate::registry::{Change, Registered};

/// The field manager of everything that this controller writes.
const MANAGER: &str = "slipway/dataset";
/// How many Datasets are reconciled at once.
const CONCURRENCY: usize = 2;

pub(crate) struct Controller {
    context: Arc<Context>,
    requests: Requests,
    read: Arc<ConfigMaps>,
}

/// What was found in the ConfigMaps that Datasets name.
#[derive(Default)]
struct ConfigMaps(Mutex<HashMap<Key, Read>>);

/// What a Dataset's ConfigMap came to.
#[derive(Clone, PartialEq)]
struct Read {
    /// What it depends on.
    of: Source,
    found: Result<Content, ConditionFault>,
}

#[derive(Clone, PartialEq)]
struct Source {
    from: CasesFrom,
    guidelines: Vec<String>,
    /// UID and version of the ConfigMap.
    version: (Option<String>, Option<String>),
}

impl Controller {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, requests: Requests::default(), read: Arc::default() }
    }

    fn request_namespace(&self, namespace: &str) {
        self.requests.add_all(self.context.caches.datasets.in_namespace(namespace).into_iter().map(|(key, _)| key));
    }
}

impl Registered for Controller {
    fn changed(&self, change: &Change) {
        if let Some(key) = change.of::<Dataset>() {
            self.requests.add(key.clone());
        } else if let Some(team) = change.of::<Team>() {
            self.request_namespace(&format!("team-{}", team.name));
        } else if let Change::Namespace(namespace) = change {
            self.request_namespace(namespace);
        }
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        let (context, requests) = (self.context.clone(), self.requests.clone());
        vec![context.start::<Dataset, _>(phase, ("dataset", CONCURRENCY, &requests), move |key| {
            let (context, read) = (self.context.clone(), self.read.clone());
            async move { reconcile(&context, &read, &key).await }
        })]
    }

    fn request_all(&self) {
        self.requests.add_all(self.context.caches.datasets.keys());
    }
}

async fn reconcile(context: &Context, read: &ConfigMaps, key: &Key) -> Next<write::Error> {
    let Some(object) = context.caches.datasets.get(key) else {
        context.untroubled("Dataset", key);
        read.forget(key);
        return Ok(None);
    };
    let dataset = match object.dataset() {
        Ok(dataset) if dataset.meta().deletion_timestamp.is_some() => return Ok(None),
        Ok(dataset) => dataset,
        Err(invalid) => {
            context.malformed::<Dataset>(key, invalid, DatasetPhase::Error, &[(READY, false)]).await?;
            return Ok(Some(RESYNC));
        }
    };
    let outcome = content(context, read, key, &object, dataset).await?;
    let mut before = dataset.status.clone().unwrap_or_default();
    before.conditions = condition::ours(before.conditions);
    let status = status(key, outcome.as_ref(), &before, dataset.meta().generation, Timestamp::now());
    if status != before {
        context.write_status(dataset, &status, MANAGER).await?;
    }
    let trouble =
        outcome.err().map(|fault| EventSpec { warning: true, reason: fault.reason.to_owned(), action: "Check", note: fault.message });
    let said = |status: &DatasetStatus| status.conditions.first().map(|condition| (condition.reason.clone(), condition.message.clone()));
    let due = context.warn("Dataset", key, &dataset.object_ref(&()), trouble, said(&status) != said(&before)).await;
    Ok(Some(due.map_or(RESYNC, |due| due.min(RESYNC))))
}

/// What the cases come to, or what is wrong with the Dataset.
async fn content(
    context: &Context,
    read: &ConfigMaps,
    key: &Key,
    object: &CachedDataset,
    dataset: &Dataset,
) -> Result<Result<Content, ConditionFault>, write::Error> {
    if context.caches.team_of(&key.namespace).is_none() {
        let message = format!(
            "namespace {} belongs to no Team; agents, and what they use, are in namespaces named team-<slug> (kubectl get teams)",
            key.namespace
        );
        return Ok(Err(ConditionFault { reason: "NotATeamNamespace", message }));
    }
    match (&object.content, &dataset.spec.cases_from) {
        (Err(message), _) => Ok(Err(ConditionFault { reason: "FieldInvalid", message: message.clone() })),
        (Ok(Some(known)), _) => Ok(Ok(known.clone())),
        (Ok(None), Some(from)) => read.content(context, key, from, &dataset.spec.guidelines).await,
        (Ok(None), None) => Ok(Err(ConditionFault { reason: "FieldInvalid", message: "spec.cases: is required".to_owned() })),
    }
}

impl ConfigMaps {
    /// What the cases in a ConfigMap come to. A missing one is looked for again with each resync.
    async fn content(
        &self,
        context: &Context,
        key: &Key,
        from: &CasesFrom,
        guidelines: &[String],
    ) -> Result<Result<Content, ConditionFault>, write::Error> {
        let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &key.namespace);
        let Some(seen) = api.get_metadata_opt(&from.config_map).await? else {
            return Ok(Err(missing(from)));
        };
        let of = Source { from: from.clone(), guidelines: guidelines.to_vec(), version: (seen.uid(), seen.resource_version()) };
        if let Some(found) = self.known(key, &of) {
            return Ok(found);
        }
        let Some(map) = api.get_opt(&from.config_map).await? else {
            return Ok(Err(missing(from)));
        };
        // It may have changed since; what is remembered is of what was read.
        let of = Source { version: (map.uid(), map.resource_version()), ..of };
        let (text, rules) = (map.data.and_then(|mut data| data.remove(&from.key)), guidelines.to_vec());
        let names = from.clone();
        // A megabyte of YAML takes a while.
        let found = tokio::task::spawn_blocking(move || judge(&names, text.as_deref(), &rules)).await;
        let found = found.unwrap_or_else(|_| Err(invalid(from, "the cases cannot be read")));
        self.remember(key, Read { of, found: found.clone() });
        Ok(found)
    }

    fn known(&self, key: &Key, of: &Source) -> Option<Result<Content, ConditionFault>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).filter(|read| read.of == *of).map(|read| read.found.clone())
    }

    fn remember(&self, key: &Key, read: Read) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), read);
    }

    fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

fn judge(from: &CasesFrom, text: Option<&str>, guidelines: &[String]) -> Result<Content, ConditionFault> {
    let Some(text) = text else {
        let message = format!("spec.casesFrom: ConfigMap {} has no text under the key {}", from.config_map, from.key);
        return Err(ConditionFault { reason: "ConfigMapKeyMissing", message });
    };
    dataset::parse_cases(text).map(|cases| Content::of(guidelines, &cases)).map_err(|fault| invalid(from, &fault))
}

fn missing(from: &CasesFrom) -> ConditionFault {
    let message = format!("spec.casesFrom: ConfigMap {} does not exist in this namespace", from.config_map);
    ConditionFault { reason: "ConfigMapMissing", message }
}

fn invalid(from: &CasesFrom, fault: &str) -> ConditionFault {
    ConditionFault { reason: "CasesInvalid", message: format!("spec.casesFrom: ConfigMap {} key {}: {fault}", from.config_map, from.key) }
}

fn status(
    key: &Key,
    content: Result<&Content, &ConditionFault>,
    before: &DatasetStatus,
    generation: Option<i64>,
    now: Timestamp,
) -> DatasetStatus {
    let finding = match content {
        Ok(_) => Finding::new(READY, true, "Valid", "agents can be evaluated by this dataset"),
        Err(fault) => Finding::new(READY, false, fault.reason, &*fault.message),
    };
    let found = content.ok();
    DatasetStatus {
        phase: Some(if found.is_some() { DatasetPhase::Available } else { DatasetPhase::Error }),
        id: Some(ids::dataset(&key.name)),
        cases: found.and_then(|content| i32::try_from(content.cases).ok()),
        digest: found.map(|content| content.digest.clone()),
        observed_generation: generation,
        conditions: condition::conditions(vec![finding], &before.conditions, generation, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_takes_number_and_digest_away() {
        let (key, now) = (Key::new("team-a", "gold-en"), Timestamp::UNIX_EPOCH);
        let content = Content { cases: 2, digest: "d1".to_owned() };
        let good = status(&key, Ok(&content), &DatasetStatus::default(), Some(1), now);
        assert_eq!((good.phase, good.cases, good.digest.as_deref()), (Some(DatasetPhase::Available), Some(2), Some("d1")));
        assert_eq!(good.id.as_deref(), Some("ds_gold_en"));
        let fault = ConditionFault { reason: "FieldInvalid", message: "spec.cases".to_owned() };
        let bad = status(&key, Err(&fault), &good, Some(2), now);
        assert_eq!((bad.phase, bad.cases, bad.digest), (Some(DatasetPhase::Error), None, None));
        assert_eq!(bad.conditions[0].reason, "FieldInvalid");
    }

    #[test]
    fn what_a_config_map_has_is_judged() {
        let from = CasesFrom { config_map: "cases".to_owned(), key: "cases.yaml".to_owned() };
        let reason = |text: Option<&str>| judge(&from, text, &[]).map_err(|fault| (fault.reason, fault.message));
        assert_eq!(reason(Some("- input: a\n")).unwrap().cases, 1);
        assert_eq!(reason(Some("- input: a\n")), reason(Some(r#"[{"input": "a"}]"#)), "the digest is of the content");
        let (word, message) = reason(None).unwrap_err();
        assert!(word == "ConfigMapKeyMissing" && message.contains("cases.yaml"), "{message}");
        let (word, message) = reason(Some("- inputs: a\n")).unwrap_err();
        assert!(word == "CasesInvalid" && message.starts_with("spec.casesFrom: ConfigMap cases key cases.yaml: cases[0]: "), "{message}");
    }
}
