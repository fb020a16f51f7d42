//! The cached form of objects of our own kinds: the fields that are read, and at most `MAX_BYTES` per object.
//!
//! An Agent is cached as JSON, which takes a third of the memory, and is parsed on each read. A Skill is cached without its
//! texts, see the operator's `caches::skill`. An object above the limit counts as unreadable, so that users cannot fill the
//! memory of this process.

use std::io::{self, Write};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::error_boundary::InvalidObject;
use serde::Serialize;
use slipway_api::Agent;

use crate::Guarded;

/// The largest object, as JSON without unread metadata: three times the size of the largest environment variable of an agent, as an
/// Agent with a canary has two prompts.
const MAX_BYTES: usize = 384 * 1024;
/// The domains of labels and annotations that are kept: our own, and those of GitOps tools.
const KEPT_DOMAINS: [&str; 3] = ["slipway.dev/", "fluxcd.io/", "argoproj.io/"];
/// The labels and the annotations of one object, and the length of a value.
const MAX_LABELS: usize = 64;
const MAX_VALUE_BYTES: usize = 1024;

/// The cached form of an object.
pub trait Cached: Send + Sync {
    /// Whether the object could be read.
    fn is_readable(&self) -> bool;
}

impl<K: Send + Sync> Cached for Guarded<K> {
    fn is_readable(&self) -> bool {
        self.0.is_ok()
    }
}

pub struct CachedAgent {
    pub generation: Option<i64>,
    /// What stands in `governance.policies`, which is counted over all agents of a namespace.
    pub policies: Box<[Box<str>]>,
    /// Whether it asks for a canary, or has one that is yet to end.
    pub canary: bool,
    /// Whether it asks to be reached by a Gateway.
    pub exposed: bool,
    text: Result<Box<[u8]>, Box<InvalidObject>>,
}

impl Cached for CachedAgent {
    fn is_readable(&self) -> bool {
        self.text.is_ok()
    }
}

impl CachedAgent {
    /// The Agent without its managed fields, or why it cannot be read.
    pub fn agent(&self) -> Result<Agent, Box<InvalidObject>> {
        let text = self.text.as_ref().map_err(Clone::clone)?;
        serde_json::from_slice(text).map_err(|error| invalid(&error, ObjectMeta::default()))
    }
}

impl From<Guarded<Agent>> for CachedAgent {
    fn from(object: Guarded<Agent>) -> Self {
        let object = trimmed(object);
        let generation = object.meta().generation;
        let governance = object.0.as_ref().ok().and_then(|agent| agent.spec.governance.as_ref());
        let policies = governance.iter().flat_map(|governance| &governance.policies).map(|name| Box::from(name.as_str())).collect();
        let is = |what: fn(&Agent) -> bool| object.0.as_ref().is_ok_and(what);
        let canary = is(|agent| agent.canary().is_some() || agent.status.as_ref().is_some_and(|status| status.canary.is_some()));
        let exposed = is(|agent| agent.spec.expose.is_some());
        let read = object.0.map_err(Box::new);
        let text = read.and_then(|agent| serde_json::to_vec(&agent).map_err(|error| invalid(&error, agent.metadata)));
        Self { generation, policies, canary, exposed, text: text.map(Vec::into_boxed_slice) }
    }
}

/// The object without unread metadata, or an error if it is still too large.
pub fn trimmed<K: Resource + Serialize>(mut object: Guarded<K>) -> Guarded<K> {
    strip_metadata(object.meta_mut());
    let size = object.0.as_ref().map_or(0, size);
    if size <= MAX_BYTES {
        return object;
    }
    let error = format!("the object has {size} bytes; at most {MAX_BYTES} are possible");
    let mut metadata = std::mem::take(object.meta_mut());
    (metadata.labels, metadata.annotations) = (None, None);
    Guarded(Err(InvalidObject { error, metadata }))
}

/// Removes the metadata that nothing here reads.
pub fn strip_metadata(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    meta.finalizers = None;
    meta.owner_references = None;
    for entries in [&mut meta.labels, &mut meta.annotations] {
        let Some(all) = entries.take() else { continue };
        let is_read =
            |(name, value): &(String, String)| KEPT_DOMAINS.iter().any(|domain| name.contains(domain)) && value.len() <= MAX_VALUE_BYTES;
        *entries = Some(all.into_iter().filter(is_read).take(MAX_LABELS).collect());
    }
}

/// The length of an object as JSON, counted without a buffer.
fn size(object: &impl Serialize) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, object).map_or(usize::MAX, |()| count.0)
}

fn invalid(error: &serde_json::Error, metadata: ObjectMeta) -> Box<InvalidObject> {
    Box::new(InvalidObject { error: error.to_string(), metadata })
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::{Value, json};
    use slipway_api::{Tool, labels};

    use super::*;

    #[test]
    fn a_cached_agent_is_the_one_that_was_put_in() {
        let written = json!({
            "apiVersion": "agents.slipway.dev/v1",
            "kind": "Agent",
            "metadata": {"name": "a", "namespace": "team-a", "uid": "u", "generation": 3, "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}, "annotations": {labels::SUSPEND: "true"}},
            "spec": {"name": "A", "framework": "custom", "systemPrompt": "\u{0}\u{1F600}", "replicas": 2, "governance": {"policies": ["gp_p"]}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
        });
        let agent: Agent = serde_json::from_value(written.clone()).unwrap();
        let mut burdened = agent.clone();
        burdened.annotations_mut().insert("kubectl.kubernetes.io/last-applied-configuration".to_owned(), written.to_string());
        burdened.annotations_mut().insert("zz.slipway.dev/long".to_owned(), "x".repeat(MAX_VALUE_BYTES + 1));
        burdened.labels_mut().insert("other".to_owned(), "x".to_owned());
        burdened.finalizers_mut().push("example.com/finalizer".to_owned());
        let kept = CachedAgent::from(Guarded(Ok(burdened)));
        assert_eq!(serde_json::to_value(kept.agent().unwrap()).unwrap(), serde_json::to_value(agent).unwrap());
        assert_eq!((kept.generation, kept.is_readable()), (Some(3), true));
        assert_eq!(*kept.policies, [Box::from("gp_p")]);
        assert_eq!((kept.canary, kept.exposed), (false, false));
    }

    #[test]
    fn a_canary_is_known_until_it_has_ended() {
        for (spec, status, expected) in [
            (json!({}), json!({}), (false, false)),
            (json!({"canary": {"enabled": true, "weight": 5}}), json!({}), (true, false)),
            (json!({"canary": {"enabled": false, "weight": 5}}), json!({}), (false, false)),
            (json!({}), json!({"canary": {"phase": "Draining"}}), (true, false)),
            (json!({"expose": "gateway"}), json!({}), (false, true)),
        ] {
            let mut written = json!({"metadata": {"name": "a"}, "spec": {"name": "A", "framework": "custom"}, "status": status});
            written["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let kept = CachedAgent::from(serde_json::from_value::<Guarded<Agent>>(written.clone()).unwrap());
            assert_eq!((kept.is_readable(), (kept.canary, kept.exposed)), (true, expected), "{written}");
        }
    }

    #[test]
    fn an_unreadable_agent_returns_its_error_on_each_read() {
        let kept =
            CachedAgent::from(serde_json::from_value::<Guarded<Agent>>(json!({"metadata": {"name": "a", "uid": "u"}, "spec": 7})).unwrap());
        let invalid = kept.agent().unwrap_err();
        assert_eq!((invalid.metadata.uid.as_deref(), invalid.error), (Some("u"), kept.agent().unwrap_err().error));
        assert!(!kept.is_readable());
    }

    /// A schema bounds each field and not all together: 64 terms of 64 expressions of 64 values fit it.
    #[test]
    fn an_oversized_agent_is_not_cached() {
        let expression = json!({"key": "k", "operator": "In", "values": vec!["v".repeat(60); 64]});
        let term = json!({"matchExpressions": vec![expression; 64]});
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term.clone(), term]}}});
        let agent: Agent = serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": "u", "generation": 2},
            "spec": {"name": "A", "framework": "custom", "podTemplate": {"affinity": affinity}},
        }))
        .unwrap();
        let kept = CachedAgent::from(Guarded(Ok(agent)));
        let invalid = kept.agent().unwrap_err();
        assert!(!kept.is_readable() && invalid.error.ends_with("at most 393216 are possible"), "{}", invalid.error);
        assert_eq!((invalid.metadata.uid.as_deref(), kept.generation), (Some("u"), Some(2)));
    }

    #[test]
    fn labels_are_capped() {
        let many: serde_json::Map<String, Value> = (0..3000).map(|at| (format!("agents.slipway.dev/l{at}"), json!("x"))).collect();
        let tool: Tool =
            serde_json::from_value(json!({"metadata": {"name": "t", "labels": many}, "spec": {"name": "t", "type": "builtin"}})).unwrap();
        assert_eq!(trimmed(Guarded(Ok(tool))).labels().len(), MAX_LABELS);
    }
}
