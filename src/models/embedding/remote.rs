//! Parses vectors in providers' JSON.

use base64::Engine;
use serde_json::Value;

use crate::{FaultKind, ModelFault};

/// A vector as a list of numbers, or as base64 of little-endian f32, which some servers send unasked.
pub(super) fn numbers(value: &Value) -> Result<Vec<f32>, ModelFault> {
    let wrong = || unreadable("a vector is not made of numbers");
    if let Some(text) = value.as_str() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).map_err(|_| wrong())?;
        let (numbers, rest) = bytes.as_chunks::<4>();
        return if rest.is_empty() { Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()) } else { Err(wrong()) };
    }
    #[expect(clippy::cast_possible_truncation, reason = "vectors are f32; JSON only writes them with more digits")]
    let numbers = value.as_array().ok_or_else(wrong)?.iter().map(|number| number.as_f64().map(|number| number as f32));
    numbers.collect::<Option<_>>().ok_or_else(wrong)
}

/// The list in an answer with one entry per text.
pub(super) fn list<'a>(answer: &'a Value, name: &str) -> Result<&'a Vec<Value>, ModelFault> {
    answer[name].as_array().ok_or_else(|| unreadable(&format!("there is no `{name}`")))
}

pub(super) fn unreadable(what: &str) -> ModelFault {
    ModelFault::new(FaultKind::Broken, format!("the embeddings cannot be read: {what}; try again"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_vector_is_read_from_numbers_and_from_base64() {
        assert_eq!(numbers(&json!([1, -0.5, 2e-3])).unwrap(), [1.0, -0.5, 2e-3]);
        // The bytes of 1.0 and -2.0.
        assert_eq!(numbers(&json!("AACAPwAAAMA=")).unwrap(), [1.0, -2.0]);
        for wrong in [json!(null), json!({}), json!([1, "2"]), json!("AACAPwA="), json!("?")] {
            assert_eq!(*numbers(&wrong).unwrap_err().kind(), FaultKind::Broken, "{wrong}");
        }
    }
}
