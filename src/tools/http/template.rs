//! Fills the URL of an http tool. A value cannot leave its path segment or query value: everything but letters, digits, `-`,
//! `_`, `.` and `~` is percent-encoded, and a segment that would be empty, `.` or `..` is refused.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use slipway_api::contract::endpoint::{Endpoint, EndpointPiece, is_dots};
use slipway_api::contract::placeholder::Part;
use url::Url;

const VALUE_ESCAPES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The URL with its values; `remaining` is appended to the query.
pub(super) fn fill(endpoint: &Endpoint, arguments: &Map<String, Value>, remaining: &[(&str, String)]) -> Result<Url, String> {
    let segments = endpoint.path.iter().map(|segment| fill_segment(segment, arguments)).collect::<Result<Vec<_>, _>>()?;
    let mut url = endpoint.base.clone();
    url.set_path(&format!("/{}", segments.join("/")));
    // A pair without a value is left out.
    let given = endpoint.query.iter().filter_map(|pair| fill_pair(pair, arguments));
    let appended = remaining.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    let query = given.chain(appended).collect::<Vec<_>>().join("&");
    url.set_query((!query.is_empty()).then_some(&query));
    // The parsed URL must have the same structure as the template.
    let slashes = url.path().matches('/').count();
    if slashes != endpoint.path.len() || url.host_str() != endpoint.base.host_str() || url.fragment().is_some() {
        return Err("the arguments do not make a valid URL".to_owned());
    }
    Ok(url)
}

fn fill_segment(segment: &EndpointPiece, arguments: &Map<String, Value>) -> Result<String, String> {
    let mut filled = String::new();
    let mut first = None;
    for part in segment {
        match part {
            Part::Text(text) => filled.push_str(text),
            Part::Placeholder(name) => {
                first.get_or_insert(name);
                let value = arguments.get(name).ok_or_else(|| format!("{name}: is required"))?;
                filled.push_str(&encode(&plain(value)));
            }
        }
    }
    match first {
        Some(name) if filled.is_empty() => Err(format!("{name}: must not be empty")),
        Some(name) if is_dots(&filled) => Err(format!("{name}: must not be . or ..")),
        _ => Ok(filled),
    }
}

fn fill_pair(pair: &EndpointPiece, arguments: &Map<String, Value>) -> Option<String> {
    pair.iter()
        .map(|part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Placeholder(name) => arguments.get(name).map(|value| encode(&plain(value))),
        })
        .collect()
}

fn encode(value: &str) -> String {
    utf8_percent_encode(value, VALUE_ESCAPES).to_string()
}

/// A string without quotes, other values as JSON.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use percent_encoding::percent_decode_str;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fill(endpoint: &str, arguments: &Value, remaining: &[(&str, String)]) -> Result<String, String> {
        super::fill(&Endpoint::parse(endpoint)?, arguments.as_object().unwrap(), remaining).map(String::from)
    }

    #[test]
    fn values_fill_their_placeholders() {
        for (endpoint, arguments, expected) in [
            ("https://a.example/w/{city}", json!({"city": "Bern"}), "https://a.example/w/Bern"),
            ("https://a.example/w/{city}", json!({"city": "São Paulo"}), "https://a.example/w/S%C3%A3o%20Paulo"),
            ("https://a.example/w/{city}", json!({"city": "a/b"}), "https://a.example/w/a%2Fb"),
            ("https://a.example/w/{city}", json!({"city": "../../etc"}), "https://a.example/w/..%2F..%2Fetc"),
            ("https://a.example/w/{city}", json!({"city": "%2e%2e"}), "https://a.example/w/%252e%252e"),
            ("https://a.example/w/{city}", json!({"city": "x?y=1#z"}), "https://a.example/w/x%3Fy%3D1%23z"),
            ("https://a.example/w/{city}", json!({"city": "\\..\\"}), "https://a.example/w/%5C..%5C"),
            ("https://a.example/w/{city}", json!({"city": "\t\n\0"}), "https://a.example/w/%09%0A%00"),
            ("https://a.example/w/{city}", json!({"city": "{city}"}), "https://a.example/w/%7Bcity%7D"),
            ("https://a.example/w/{a}{b}.json", json!({"a": 1, "b": true}), "https://a.example/w/1true.json"),
            ("https://a.example:8443/w/{id}/x", json!({"id": "@evil.example"}), "https://a.example:8443/w/%40evil.example/x"),
            ("https://a.example/s?q={q}&lang=en", json!({"q": "a&b=c d+e"}), "https://a.example/s?q=a%26b%3Dc%20d%2Be&lang=en"),
            ("https://a.example/s?q={q}&lang={l}", json!({"q": "a"}), "https://a.example/s?q=a"),
            ("https://a.example/s?q={q}", json!({}), "https://a.example/s"),
            ("https://a.example?q={q}", json!({"q": ".."}), "https://a.example/?q=.."),
            ("https://a.example/x#{part}", json!({"part": "y"}), "https://a.example/x"),
            ("https://a.example", json!({}), "https://a.example/"),
        ] {
            assert_eq!(fill(endpoint, &arguments, &[]), Ok(expected.into()), "{endpoint} {arguments}");
        }
        let remaining = [("a b", "1&2".to_owned()), ("c", "ü".to_owned())];
        assert_eq!(fill("https://a.example/s?x=1", &json!({}), &remaining), Ok("https://a.example/s?x=1&a%20b=1%262&c=%C3%BC".into()));
    }

    #[test]
    fn a_segment_that_would_name_something_else_is_refused() {
        for (endpoint, arguments, expected) in [
            ("https://a.example/users/{id}", json!({"id": ""}), "id: must not be empty"),
            ("https://a.example/users/{id}", json!({"id": "."}), "id: must not be . or .."),
            ("https://a.example/users/{id}", json!({"id": ".."}), "id: must not be . or .."),
            ("https://a.example/users/{id}/x", json!({"id": ".."}), "id: must not be . or .."),
            ("https://a.example/users/{a}{b}", json!({"a": ".", "b": "."}), "a: must not be . or .."),
            ("https://a.example/users/.{a}", json!({"a": "."}), "a: must not be . or .."),
            ("https://a.example/users/%2e{a}", json!({"a": "."}), "a: must not be . or .."),
            ("https://a.example/users/{id}", json!({}), "id: is required"),
        ] {
            assert_eq!(fill(endpoint, &arguments, &[]), Err(expected.into()), "{endpoint} {arguments}");
        }
    }

    /// Valid and invalid templates.
    fn endpoints() -> impl Strategy<Value = String> {
        let pieces = prop::sample::select(vec![
            "/", "/", "/", "{a}", "{b}", "{a}", "x", "v1", ".", "..", "%2e", "%2F", "%", "%4", "?", "?q=", "&", "=", "#", "@", ":", ";",
            "\\", "\t", "\n", "\u{7f}", " ", "é", "ﬀ", "//", "+", "'", "|", "^", "{", "}",
        ]);
        let tail = prop::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat());
        ("https?://[a-z]{1,3}(\\.example)?(:8[0-9]{0,3})?", tail).prop_map(|(origin, tail)| origin + &tail)
    }

    /// Values with a meaning in URLs.
    fn values() -> impl Strategy<Value = String> {
        let pieces = prop::sample::select(vec![
            "..",
            ".",
            "/",
            "\\",
            "%2e",
            "%2f",
            "%",
            "2e",
            "2f",
            "?",
            "#",
            "&",
            "=",
            "@evil.example",
            "//",
            ":",
            "\t",
            "\n",
            "\0",
            "{a}",
            "é",
            "a",
        ]);
        prop_oneof![prop::collection::vec(pieces, 0..5).prop_map(|pieces| pieces.concat()), any::<String>()]
    }

    fn decoded(text: &str) -> Vec<u8> {
        percent_decode_str(text).collect()
    }

    /// The bytes of a piece of an endpoint, with escapes decoded and placeholders filled.
    fn meant(piece: &EndpointPiece, arguments: &Map<String, Value>) -> Vec<u8> {
        let part = |part: &Part| match part {
            Part::Text(text) => decoded(text),
            Part::Placeholder(name) => plain(&arguments[name]).into_bytes(),
        };
        piece.iter().flat_map(part).collect()
    }

    proptest! {
        #[test]
        fn a_value_changes_its_own_segment_and_nothing_else(endpoint in endpoints(), a in values(), b in values(), more in values()) {
            let Ok(template) = Endpoint::parse(&endpoint) else { return Ok(()) };
            let arguments = json!({"a": a, "b": b});
            let arguments = arguments.as_object().unwrap();
            if !template.placeholders().into_iter().all(|name| arguments.contains_key(name)) {
                return Ok(());
            }
            let Ok(url) = super::fill(&template, arguments, &[("a b", more.clone())]) else {
                prop_assert!(template.path.iter().any(|segment| {
                    segment.iter().any(|part| matches!(part, Part::Placeholder(_))) && matches!(&*meant(segment, arguments), b"" | b"." | b"..")
                }), "{} {}: refused without need", endpoint, Value::Object(arguments.clone()));
                return Ok(());
            };
            // A second, simpler parser agrees.
            let again = Url::parse(url.as_str()).unwrap();
            prop_assert_eq!(&again, &url);
            prop_assert_eq!(again.origin(), template.base.origin());
            prop_assert_eq!((again.username(), again.password(), again.fragment()), ("", None, None));
            let segments: Vec<Vec<u8>> = again.path()[1..].split('/').map(decoded).collect();
            let expected: Vec<Vec<u8>> = template.path.iter().map(|segment| meant(segment, arguments)).collect();
            prop_assert_eq!(segments, expected, "{}", url);
            let pairs: Vec<Vec<u8>> = again.query().unwrap().split('&').map(decoded).collect();
            let appended = [b"a b=", more.as_bytes()].concat();
            let expected: Vec<Vec<u8>> = template.query.iter().map(|pair| meant(pair, arguments)).chain([appended]).collect();
            prop_assert_eq!(pairs, expected, "{}", url);
        }

        #[test]
        fn no_endpoint_makes_it_panic(endpoint in "(https?://)?[a-z{}./?#&%:@]{0,30}|\\PC{0,20}", value in any::<String>()) {
            if let Ok(template) = Endpoint::parse(&endpoint) {
                let arguments = json!({"a": value, "b": value});
                let _ = super::fill(&template, arguments.as_object().unwrap(), &[("r", value.clone())]);
            }
        }
    }
}
