//! The URL of an http tool, with {placeholders} in its path, query and fragment: what it is made of, and what none may be.
//! The runtime fills it; `docs/tools.md` has the rules for users.

use std::collections::BTreeSet;

use url::Url;

use super::placeholder::{Part, names, parts};

/// A piece of path between two slashes, or of query between two ampersands.
pub type EndpointPiece = Vec<Part>;

#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Scheme, host and port. No value ever reaches these.
    pub base: Url,
    pub path: Vec<EndpointPiece>,
    pub query: Vec<EndpointPiece>,
    /// Placeholders of the fragment, which is not sent: their arguments must not turn up elsewhere.
    unsent: BTreeSet<String>,
}

impl Endpoint {
    /// What is wrong is told without what could be a password.
    pub fn parse(endpoint: &str) -> Result<Self, String> {
        let Some(start) = endpoint.find("://").map(|at| at + 3) else {
            return Err("must begin with http:// or https://".to_owned());
        };
        let end = endpoint[start..].find(['/', '?', '#']).map_or(endpoint.len(), |at| start + at);
        let (origin, rest) = endpoint.split_at(end);
        if origin.contains(['{', '}', '\\']) {
            return Err("scheme, host and port must hold neither placeholders nor backslashes".to_owned());
        }
        let base = Url::parse(origin).map_err(|error| format!("is not a URL: {error}"))?;
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
        let path: Vec<EndpointPiece> = path.split('/').map(pieces).collect::<Result<_, _>>()?;
        for segment in &path {
            if let [Part::Text(text)] = segment.as_slice()
                && is_dots(text)
            {
                return Err("the path must not hold . or .. segments".to_owned());
            }
        }
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(pieces).collect::<Result<_, _>>()?;
        let unsent = names(&[pieces(fragment)?]).into_iter().map(str::to_owned).collect();
        Ok(Self { base, path, query, unsent })
    }

    /// Placeholders of the path; there is no URL without them.
    pub fn needed(&self) -> BTreeSet<&str> {
        names(&self.path)
    }

    pub fn placeholders(&self) -> BTreeSet<&str> {
        names(self.path.iter().chain(&self.query)).into_iter().chain(self.unsent.iter().map(String::as_str)).collect()
    }
}

/// `.` and `..` as URL parsers read them, encoded or not.
pub fn is_dots(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

fn pieces(text: &str) -> Result<EndpointPiece, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(Endpoint::parse(endpoint).is_err(), "{endpoint}");
        }
    }
}
