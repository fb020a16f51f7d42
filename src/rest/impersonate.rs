//! Writes as the caller (`rest.impersonate` in the chart): the cluster then checks and audits the caller itself. Reads stay
//! REST's own.

use kube::Client;
use slipway_http::{HeaderMap, HeaderName, HeaderValue, Method};
use tower::service_fn;

use crate::access::Caller;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");

/// A client whose writes impersonate the caller. A name that no header can hold makes every write fail.
pub(crate) fn client(client: &Client, caller: &Caller) -> Client {
    let (client, headers) = (client.clone(), headers(caller));
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |mut request: http::Request<kube::client::Body>| {
        let (client, headers) = (client.clone(), headers.clone());
        async move {
            if request.method() != Method::GET {
                let headers = headers.ok_or_else(|| kube::Error::Service("the caller's name cannot be told to the API server".into()))?;
                request.headers_mut().extend(headers);
            }
            client.send(request).await
        }
    });
    Client::new(service, namespace)
}

fn headers(caller: &Caller) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.append(USER, HeaderValue::from_bytes(caller.name.as_bytes()).ok().filter(|name| !name.is_empty())?);
    for group in &caller.groups {
        headers.append(GROUP, HeaderValue::from_bytes(group.as_bytes()).ok()?);
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_told_whole_or_not_at_all() {
        let caller = |name: &str, groups: &[&str]| Caller {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..Caller::default()
        };
        let told = headers(&caller("jürgen@example.com", &["oidc:a", "system:authenticated"])).unwrap();
        assert_eq!(told[USER].as_bytes(), "jürgen@example.com".as_bytes());
        assert_eq!(told.get_all(GROUP).iter().map(|group| group.to_str().unwrap()).collect::<Vec<_>>(), ["oidc:a", "system:authenticated"]);
        for (name, group) in [("", "a"), ("a\nImpersonate-Group: system:masters", "a"), ("a", "b\r\nc")] {
            assert!(headers(&caller(name, &[group])).is_none(), "{name:?} {group:?}");
        }
    }
}
