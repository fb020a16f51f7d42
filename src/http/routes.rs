//! A table of routes for servers with a handful of paths: method, path and what is there; `*` stands for an id.

use http::Method;

use crate::Error;

pub type Route<E> = (Method, &'static str, E);

/// A path that exists; the endpoint is missing where its method is another.
#[derive(Debug)]
pub struct MatchedRoute<'a, E> {
    pub path: &'static str,
    pub endpoint: Option<E>,
    /// What stands in the place of each `*`.
    pub ids: Vec<&'a str>,
}

/// A word of the table wins over an id that is spelt like it, if it stands before it.
pub fn find<'a, E: Copy>(routes: &[Route<E>], is_id: fn(&str) -> bool, method: &Method, path: &'a str) -> Option<MatchedRoute<'a, E>> {
    let mut found: Option<MatchedRoute<'a, E>> = None;
    for (allowed, pattern, endpoint) in routes {
        let Some(ids) = matched(pattern, path, is_id) else { continue };
        if found.as_ref().is_some_and(|found| found.path != *pattern) {
            continue;
        }
        if allowed == method {
            return Some(MatchedRoute { path: pattern, endpoint: Some(*endpoint), ids });
        }
        found = Some(MatchedRoute { path: pattern, endpoint: None, ids });
    }
    found
}

/// The error of a path whose methods are others.
pub fn method_not_allowed<E>(routes: &[Route<E>], path: &str) -> Error {
    let allowed: Vec<Method> = routes.iter().filter(|(_, pattern, _)| *pattern == path).map(|(method, ..)| method.clone()).collect();
    Error::method_not_allowed(&allowed)
}

/// The ids in a path that fits the pattern.
fn matched<'a>(pattern: &str, path: &'a str, is_id: fn(&str) -> bool) -> Option<Vec<&'a str>> {
    let (mut patterns, mut parts) = (pattern.split('/'), path.split('/'));
    let mut ids = Vec::new();
    loop {
        match (patterns.next(), parts.next()) {
            (None, None) => return Some(ids),
            (Some("*"), Some(id)) if is_id(id) => ids.push(id),
            (Some(pattern), Some(part)) if pattern == part => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: [Route<u8>; 5] = [
        (Method::GET, "/notes", 1),
        (Method::POST, "/notes/search", 2),
        (Method::GET, "/notes/*", 3),
        (Method::DELETE, "/notes/*", 4),
        (Method::GET, "/notes/*/parts/*", 5),
    ];

    #[test]
    fn a_path_leads_to_its_endpoint() {
        let is_id = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let of = |method, path| find(&ROUTES, is_id, &method, path).map(|found| (found.endpoint, found.ids.join(" ")));
        for (method, path, endpoint, ids) in [
            (Method::GET, "/notes", Some(1), ""),
            (Method::PUT, "/notes", None, ""),
            (Method::POST, "/notes/search", Some(2), ""),
            (Method::GET, "/notes/search", None, ""),
            (Method::DELETE, "/notes/n1", Some(4), "n1"),
            (Method::GET, "/notes/n1/parts/p2", Some(5), "n1 p2"),
        ] {
            assert_eq!(of(method, path), Some((endpoint, ids.to_owned())), "{path}");
        }
        for path in ["/", "", "/notes/", "/notes/../x", "/notes/n1/parts", "/notes/n1/parts/p2/x", "notes", "/*"] {
            assert_eq!(of(Method::GET, path), None, "{path}");
        }
        assert_eq!(method_not_allowed(&ROUTES, "/notes/*").status(), http::StatusCode::METHOD_NOT_ALLOWED);
    }
}
