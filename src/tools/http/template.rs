//! The URL of an http tool, with {placeholders}. A value stays within the path segment or query value that it was meant
//! for: everything but letters, digits, `-`, `_`, `.` and `~` is percent-encoded, and a segment that would come out empty,
//! `.` or `..` is refused, because it would name something else.

use std::collections::BTreeSet;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use url::Url;

use crate::placeholder::{Part, parts};

const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A piece of path between two slashes, or of query between two ampersands.
type Piece = Vec<Part>;

#[derive(Debug, Clone)]
pub(super) struct Template {
    /// Scheme, host and port. No value ever reaches these.
    base: Url,
    path: Vec<Piece>,
    query: Vec<Piece>,
    /// Placeholders of the fragment, which is not sent: their arguments must not turn up elsewhere.
    unsent: BTreeSet<String>,
}

impl Template {
    pub(super) fn parse(endpoint: &str) -> Result<Self, String> {
        let Some(start) = endpoint.find("://").map(|at| at + 3) else {
            return Err(format!("'{endpoint}' must begin with http:// or https://"));
        };
        let end = endpoint[start..].find(['/', '?', '#']).map_or(endpoint.len(), |at| start + at);
        let (origin, rest) = endpoint.split_at(end);
        if origin.contains(['{', '}', '\\']) {
            return Err("scheme, host and port must not hold placeholders".to_owned());
        }
        let base = Url::parse(origin).map_err(|error| format!("'{origin}' is not a URL: {error}"))?;
        if !matches!(base.scheme(), "http" | "https") || !base.username().is_empty() || base.password().is_some() {
            return Err("must be an http or https URL without credentials; these belong into headersFrom".to_owned());
        }
        // The URL parser drops some of these and takes others for slashes, so that a value could end up elsewhere.
        if rest.contains(|letter: char| letter.is_control() || letter == '\\') {
            return Err("must hold neither control characters nor backslashes".to_owned());
        }
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.strip_prefix('/').unwrap_or(path);
        let path: Vec<Piece> = path.split('/').map(pieces).collect::<Result<_, _>>()?;
        for segment in &path {
            if let [Part::Text(text)] = segment.as_slice()
                && is_dots(text)
            {
                return Err("the path must not hold . or .. segments".to_owned());
            }
        }
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(pieces).collect::<Result<_, _>>()?;
        let unsent = names(&[pieces(fragment)?]);
        Ok(Self { base, path, query, unsent })
    }

    /// Placeholders of the path; there is no URL without them.
    pub(super) fn needed(&self) -> BTreeSet<String> {
        names(&self.path)
    }

    pub(super) fn placeholders(&self) -> BTreeSet<String> {
        names(&self.path).into_iter().chain(names(&self.query)).chain(self.unsent.iter().cloned()).collect()
    }

    /// The URL with its values; `remaining` is appended to the query.
    pub(super) fn fill(&self, arguments: &Map<String, Value>, remaining: &[(&str, String)]) -> Result<Url, String> {
        let segments = self.path.iter().map(|segment| fill_segment(segment, arguments)).collect::<Result<Vec<_>, _>>()?;
        let mut url = self.base.clone();
        url.set_path(&format!("/{}", segments.join("/")));
        // A pair whose value is not given is left out.
        let given = self.query.iter().filter_map(|pair| fill_pair(pair, arguments));
        let appended = remaining.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        let query = given.chain(appended).collect::<Vec<_>>().join("&");
        url.set_query((!query.is_empty()).then_some(&query));
        // What the URL parser made of it must be what was meant.
        let slashes = url.path().matches('/').count();
        if slashes != self.path.len() || url.host_str() != self.base.host_str() || url.fragment().is_some() {
            return Err("the arguments do not make a valid URL".to_owned());
        }
        Ok(url)
    }
}

fn names<'a>(pieces: impl IntoIterator<Item = &'a Piece>) -> BTreeSet<String> {
    pieces
        .into_iter()
        .flatten()
        .filter_map(|part| match part {
            Part::Placeholder(name) => Some(name.clone()),
            Part::Text(_) => None,
        })
        .collect()
}

fn pieces(text: &str) -> Result<Piece, String> {
    let parts = parts(text).ok_or_else(|| format!("a placeholder is not closed in '{text}'"))?;
    let cut = |pair: &[Part]| matches!(pair, [Part::Text(text), Part::Placeholder(_)] if ends_in_an_escape(text));
    if parts.windows(2).any(cut) {
        return Err(format!("a value would become part of a %-escape in '{text}'; write %25 for a percent sign"));
    }
    Ok(parts)
}

/// Whether a text ends in `%`, or in `%` and one digit.
fn ends_in_an_escape(text: &str) -> bool {
    text.ends_with('%')
        || text.len() > 1 && text.as_bytes()[text.len() - 2] == b'%' && text.ends_with(|letter: char| letter.is_ascii_hexdigit())
}

fn fill_segment(segment: &Piece, arguments: &Map<String, Value>) -> Result<String, String> {
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

fn fill_pair(pair: &Piece, arguments: &Map<String, Value>) -> Option<String> {
    pair.iter()
        .map(|part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Placeholder(name) => arguments.get(name).map(|value| encode(&plain(value))),
        })
        .collect()
}

/// `.` and `..` as the URL parser reads them, encoded or not.
fn is_dots(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

fn encode(value: &str) -> String {
    utf8_percent_encode(value, VALUE).to_string()
}

/// A string without its quotes, everything else as JSON writes it.
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
        Template::parse(endpoint)?.fill(arguments.as_object().unwrap(), remaining).map(String::from)
    }

    #[test]
    fn values_are_filled_in_where_they_belong() {
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

    #[test]
    fn an_endpoint_that_could_lead_anywhere_is_refused() {
        for endpoint in [
            "https://{host}/x",
            "{scheme}://a.example/",
            "https://a.example:{port}/",
            "https://a.{tld}",
            "https://me:pw@a.example/",
            "ftp://a.example/",
            "//a.example/",
            "https://a.example/{open",
            "https://a.example/close}",
            "https://a.example/{}",
            "https://a.example/{a{b}}",
            "https://a.example/../x",
            "https://a.example/x/%2E%2e/y",
            "https://a.example/x\\{a}",
            "https://a.example/x\t{a}",
            "https://a.example/%{a}",
            "https://a.example/x?q=%2{a}",
            "https:///x",
        ] {
            assert!(
                Template::parse(endpoint).is_err() || endpoint == "https:///x" && fill(endpoint, &json!({}), &[]).is_err(),
                "{endpoint}"
            );
        }
    }

    /// What authors write, and what nobody should.
    fn endpoints() -> impl Strategy<Value = String> {
        let pieces = prop::sample::select(vec![
            "/", "/", "/", "{a}", "{b}", "{a}", "x", "v1", ".", "..", "%2e", "%2F", "%", "%4", "?", "?q=", "&", "=", "#", "@", ":", ";",
            "\\", "\t", "\n", "\u{7f}", " ", "é", "ﬀ", "//", "+", "'", "|", "^", "{", "}",
        ]);
        let tail = prop::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat());
        ("https?://[a-z]{1,3}(\\.example)?(:8[0-9]{0,3})?", tail).prop_map(|(origin, tail)| origin + &tail)
    }

    /// Values that are something in a URL.
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

    /// What a piece of an endpoint stands for, once its escapes are read and its values stand in it.
    fn meant(piece: &Piece, arguments: &Map<String, Value>) -> Vec<u8> {
        let part = |part: &Part| match part {
            Part::Text(text) => decoded(text),
            Part::Placeholder(name) => plain(&arguments[name]).into_bytes(),
        };
        piece.iter().flat_map(part).collect()
    }

    proptest! {
        #[test]
        fn a_value_changes_its_own_segment_and_nothing_else(endpoint in endpoints(), a in values(), b in values(), more in values()) {
            let Ok(template) = Template::parse(&endpoint) else { return Ok(()) };
            let arguments = json!({"a": a, "b": b});
            let arguments = arguments.as_object().unwrap();
            let Ok(url) = template.fill(arguments, &[("a b", more.clone())]) else {
                prop_assert!(template.path.iter().any(|segment| {
                    segment.iter().any(|part| matches!(part, Part::Placeholder(_))) && matches!(&*meant(segment, arguments), b"" | b"." | b"..")
                }), "{} {}: refused without need", endpoint, Value::Object(arguments.clone()));
                return Ok(());
            };
            // Another reader of URLs than the one that made it sees the same.
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
            if let Ok(template) = Template::parse(&endpoint) {
                let arguments = json!({"a": value, "b": value});
                let _ = template.fill(arguments.as_object().unwrap(), &[("r", value.clone())]);
            }
        }
    }
}
