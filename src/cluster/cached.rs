//! What is kept of our own kinds' objects: what is read of them, and no more than `MAX_BYTES` of any.
//!
//! An Agent is kept as JSON, which takes a third of the memory, and is parsed on each read. A Skill is kept without its texts,
//! see the operator's `caches::skill`. An object larger than any useful one of its kind counts as unreadable, so that no
//! user's objects fill this process.

use std::io::{self, Write};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use serde::Serialize;
use slipway_api::Agent;

/// A resource of ours, or what the API server sent in its place.
pub type Guarded<K> = DeserializeGuard<K>;

/// How many bytes an object may take as JSON once it is lightened: twice what the largest variable of an agent holds, and
/// room for what is not a variable.
const MAX_BYTES: usize = 256 * 1024;
/// The domains of labels and annotations that are read: our own, and those of GitOps tools.
const READ: [&str; 3] = ["slipway.dev/", "fluxcd.io/", "argoproj.io/"];
/// How many of each are kept, and how long an annotation's value may be.
const MAX_MARKS: usize = 64;
const MAX_MARK: usize = 1024;

/// What is cached in the place of an object.
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
    text: Result<Box<[u8]>, Box<InvalidObject>>,
}

impl Cached for CachedAgent {
    fn is_readable(&self) -> bool {
        self.text.is_ok()
    }
}

impl CachedAgent {
    /// The Agent without what its writers are remembered by, or why it cannot be read.
    pub fn agent(&self) -> Result<Agent, Box<InvalidObject>> {
        let text = self.text.as_ref().map_err(Clone::clone)?;
        serde_json::from_slice(text).map_err(|error| invalid(&error, ObjectMeta::default()))
    }
}

impl From<Guarded<Agent>> for CachedAgent {
    fn from(object: Guarded<Agent>) -> Self {
        let object = light(object);
        let generation = object.meta().generation;
        let read = object.0.map_err(Box::new);
        let text = read.and_then(|agent| serde_json::to_vec(&agent).map_err(|error| invalid(&error, agent.metadata)));
        Self { generation, text: text.map(Vec::into_boxed_slice) }
    }
}

/// The object without what nobody reads, unless it is too large even so.
pub fn light<K: Resource + Serialize>(mut object: Guarded<K>) -> Guarded<K> {
    lighten(object.meta_mut());
    let size = object.0.as_ref().map_or(0, size);
    if size <= MAX_BYTES {
        return object;
    }
    let error = format!("it takes {size} bytes, and at most {MAX_BYTES} are possible");
    let mut metadata = std::mem::take(object.meta_mut());
    (metadata.labels, metadata.annotations) = (None, None);
    DeserializeGuard(Err(InvalidObject { error, metadata }))
}

/// Leaves of the metadata what is read.
pub fn lighten(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    meta.finalizers = None;
    meta.owner_references = None;
    for marks in [&mut meta.labels, &mut meta.annotations] {
        let Some(all) = marks.take() else { continue };
        let is_read = |(name, value): &(String, String)| READ.iter().any(|domain| name.contains(domain)) && value.len() <= MAX_MARK;
        *marks = Some(all.into_iter().filter(is_read).take(MAX_MARKS).collect());
    }
}

/// How many bytes an object takes as JSON, without writing it anywhere.
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
    fn what_is_kept_is_read_as_it_was() {
        let written = json!({
            "apiVersion": "agents.slipway.dev/v1",
            "kind": "Agent",
            "metadata": {"name": "a", "namespace": "team-a", "uid": "u", "generation": 3, "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}, "annotations": {labels::SUSPEND: "true"}},
            "spec": {"name": "A", "framework": "custom", "systemPrompt": "\u{0}\u{1F600}", "replicas": 2},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
        });
        let agent: Agent = serde_json::from_value(written.clone()).unwrap();
        let mut burdened = agent.clone();
        burdened.annotations_mut().insert("kubectl.kubernetes.io/last-applied-configuration".to_owned(), written.to_string());
        burdened.annotations_mut().insert("zz.slipway.dev/long".to_owned(), "x".repeat(MAX_MARK + 1));
        burdened.labels_mut().insert("other".to_owned(), "x".to_owned());
        burdened.finalizers_mut().push("example.com/finalizer".to_owned());
        let kept = CachedAgent::from(DeserializeGuard(Ok(burdened)));
        assert_eq!(serde_json::to_value(kept.agent().unwrap()).unwrap(), serde_json::to_value(agent).unwrap());
        assert_eq!((kept.generation, kept.is_readable()), (Some(3), true));
    }

    #[test]
    fn what_cannot_be_read_says_why_each_time() {
        let kept =
            CachedAgent::from(serde_json::from_value::<Guarded<Agent>>(json!({"metadata": {"name": "a", "uid": "u"}, "spec": 7})).unwrap());
        let invalid = kept.agent().unwrap_err();
        assert_eq!((invalid.metadata.uid.as_deref(), invalid.error), (Some("u"), kept.agent().unwrap_err().error));
        assert!(!kept.is_readable());
    }

    /// A schema bounds each field and not all together: 64 terms of 64 expressions of 64 values fit it.
    #[test]
    fn what_is_too_large_is_not_kept() {
        let expression = json!({"key": "k", "operator": "In", "values": vec!["v".repeat(60); 64]});
        let term = json!({"matchExpressions": vec![expression; 64]});
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term.clone(), term]}}});
        let agent: Agent = serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": "u", "generation": 2},
            "spec": {"name": "A", "framework": "custom", "podTemplate": {"affinity": affinity}},
        }))
        .unwrap();
        let kept = CachedAgent::from(DeserializeGuard(Ok(agent)));
        let invalid = kept.agent().unwrap_err();
        assert!(!kept.is_readable() && invalid.error.ends_with("at most 262144 are possible"), "{}", invalid.error);
        assert_eq!((invalid.metadata.uid.as_deref(), kept.generation), (Some("u"), Some(2)));
    }

    #[test]
    fn marks_are_few() {
        let many: serde_json::Map<String, Value> = (0..3000).map(|at| (format!("agents.slipway.dev/l{at}"), json!("x"))).collect();
        let tool: Tool =
            serde_json::from_value(json!({"metadata": {"name": "t", "labels": many}, "spec": {"name": "t", "type": "builtin"}})).unwrap();
        assert_eq!(light(DeserializeGuard(Ok(tool))).labels().len(), MAX_MARKS);
    }
}
