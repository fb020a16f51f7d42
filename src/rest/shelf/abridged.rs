//! What a list leaves out of an object, and how it is put back for who reads the object by itself.

use serde_json::{Map, Value};

/// How many bytes the fields of one object may take in a list, as JSON.
const MAX_FIELDS: usize = 16 * 1024;
/// How many bytes of a message a list shows.
const MAX_MESSAGE: usize = 1024;
/// How many bytes are kept of what a list leaves out of one object.
const MAX_LEFT_OUT: usize = 16 * 1024;

/// Takes out of the fields of an object what a list leaves out: these always, and of the others the largest until the
/// rest is small enough. `needed` stay. Answers with what was taken out.
pub(crate) fn abridge(fields: &mut Map<String, Value>, left_out: &[&str], needed: &[&str]) -> Map<String, Value> {
    let mut taken: Map<String, Value> = left_out.iter().filter_map(|name| fields.remove_entry(*name)).collect();
    let size = |value: &Value| value.to_string().len();
    let mut sizes: Vec<(usize, String)> = fields.iter().map(|(name, value)| (size(value), name.clone())).collect();
    let mut all: usize = sizes.iter().map(|(size, _)| size).sum();
    sizes.sort_unstable();
    while all > MAX_FIELDS {
        let Some((size, name)) = sizes.pop() else { return taken };
        if !needed.contains(&name.as_str()) {
            taken.extend(fields.remove_entry(&name));
            all -= size;
        }
    }
    taken
}

/// A message as a list shows it.
pub(crate) fn cut(message: Option<String>) -> Option<String> {
    message.map(|mut message| {
        if message.len() > MAX_MESSAGE {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE));
            message.push('…');
        }
        message
    })
}

/// What the JSON of an object by itself has besides that of a list: members of one object in it.
#[derive(Debug)]
pub(crate) struct LeftOut {
    at: usize,
    members: Box<str>,
}

impl LeftOut {
    /// `fields` belong to the object `within`, the first of its name in `json`. What is too large is not kept.
    pub(crate) fn of(json: &str, within: &str, fields: &Map<String, Value>) -> Option<Self> {
        // No string before it looks like this, as quotes in strings are escaped.
        let opening = format!("\"{within}\":{{");
        let at = json.find(&opening)? + opening.len();
        let object = serde_json::to_string(fields).ok()?;
        let members = object.strip_prefix('{')?.strip_suffix('}')?;
        let comma = if members.is_empty() || json[at..].starts_with('}') { "" } else { "," };
        (members.len() <= MAX_LEFT_OUT).then(|| Self { at, members: format!("{members}{comma}").into() })
    }

    pub(super) fn bytes(&self) -> usize {
        self.members.len()
    }

    /// The JSON of the object by itself.
    pub(super) fn put_back(&self, json: &str) -> String {
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
        assert_eq!(abridge(&mut small, &["system_prompt"], &[]), fields(json!({"system_prompt": "x"})));
        assert_eq!(Value::Object(small), json!({"a": 1, "b": [2]}));
        let mut large = fields(json!({"name": "n".repeat(9000), "a": ["x".repeat(9000)], "b": "y".repeat(8000), "c": "z".repeat(6000)}));
        assert_eq!(abridge(&mut large, &[], &["name"]).keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(large.keys().collect::<Vec<_>>(), ["c", "name"]);
        let mut needed = fields(json!({"name": "n".repeat(20_000), "a": 1}));
        abridge(&mut needed, &[], &["name"]);
        assert_eq!(needed.keys().collect::<Vec<_>>(), ["name"]);
        assert_eq!(cut(Some("é".repeat(2000))).map(|cut| cut.chars().count()), Some(513));
        assert_eq!(cut(Some("short".to_owned())).as_deref(), Some("short"));
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        for (length, is_kept) in [(MAX_LEFT_OUT - 6, true), (MAX_LEFT_OUT - 5, false)] {
            let left_out = LeftOut::of(r#"{"config":{}}"#, "config", &fields(json!({"a": "x".repeat(length)})));
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
            // As texts, because the order of fields decides which is first.
            let view = |config: &Map<String, Value>| format!("{{\"message\":{},\"config\":{}}}", json!(message), json!(config));
            let json = view(&listed);
            let whole = LeftOut::of(&json, "config", &left_out).unwrap().put_back(&json);
            let all: Map<String, Value> = listed.into_iter().chain(left_out).collect();
            prop_assert_eq!(serde_json::from_str::<Value>(&whole).unwrap(), serde_json::from_str::<Value>(&view(&all)).unwrap());
        }
    }
}
