//! How much memory an answer takes as a tree of JSON values, told from its bytes before it is parsed: an object with one member
//! may have eight bytes, and takes more than 600. An upper bound, as `serde_json` keeps maps and lists.

/// A map's first node, which has room for eleven members.
const OBJECT_BYTES: u64 = 640;
/// A list's first elements, of which there is room for four.
const ARRAY_BYTES: u64 = 128;
/// One more member or element with its name, in nodes that are half full, or in a list that has just doubled.
const MEMBER_BYTES: u64 = 160;

/// The answer itself, its strings, and the tree that holds them.
pub(super) fn bytes(json: &[u8]) -> u64 {
    let (mut bytes, mut is_text, mut is_escaped) = (2 * json.len() as u64, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' => bytes += OBJECT_BYTES,
            b'[' => bytes += ARRAY_BYTES,
            b',' => bytes += MEMBER_BYTES,
            _ => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_strings_does_not_count() {
        for (json, structure) in [
            (r#""a,{[\"{,\\""#, 0),
            ("[]", ARRAY_BYTES),
            (r#"{"a": "{", "b": [1, "\\", {}]}"#, 2 * OBJECT_BYTES + ARRAY_BYTES + 3 * MEMBER_BYTES),
        ] {
            assert_eq!(bytes(json.as_bytes()), 2 * json.len() as u64 + structure, "{json}");
        }
    }
}
