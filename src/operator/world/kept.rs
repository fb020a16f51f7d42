//! An Agent as it is kept: written out, which takes a third of the room, and read anew by whoever wants it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::error_boundary::InvalidObject;
use kube::{Resource, ResourceExt};
use slipway_api::Agent;

use super::Guarded;

/// Where `kubectl apply` writes the whole object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub struct Kept {
    pub generation: Option<i64>,
    text: Result<Box<[u8]>, Box<InvalidObject>>,
}

impl Kept {
    /// The Agent without what its writers are remembered by, or why it cannot be read.
    pub fn agent(&self) -> Result<Agent, Box<InvalidObject>> {
        let text = self.text.as_ref().map_err(Clone::clone)?;
        serde_json::from_slice(text).map_err(|error| invalid(&error, ObjectMeta::default()))
    }
}

impl From<Guarded<Agent>> for Kept {
    fn from(mut object: Guarded<Agent>) -> Self {
        object.meta_mut().managed_fields = None;
        object.annotations_mut().remove(LAST_APPLIED);
        let generation = object.meta().generation;
        let read = object.0.map_err(Box::new);
        let text = read.and_then(|agent| serde_json::to_vec(&agent).map_err(|error| invalid(&error, agent.metadata)));
        Self { generation, text: text.map(Vec::into_boxed_slice) }
    }
}

fn invalid(error: &serde_json::Error, metadata: ObjectMeta) -> Box<InvalidObject> {
    Box::new(InvalidObject { error: error.to_string(), metadata })
}

#[cfg(test)]
mod tests {
    use kube::core::DeserializeGuard;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_is_read_as_it_was() {
        let written = json!({
            "apiVersion": "agents.slipway.dev/v1",
            "kind": "Agent",
            "metadata": {"name": "a", "namespace": "team-a", "uid": "u", "generation": 3, "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"l": "1"}},
            "spec": {"name": "A", "framework": "custom", "systemPrompt": "\u{0}\u{1F600}", "replicas": 2},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
        });
        let agent: Agent = serde_json::from_value(written.clone()).unwrap();
        let mut burdened = agent.clone();
        burdened.annotations_mut().insert(LAST_APPLIED.to_owned(), written.to_string());
        burdened.annotations_mut().insert("other".to_owned(), "stays".to_owned());
        let kept = Kept::from(DeserializeGuard(Ok(burdened)));
        let mut expected = agent;
        expected.annotations_mut().insert("other".to_owned(), "stays".to_owned());
        assert_eq!(serde_json::to_value(kept.agent().unwrap()).unwrap(), serde_json::to_value(expected).unwrap());
        assert_eq!(kept.generation, Some(3));
    }

    #[test]
    fn what_cannot_be_read_says_why_each_time() {
        let kept = Kept::from(serde_json::from_value::<Guarded<Agent>>(json!({"metadata": {"name": "a", "uid": "u"}, "spec": 7})).unwrap());
        let invalid = kept.agent().unwrap_err();
        assert_eq!((invalid.metadata.uid.as_deref(), invalid.error), (Some("u"), kept.agent().unwrap_err().error));
    }
}
