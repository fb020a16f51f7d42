//! Read-only Git over smart HTTP, at `/state/{team}.git`, for callers that may read the team's releases. Git clients
//! support Basic only, so that the token may be its password. The state role answers everything else.

use http_body_util::{BodyExt, Full};
use slipway_api::ids;
use slipway_http::{Error, HeaderMap, HeaderName, HeaderValue, Method, Reply, Request, StatusCode, header};

use super::{StateClient, empty_body, read_error};
use crate::access;
use crate::call::Path;
use crate::context::Context;
use crate::permission::{Permission, Right};

/// The right to read a repository.
const READ_REPOSITORY: Right = Right::on("get", "agentreleases");
/// The error of a push.
const READ_ONLY: &str = "this repository can only be read: releases are made by changing agents";
/// The wants and haves of a fetch: 20,000 commits fit in one.
const REQUEST_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The prefix of a team's namespace.
const NAMESPACE_PREFIX: &str = "team-";

const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"Slipway\", charset=\"UTF-8\"");
const PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The headers that are passed on, in both directions.
const REQUEST_HEADERS: [HeaderName; 4] = [header::ACCEPT, header::CONTENT_TYPE, header::CONTENT_ENCODING, PROTOCOL];
const RESPONSE_HEADERS: [HeaderName; 5] =
    [header::CONTENT_TYPE, header::CACHE_CONTROL, header::EXPIRES, header::PRAGMA, header::RETRY_AFTER];

/// The repository and the rest of a path below `/state/`.
fn place(path: &str) -> Option<(&str, &str)> {
    let (name, rest) = path.split_once('/')?;
    Some((name.strip_suffix(".git")?, rest)).filter(|(name, _)| !name.is_empty())
}

/// The id or slug of the repository's team. A name like a namespace is always taken for one.
fn team(name: &str) -> &str {
    name.strip_prefix(NAMESPACE_PREFIX).unwrap_or_else(|| ids::team_slug(name))
}

/// Answers a Git client. `path` is below `/state/`.
pub(crate) async fn answer(context: &Context, path: &str, request: Request) -> Result<Reply, Error> {
    let unknown = || Error::not_found("repositories are at /state/{team}.git");
    let (name, rest) = place(path).ok_or_else(unknown)?;
    let parts = Path(vec![("team", team(name).to_owned())]);
    let challenged = |error: Error| match error.status() {
        StatusCode::UNAUTHORIZED => error.with_header(header::WWW_AUTHENTICATE, CHALLENGE),
        _ => error,
    };
    let headers = bearing(request.headers())?;
    let address = request.address();
    let admitted = access::admit(context, Permission::Team(READ_REPOSITORY), &parts, &headers, address).await.map_err(challenged)?;
    request.slot().authenticated(admitted.holder(address))?;
    let namespace = admitted.team.map(|team| team.namespace()).unwrap_or_default();
    let service = request.query()?.text("service");
    match (request.method(), rest, service.as_deref()) {
        (_, "git-receive-pack", _) | (_, "info/refs", Some("git-receive-pack")) => Err(Error::new(StatusCode::FORBIDDEN, READ_ONLY)),
        (&Method::GET, "info/refs", Some("git-upload-pack")) => {
            let path = format!("/state/{namespace}.git/info/refs?service=git-upload-pack");
            context.state.pass(&path, request).await
        }
        (&Method::POST, "git-upload-pack", None) => context.state.pass(&format!("/state/{namespace}.git/git-upload-pack"), request).await,
        (_, "git-upload-pack", _) => Err(Error::method_not_allowed(&[Method::POST])),
        (_, "info/refs", Some("git-upload-pack")) => Err(Error::method_not_allowed(&[Method::GET])),
        (_, "info/refs", _) => {
            Err(Error::new(StatusCode::FORBIDDEN, "only Git's smart HTTP is spoken here; a client of version 1.6.6 or later knows it"))
        }
        _ => Err(Error::not_found("there is nothing of that name in a repository")),
    }
}

/// The headers with the password of Basic as a bearer token.
fn bearing(headers: &HeaderMap) -> Result<HeaderMap, Error> {
    let mut headers = headers.clone();
    if let Some(password) = access::password(&headers) {
        let token = Some(password).filter(|password| !password.is_empty());
        let bearer = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        let wrong = || Error::new(StatusCode::UNAUTHORIZED, "the password must be a token; the name before it does not matter");
        headers.insert(
            header::AUTHORIZATION,
            bearer.ok_or_else(wrong).map_err(|error| error.with_header(header::WWW_AUTHENTICATE, CHALLENGE))?,
        );
    }
    Ok(headers)
}

impl StateClient {
    /// Passes a request on once its body is complete, because the state role reserves a slot for each request. The response
    /// is streamed.
    async fn pass(&self, path: &str, request: Request) -> Result<Reply, Error> {
        let mut headers = HeaderMap::new();
        for name in REQUEST_HEADERS {
            request.headers().get(&name).into_iter().for_each(|value| drop(headers.insert(name.clone(), value.clone())));
        }
        if let Ok(id) = HeaderValue::from_str(request.id().as_str()) {
            headers.insert(REQUEST_ID, id);
        }
        let method = request.method().clone();
        let body = match method {
            Method::POST => Full::new(request.bytes(REQUEST_BYTES_MAX).await?).map_err(|never| match never {}).boxed_unsync(),
            _ => empty_body(),
        };
        let (head, body) = self.send(method, path, headers, body).await?.into_parts();
        match head.status.as_u16() {
            200 | 304 | 400 | 403 | 404 | 405 | 413 | 415 | 503 => {}
            _ => return Err(read_error(http::Response::from_parts(head, body)).await),
        }
        // Content-Type is set below.
        let mut reply = Reply::stream("application/octet-stream", body).with_status(head.status);
        for name in RESPONSE_HEADERS {
            if let Some(value) = head.headers.get(&name) {
                reply = reply.with_header(name, value.clone());
            }
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn a_repository_is_named_by_slug_id_or_namespace() {
        for (path, expected) in [
            ("research.git/info/refs", Some(("research", "info/refs"))),
            ("tk_research.git/git-upload-pack", Some(("research", "git-upload-pack"))),
            ("team-research.git/info/refs", Some(("research", "info/refs"))),
            ("research/info/refs", None),
            ("research.git", None),
            (".git/info/refs", None),
            ("", None),
        ] {
            assert_eq!(place(path).map(|(name, rest)| (team(name), rest)), expected, "{path}");
        }
    }

    #[test]
    fn a_token_may_come_as_the_password_of_basic() {
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            bearing(&headers).map(|headers| headers[header::AUTHORIZATION].to_str().unwrap().to_owned())
        };
        let basic = |pair: &[u8]| format!("Basic {}", STANDARD.encode(pair));
        assert_eq!(with(&basic(b"git:abc.def")).unwrap(), "Bearer abc.def");
        assert_eq!(with(&basic(b":a:b")).unwrap(), "Bearer a:b");
        assert_eq!(with("Bearer abc").unwrap(), "Bearer abc");
        for wrong in [basic(b"abc"), basic(b"git:"), basic(b"git:\xff"), basic(b"git:a\nb"), "Basic ???".to_owned()] {
            let error = with(&wrong).unwrap_err();
            assert_eq!(error.status(), StatusCode::UNAUTHORIZED, "{wrong}");
            assert_eq!(error.header(&header::WWW_AUTHENTICATE), Some(&CHALLENGE), "{wrong}");
        }
        assert!(bearing(&HeaderMap::new()).unwrap().is_empty());
    }
}
