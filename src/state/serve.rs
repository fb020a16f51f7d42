//! Read access to the repositories over Git's smart HTTP, for `git clone` and GitOps controllers. Each request is a
//! `git upload-pack` that streams as fast as its client reads and is killed when the client disconnects. The caller checks
//! permissions; no request can write.

mod inflate;
mod session;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use slipway_http::{Error, HeaderMap, HeaderName, HeaderValue, Method, Reply, Request, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::git::{Git, GitCall, repository};
use session::Session;

const UPLOAD_PACK: &str = "git-upload-pack";
const RECEIVE_PACK: &str = "git-receive-pack";
const REQUEST_TYPE: &str = "application/x-git-upload-pack-request";
const PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");
/// A longer `Git-Protocol` header is ignored.
const MAX_PROTOCOL_BYTES: usize = 128;
/// Seconds without input after which upload-pack ends.
const CLIENT_TIMEOUT: &str = "--timeout=60";

/// A client reads what is reachable from a branch, whatever the configuration of the repository.
const SETTINGS: [(&str, &str); 8] = [
    ("uploadpack.allowTipSHA1InWant", "false"),
    ("uploadpack.allowReachableSHA1InWant", "false"),
    ("uploadpack.allowAnySHA1InWant", "false"),
    ("uploadpack.allowRefInWant", "false"),
    ("uploadpack.allowFilter", "false"),
    ("uploadpack.advertiseBundleURIs", "false"),
    ("pack.threads", "1"),
    ("pack.windowMemory", "64m"),
];

#[derive(Debug, Clone, Copy)]
pub struct ServeLimits {
    /// Concurrent children.
    pub children: usize,
    /// Concurrent children of one repository, so that slow readers of one team do not block others.
    pub of_one: usize,
    /// How long a request waits for a slot before it is answered with 503.
    pub queue: Duration,
    /// Duration of one response.
    pub time: Duration,
    /// Bytes of a request body, decompressed.
    pub body: u64,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self { children: 8, of_one: 2, queue: Duration::from_mins(1), time: Duration::from_mins(5), body: 16 * 1024 * 1024 }
    }
}

/// Serves the repositories in one folder, each named `{namespace}.git`.
#[derive(Debug, Clone)]
pub struct Serve {
    git: Git,
    folder: PathBuf,
    limits: ServeLimits,
    slots: Arc<Semaphore>,
    /// By repository, while requests use it.
    shares: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

/// Permits of a child, released on drop.
#[derive(Debug)]
struct Slot {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// Splits `{name}.git/{rest}`, the part of a path below the prefix of repositories.
pub fn place(path: &str) -> Option<(&str, &str)> {
    let (name, rest) = path.split_once('/')?;
    Some((name.strip_suffix(".git")?, rest)).filter(|(name, _)| !name.is_empty())
}

impl Serve {
    pub fn new(git: Git, folder: impl Into<PathBuf>, limits: ServeLimits) -> Self {
        Self { git, folder: folder.into(), limits, slots: Arc::new(Semaphore::new(limits.children)), shares: Arc::default() }
    }

    /// Answers a request for a repository that the caller may read. `rest` is the path within the repository.
    pub async fn answer(&self, namespace: &str, rest: &str, request: Request) -> Result<Reply, Error> {
        match rest {
            "info/refs" => match request.query()?.text("service").as_deref() {
                Some(UPLOAD_PACK) => only(&request, &Method::GET)?,
                Some(RECEIVE_PACK) => return Ok(refused(READ_ONLY)),
                _ => return Ok(refused(DUMB)),
            },
            UPLOAD_PACK => only(&request, &Method::POST)?,
            RECEIVE_PACK => return Ok(refused(READ_ONLY)),
            _ if rest == "HEAD" || rest.starts_with("objects/") => return Ok(refused(DUMB)),
            _ => return Ok(said(StatusCode::NOT_FOUND, "there is nothing of that name in a repository\n")),
        }
        let Some(repository) = self.repository(namespace).await else {
            return Ok(said(StatusCode::NOT_FOUND, "there is no such repository: nothing has been released there yet\n"));
        };
        let Some(slot) = self.slot(namespace).await else {
            let busy = said(StatusCode::SERVICE_UNAVAILABLE, "too many clients read at the moment; try again\n");
            return Ok(busy.with_header(header::RETRY_AFTER, HeaderValue::from_static("5")));
        };
        if rest == UPLOAD_PACK { self.upload(&repository, request, slot).await } else { self.advertise(&repository, &request, slot).await }
    }

    /// The advertisement of branches or capabilities.
    async fn advertise(&self, repository: &Path, request: &Request, slot: Slot) -> Result<Reply, Error> {
        let protocol = protocol(request.headers());
        let call = self.call(&["--stateless-rpc", "--advertise-refs"], repository, protocol)?;
        // Up to version 1 the response begins with the name of the service.
        let head = if version(protocol) < 2 { Bytes::from_static(b"001e# service=git-upload-pack\n0000") } else { Bytes::new() };
        let session = Session::start(call, None, self.limits, slot)?;
        Ok(fresh(session.into_reply("application/x-git-upload-pack-advertisement", head).await?))
    }

    /// A pack, or the next round of negotiation.
    async fn upload(&self, repository: &Path, request: Request, slot: Slot) -> Result<Reply, Error> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind != REQUEST_TYPE {
            return Ok(said(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body must be what git sends: application/x-git-upload-pack-request\n",
            ));
        }
        let call = self.call(&["--stateless-rpc"], repository, protocol(request.headers()))?;
        let session = Session::start(call, Some(request), self.limits, slot)?;
        Ok(fresh(session.into_reply("application/x-git-upload-pack-result", Bytes::new()).await?))
    }

    fn call(&self, options: &[&str], repository: &Path, protocol: Option<&str>) -> Result<GitCall, Error> {
        let mut arguments = vec![OsStr::new("upload-pack"), OsStr::new("--strict"), OsStr::new(CLIENT_TIMEOUT)];
        arguments.extend(options.iter().map(OsStr::new));
        arguments.push(repository.as_os_str());
        let call = self.git.call(arguments).map_err(Error::internal)?.trusting(repository);
        let call = SETTINGS.into_iter().fold(call, |call, (key, value)| call.set(key, value));
        Ok(match protocol {
            Some(protocol) => call.environment("GIT_PROTOCOL", protocol),
            None => call,
        })
    }

    async fn repository(&self, namespace: &str) -> Option<PathBuf> {
        let path = repository(&self.folder, namespace)?;
        // No symbolic link: it could lead to another repository.
        let facts = tokio::fs::symlink_metadata(&path).await.ok()?;
        if facts.is_dir() { tokio::fs::canonicalize(&path).await.ok() } else { None }
    }

    /// Takes the permit of the repository first, so that waiting for it does not block other repositories.
    async fn slot(&self, namespace: &str) -> Option<Slot> {
        let share = {
            let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
            // Each permit, and each waiting request, holds one more reference.
            shares.retain(|_, share| Arc::strong_count(share) > 1);
            shares.entry(namespace.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.limits.of_one))).clone()
        };
        let both =
            async { Some(Slot { _own: share.acquire_owned().await.ok()?, _of_all: self.slots.clone().acquire_owned().await.ok()? }) };
        timeout(self.limits.queue, both).await.ok()?
    }
}

const READ_ONLY: &str = "this repository is read-only: it is written by releases alone, through the API or by changing Agents\n";
const DUMB: &str = "only Git's smart protocol is spoken here; clone with git 1.6.6 or newer\n";

/// Plain text: git shows nothing else to its user.
fn said(status: StatusCode, words: &'static str) -> Reply {
    Reply::text(words).with_status(status)
}

fn refused(words: &'static str) -> Reply {
    said(StatusCode::FORBIDDEN, words)
}

fn only(request: &Request, method: &Method) -> Result<(), Error> {
    if request.method() == method { Ok(()) } else { Err(Error::method_not_allowed(std::slice::from_ref(method))) }
}

/// The answer must not be cached.
fn fresh(reply: Reply) -> Reply {
    reply.with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, max-age=0, must-revalidate"))
}

/// The client's protocol version, as in `version=2`. Invalid headers are ignored.
fn protocol(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(PROTOCOL)?.to_str().ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"=:._-".contains(&byte);
    (text.len() <= MAX_PROTOCOL_BYTES && text.bytes().all(plain)).then_some(text)
}

/// The highest version that is named and known, as git reads it.
fn version(protocol: Option<&str>) -> u8 {
    let named = protocol.unwrap_or_default().split(':').filter_map(|part| part.strip_prefix("version="));
    named.filter_map(|number| number.parse().ok().filter(|number| *number <= 2)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_names_a_repository_and_what_of_it() {
        for (path, expected) in [
            ("team-a.git/info/refs", Some(("team-a", "info/refs"))),
            ("a.git/git-upload-pack", Some(("a", "git-upload-pack"))),
            ("a.git/", Some(("a", ""))),
            ("a.git.git/x", Some(("a.git", "x"))),
            ("a/info/refs", None),
            ("a.git", None),
            (".git/info/refs", None),
            ("", None),
        ] {
            assert_eq!(place(path), expected, "{path}");
        }
    }

    #[test]
    fn only_a_namespace_has_a_repository() {
        let folder = Path::new("/state");
        let long = "a".repeat(64);
        for name in ["", ".", "..", "../a", "a/b", "a.b", "A", "-a", "a-", "a_b", "a\0", "é", &long] {
            assert_eq!(repository(folder, name), None, "{name}");
        }
        assert_eq!(repository(folder, "team-a1"), Some("/state/team-a1.git".into()));
    }

    #[test]
    fn versions_are_read_as_git_reads_them() {
        for (sent, heeded, number) in [
            ("version=2", true, 2),
            ("version=1", true, 1),
            ("version=1:version=2", true, 2),
            ("future:version=2:key=value", true, 2),
            ("version=3", true, 0),
            ("version=", true, 0),
            ("", true, 0),
            ("version=2\u{7f}", false, 0),
            ("version=2;rm", false, 0),
            (&"a".repeat(200), false, 0),
        ] {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_str(sent) {
                headers.insert(PROTOCOL, value);
            }
            assert_eq!(protocol(&headers), heeded.then_some(sent), "{sent:?}");
            assert_eq!(version(protocol(&headers)), number, "{sent:?}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leads_out_of_the_folder(path in "([a-z0-9-]{1,3}|\\.\\.|\\.|/|\\.git|%2e|%2f|\\\\|\0){0,8}|\\PC{0,20}") {
            let Some((name, rest)) = place(&path) else { return Ok(()) };
            prop_assert_eq!(format!("{name}.git/{rest}"), path.clone());
            if let Some(found) = repository(Path::new("/state"), name) {
                prop_assert_eq!(found.parent(), Some(Path::new("/state")));
                prop_assert_eq!(found.file_name().and_then(OsStr::to_str), Some(&*format!("{name}.git")));
            }
        }

        #[test]
        fn the_protocol_header_that_is_passed_on_is_plain(sent in prop::collection::vec(any::<u8>(), 0..140), said in "([:=]|version|[0-9a-z._-]){0,12}|version=[0-9]{1,30}") {
            for bytes in [&sent[..], said.as_bytes()] {
                let Ok(value) = HeaderValue::from_bytes(bytes) else { continue };
                let headers = HeaderMap::from_iter([(PROTOCOL, value)]);
                let header = protocol(&headers);
                let plain = |header: &str| header.len() <= MAX_PROTOCOL_BYTES && header.bytes().all(|byte| byte.is_ascii_graphic());
                prop_assert!(header.is_none_or(|header| header.as_bytes() == bytes && plain(header)));
                prop_assert!(version(header) <= 2);
            }
        }
    }
}
