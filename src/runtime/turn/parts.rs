//! The parts of a stored answer beside its text: the steps that led to it, for later prompts, and its sources, for those who read
//! the conversation. An answer without sources has its steps alone, as a list.

use serde_json::{Value, json};
use slipway_models::Message;

use crate::knowledge::PassageSource;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Parts {
    pub(super) steps: Vec<Message>,
    pub(super) sources: Vec<PassageSource>,
}

impl Parts {
    pub(super) fn write(&self) -> Option<Value> {
        let Self { steps, sources } = self;
        match (steps.is_empty(), sources.is_empty()) {
            (true, true) => None,
            (false, true) => serde_json::to_value(steps).ok(),
            (true, false) => Some(json!({"sources": sources})),
            (false, false) => Some(json!({"steps": steps, "sources": sources})),
        }
    }

    /// None of what is neither, such as that of a later version.
    pub(super) fn read(mut parts: Value) -> Option<Self> {
        if parts.is_array() {
            return Some(Self { steps: serde_json::from_value(parts).ok()?, sources: Vec::new() });
        }
        let fields = parts.as_object_mut()?;
        let steps = fields.remove("steps").map_or(Ok(Vec::new()), serde_json::from_value).ok()?;
        let sources = fields.remove("sources").map_or(Ok(Vec::new()), serde_json::from_value).ok()?;
        Some(Self { steps, sources })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let source = json!({"source": "s", "filename": "f", "document_id": "d", "chunk_id": "c", "kb_id": "kb_docs", "score": 0.5});
        let source: PassageSource = serde_json::from_value(source).unwrap();
        for (steps, sources) in [(0, 0), (1, 0), (0, 1), (2, 2)] {
            let parts = Parts { steps: vec![Message::user("x"); steps], sources: vec![source.clone(); sources] };
            let written = parts.write();
            assert_eq!(written.is_some(), steps + sources > 0);
            assert_eq!(written.as_ref().is_some_and(Value::is_array), steps > 0 && sources == 0, "as it was before there were sources");
            assert_eq!(written.map_or(Some(Parts::default()), Parts::read), Some(parts));
        }
        assert_eq!(Parts::read(json!("x")), None);
    }
}
