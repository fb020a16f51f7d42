//! A Dataset as it is cached: without its cases, which may have half a megabyte. Their number, their digest and what is wrong
//! with them are found when the object arrives. Runs read the whole Dataset from the API server.

use kube::core::error_boundary::InvalidObject;
use slipway_api::dataset::{self, Case};
use slipway_api::{Dataset, DatasetSpec};
use slipway_cluster::Guarded;
use slipway_cluster::cached::{Cached, strip_metadata, trimmed};

/// A Dataset without its cases and description. It has its guidelines only if the cases stand elsewhere.
pub(crate) struct CachedDataset {
    dataset: Guarded<Dataset>,
    /// What the cases of the spec come to, or what is wrong with the spec. With `casesFrom`, `None`: a ConfigMap has to be read.
    pub content: Result<Option<Content>, String>,
}

/// What a Dataset's status says of its cases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Content {
    pub cases: usize,
    pub digest: String,
}

impl Content {
    pub(crate) fn of(guidelines: &[String], cases: &[Case]) -> Self {
        Self { cases: cases.len(), digest: dataset::digest(guidelines, cases) }
    }
}

impl CachedDataset {
    pub(crate) fn dataset(&self) -> Result<&Dataset, &InvalidObject> {
        self.dataset.0.as_ref()
    }
}

impl Cached for CachedDataset {
    fn is_readable(&self) -> bool {
        self.dataset.0.is_ok()
    }
}

impl From<Guarded<Dataset>> for CachedDataset {
    fn from(object: Guarded<Dataset>) -> Self {
        let mut whole = match object.0 {
            Ok(dataset) => dataset,
            Err(invalid) => return Self { dataset: trimmed(Guarded(Err(invalid))), content: Ok(None) },
        };
        strip_metadata(&mut whole.metadata);
        let DatasetSpec { agent, guidelines, cases, cases_from, protected, description: _ } = std::mem::take(&mut whole.spec);
        let written = DatasetSpec { guidelines, cases, cases_from, ..DatasetSpec::default() };
        let content = match written.fault() {
            Some(fault) => Err(fault),
            None => Ok(written.cases_from.is_none().then(|| Content::of(&written.guidelines, &written.cases))),
        };
        let guidelines = if written.cases_from.is_some() { written.guidelines } else { Vec::new() };
        whole.spec = DatasetSpec { agent, guidelines, cases_from: written.cases_from, protected, ..DatasetSpec::default() };
        Self { dataset: trimmed(Guarded(Ok(whole))), content }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cached(spec: &Value) -> CachedDataset {
        let object: Dataset = serde_json::from_value(json!({"metadata": {"name": "golden", "uid": "u"}, "spec": spec})).unwrap();
        CachedDataset::from(Guarded(Ok(object)))
    }

    #[test]
    fn cases_go_and_their_number_and_digest_stay() {
        let spec = json!({"agent": "helper", "description": "d", "guidelines": ["Be kind."], "cases": [{"input": "a"}, {"input": "b"}], "protected": true});
        let whole: DatasetSpec = serde_json::from_value(spec.clone()).unwrap();
        let kept = cached(&spec);
        assert_eq!(kept.content, Ok(Some(Content::of(&whole.guidelines, &whole.cases))));
        let spec = DatasetSpec { agent: Some("helper".to_owned()), protected: true, ..DatasetSpec::default() };
        assert_eq!(kept.dataset().unwrap().spec, spec);
    }

    #[test]
    fn guidelines_stay_where_the_cases_stand_elsewhere() {
        let kept = cached(&json!({"guidelines": ["Be kind."], "casesFrom": {"configMap": "cases"}}));
        assert_eq!((kept.content, kept.dataset.0.unwrap().spec.guidelines.len()), (Ok(None), 1));
    }

    #[test]
    fn a_fault_is_found_before_the_cases_go() {
        let fault = cached(&json!({"cases": [{"input": " "}]})).content.unwrap_err();
        assert!(fault.starts_with("spec.cases[0].input: "), "{fault}");
    }
}
