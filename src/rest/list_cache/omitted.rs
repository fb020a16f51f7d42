//! The fields that a list view omits, and how they are restored for a read of one object.

use serde_json::{Map, Value};

/// The size of one object's fields in a list, as JSON.
const FIELDS_BYTES_MAX: usize = 16 * 1024;
/// The size of a message in a list.
const MESSAGE_BYTES_MAX: usize = 1024;
/// The size of the omitted fields that are kept for one object.
const OMITTED_BYTES_MAX: usize = 16 * 1024;

/// Removes fields for the list view: those named in `left_out`, then the largest of the others until the rest is small
/// enough. Fields in `needed` stay. Returns the removed fields.
pub(crate) fn omit_large(fields: &mut Map<String, Value>, left_out: &[&str], needed: &[&str]) -> Map<String, Value> {
    let mut taken: Map<String, Value> = left_out.iter().filter_map(|name| fields.remove_entry(*name)).collect();
    let size = |value: &Value| value.to_string().len();
    let mut sizes: Vec<(usize, String)> = fields.iter().map(|(name, value)| (size(value), name.clone())).collect();
    let mut all: usize = sizes.iter().map(|(size, _)| size).sum();
    sizes.sort_unstable();
    while all > FIELDS_BYTES_MAX {
        let Some((size, name)) = sizes.pop() else { return taken };
        if !needed.contains(&name.as_str()) {
            taken.extend(fields.remove_entry(&name));
            all -= size;
        }
    }
    taken
}

/// Truncates a message for the list view.
pub(crate) fn truncate(message: Option<String>) -> Option<String> {
    message.map(|mut message| {
        if message.len() > MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
            message.push('…');
        }
        message
    })
}

/// The fields that the JSON of one object has besides the list view, as members of one nested object.
#[derive(Debug)]
pub(crate) struct OmittedFields {
    at: usize,
    members: Box<str>,
}

impl OmittedFields {
    /// `fields` belong to the nested object `within`, the first of that name in `json`. None if they are too large.
    pub(crate) fn of(json: &str, within: &str, fields: &Map<String, Value>) -> Option<Self> {
        // No string before it can contain this, as quotes in strings are escaped.
        let opening = format!("\"{within}\":{{");
        let at = json.find(&opening)? + opening.len();
        let object = serde_json::to_string(fields).ok()?;
        let members = object.strip_prefix('{')?.strip_suffix('}')?;
        let comma = if members.is_empty() || json[at..].starts_with('}') { "" } else { "," };
        (members.len() <= OMITTED_BYTES_MAX).then(|| Self { at, members: format!("{members}{comma}").into() })
    }

    pub(super) fn bytes(&self) -> usize {
        self.members.len()
    }

    /// The JSON of the whole object.
    pub(super) fn restore(&self, json: &str) -> String {
        let (before, after) = json.split_at(self.at);
        [before, &self.members, after].concat()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Map<String, Value> {
        if let Value::Object(fields) = value { fields } else { Map::new() }
    }

    #[test]
    fn a_list_leaves_out_what_is_large() {
        let mut small = fields(json!({"system_prompt": "x", "a": 1, "b": [2]}));
        assert_eq!(omit_large(&mut small, &["system_prompt"], &[]), fields(json!({"system_prompt": "x"})));
        assert_eq!(Value::Object(small), json!({"a": 1, "b": [2]}));
        let mut large = fields(json!({"name": "n".repeat(9000), "a": ["x".repeat(9000)], "b": "y".repeat(8000), "c": "z".repeat(6000)}));
        assert_eq!(omit_large(&mut large, &[], &["name"]).keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(large.keys().collect::<Vec<_>>(), ["c", "name"]);
        let mut needed = fields(json!({"name": "n".repeat(20_000), "a": 1}));
        omit_large(&mut needed, &[], &["name"]);
        assert_eq!(needed.keys().collect::<Vec<_>>(), ["name"]);
        assert_eq!(truncate(Some("é".repeat(2000))).map(|truncate| truncate.chars().count()), Some(513));
        assert_eq!(truncate(Some("short".to_owned())).as_deref(), Some("short"));
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        for (length, is_kept) in [(OMITTED_BYTES_MAX - 6, true), (OMITTED_BYTES_MAX - 5, false)] {
            let left_out = OmittedFields::of(r#"{"config":{}}"#, "config", &fields(json!({"a": "x".repeat(length)})));
            assert_eq!(left_out.is_some(), is_kept, "{length}");
        }
    }

    proptest! {
        #[test]
        fn what_was_left_out_is_put_back_where_it_was(
            message in "\\PC{0,4}(\"config\":\\{\\}?)?\\PC{0,4}",
            listed in prop::collection::btree_map("[a-c]", "\\PC{0,6}", 0..3),
            left_out in prop::collection::btree_map("[d-f]", "\\PC{0,6}", 0..3),
        ) {
            let (listed, left_out) = (fields(json!(listed)), fields(json!(left_out)));
            // As strings, because field order decides which match is first.
            let view = |config: &Map<String, Value>| format!("{{\"message\":{},\"config\":{}}}", json!(message), json!(config));
            let json = view(&listed);
            let whole = OmittedFields::of(&json, "config", &left_out).unwrap().restore(&json);
            let all: Map<String, Value> = listed.into_iter().chain(left_out).collect();
            prop_assert_eq!(serde_json::from_str::<Value>(&whole).unwrap(), serde_json::from_str::<Value>(&view(&all)).unwrap());
        }
    }
}
