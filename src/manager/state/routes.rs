//! The HTTP routes of the state role: releases, agents, the state of the mirror, and the repositories themselves.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use slipway_http::{Error, Method, Reply, Request, StatusCode, header};
use slipway_release::wire::{self, Agents, Entry, Known, MirrorStatus, MirrorTest, Mirrors, Release, Releases, TestStatus, Tested};
use slipway_release::{Current, Status};
use slipway_state::git::Git;
use slipway_state::history::{History, HistoryFault, Row};
use slipway_state::mirror::{Mirror, MirrorState, Rules, Trouble, probe};
use slipway_state::serve::{Serve, place};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::callbacks::{self, Callbacks};
use super::callers::Callers;
use super::gates::{self, Gates};
use super::mirror_config::MirrorConfig;

/// The prefix under which repositories are served.
const REPOSITORIES_PREFIX: &str = "/state/";
/// The repository name for a test of the remote.
const PROBE_NAMESPACE: &str = "team-default";
/// The time limit of a test of a remote, shorter than the caller's.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Each test runs git twice.
pub(super) const MAX_TESTS: usize = 2;

pub(super) struct StateRoutes {
    pub history: Arc<History>,
    pub mirror: Mirror,
    pub configuration: MirrorConfig,
    pub serve: Serve,
    pub git: Git,
    pub rules: Rules,
    pub callbacks: Callbacks,
    pub gates: Gates,
    pub callers: Callers,
    /// For tests of remotes.
    pub tests: Semaphore,
}

impl StateRoutes {
    pub(super) async fn answer(self: Arc<Self>, request: Request) -> Result<Reply, Error> {
        self.callers.check(request.headers()).await?;
        let path = request.path().to_owned();
        if let Some(rest) = path.strip_prefix(REPOSITORIES_PREFIX) {
            let Some((namespace, rest)) = place(rest) else { return Err(Error::not_found("repositories are at /state/{namespace}.git")) };
            return self.serve.answer(namespace, rest, request).await;
        }
        let steps: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (request.method(), steps.as_slice()) {
            (&Method::GET, ["releases", namespace, slug]) => self.list(namespace, slug, &request).await,
            (&Method::GET, ["releases", namespace, slug, version]) => self.one(namespace, slug, version).await,
            (&Method::GET, ["agents"]) => self.agents(&request).await,
            (&Method::GET, ["mirror"]) => Reply::json(&self.mirrors()),
            (&Method::POST, ["mirror", "test"]) => {
                let is_given = request.headers().contains_key(header::CONTENT_TYPE);
                let other: Option<MirrorTest> = if is_given { Some(request.json().await?) } else { None };
                Reply::json(&self.test(other).await)
            }
            (&Method::POST, ["callbacks"]) => {
                let call = request.json_up_to(callbacks::MAX_BODY_BYTES).await?;
                Reply::json(&self.callbacks.hear(call, SystemTime::now()).await?)
            }
            (&Method::POST, ["gates"]) => {
                let call = request.json_up_to(gates::MAX_BODY_BYTES).await?;
                Reply::json(&self.gates.answer(call, Timestamp::now()).await?)
            }
            (&Method::POST, ["gates", "outcome"]) => {
                let outcome = request.json_up_to(gates::MAX_BODY_BYTES).await?;
                Reply::json(&self.gates.outcome(&outcome, Timestamp::now())?)
            }
            (_, ["releases", _, _] | ["releases", _, _, _] | ["agents" | "mirror"]) => Err(Error::method_not_allowed(&[Method::GET])),
            (_, ["mirror", "test"] | ["callbacks" | "gates"] | ["gates", "outcome"]) => Err(Error::method_not_allowed(&[Method::POST])),
            _ => {
                let known = "there are /releases/{namespace}/{slug}, /agents, /mirror, /callbacks, /gates and /state/{namespace}.git";
                Err(Error::not_found(known))
            }
        }
    }

    /// Runs a query of the history, which blocks, on a blocking thread.
    async fn query<T: Send + 'static>(&self, query: impl FnOnce(&History) -> Result<T, HistoryFault> + Send + 'static) -> Result<T, Error> {
        let history = self.history.clone();
        tokio::task::spawn_blocking(move || query(&history)).await.map_err(Error::internal)?.map_err(to_http)
    }

    async fn list(&self, namespace: &str, slug: &str, request: &Request) -> Result<Reply, Error> {
        let mut query = request.query()?;
        let limit = query.number("limit", 100, 1..=wire::MOST)?;
        let before = query.number("before", 0, 0..=u64::MAX)?;
        query.end()?;
        let (namespace, slug) = (namespace.to_owned(), slug.to_owned());
        let page = self.query(move |history| history.list(&namespace, &slug, Some(before).filter(|before| *before > 0), limit)).await?;
        Reply::json(&Releases { data: page.rows.into_iter().map(release_entry).collect(), next_before: page.next })
    }

    async fn one(&self, namespace: &str, slug: &str, version: &str) -> Result<Reply, Error> {
        let version: u64 = version.trim_start_matches('v').parse().map_err(|_| Error::not_found("a version is a number"))?;
        let (namespace, slug) = (namespace.to_owned(), slug.to_owned());
        let (artifact, row) = self
            .query(move |history| {
                let artifact = history.release(&namespace, &slug, version)?;
                let page = history.list(&namespace, &slug, Some(version.saturating_add(1)), 1)?;
                Ok((artifact, page.rows.into_iter().find(|row| row.version == version)))
            })
            .await?;
        let Some(row) = row else { return Err(Error::not_found(format!("there is no release v{version}"))) };
        Reply::json(&Release { entry: release_entry(row), artifact: artifact.to_yaml() })
    }

    async fn agents(&self, request: &Request) -> Result<Reply, Error> {
        let mut query = request.query()?;
        let namespace = query.text("namespace").filter(|namespace| !namespace.is_empty());
        query.end()?;
        let data = self
            .query(move |history| {
                let namespaces = match namespace {
                    Some(namespace) => vec![namespace],
                    None => history.namespaces()?,
                };
                let mut all = Vec::new();
                for namespace in namespaces {
                    for slug in history.agents(&namespace)? {
                        all.push(agent_entry(history, &namespace, slug)?);
                    }
                }
                Ok(all)
            })
            .await?;
        Reply::json(&Agents { data })
    }

    fn mirrors(&self) -> Mirrors {
        let configured = self.configuration.remote().is_some();
        let fault = self.configuration.fault();
        let states = self.mirror.states();
        let data = states.iter().filter(|_| configured).map(|(namespace, state)| mirror_entry(namespace, state)).collect();
        Mirrors { configured: configured || fault.is_some(), data, fault }
    }

    /// Connects to a remote: `other`, or the one in force.
    async fn test(&self, other: Option<MirrorTest>) -> Tested {
        let failed = |message: String| Tested { status: TestStatus::Error, message };
        let remote = match other {
            Some(other) => match self.configuration.wanted(other) {
                Ok(remote) => remote,
                Err(message) => return failed(message),
            },
            None => match (self.configuration.remote(), self.configuration.fault()) {
                (Some(remote), _) => remote,
                (None, Some(message)) => return failed(message),
                (None, None) => {
                    let message = "state_repo is not set; releases are kept here alone".to_owned();
                    return Tested { status: TestStatus::NotConfigured, message };
                }
            },
        };
        let tested = async {
            let _permit = self.tests.acquire().await;
            probe(&self.git, &self.rules, &remote, PROBE_NAMESPACE).await
        };
        match timeout(TEST_TIMEOUT, tested).await {
            Ok(Ok(seen)) => {
                Tested { status: TestStatus::Ok, message: format!("the remote can be read and written; it has {} branches", seen.branches) }
            }
            Ok(Err(trouble)) => failed(trouble.to_string()),
            Err(_) => failed(format!("the remote was not read and written within {} s", TEST_TIMEOUT.as_secs())),
        }
    }
}

fn to_http(fault: HistoryFault) -> Error {
    match fault {
        HistoryFault::Refused(why) => Error::bad_request(why),
        HistoryFault::Missing(why) => Error::not_found(why),
        HistoryFault::Damaged(why) => Error::new(StatusCode::BAD_GATEWAY, why),
        fault @ (HistoryFault::Disk { .. } | HistoryFault::Busy(_)) => {
            Error::unavailable("the release history cannot be read at the moment").because(fault)
        }
    }
}

/// An entry of a list. A release with an invalid artifact is listed with the fault.
fn release_entry(row: Row) -> Entry {
    let (name, commit) = row.recorded.unzip();
    let status = row.status;
    let fault = row.summary.as_ref().err().cloned();
    let when = status.as_ref().map_or(Timestamp::UNIX_EPOCH, |status| status.when);
    let (previous, author, timestamp, changelog, checksum) = match row.summary {
        Ok(summary) => (summary.previous, summary.author, summary.timestamp, summary.changelog, summary.checksum),
        Err(_) => (row.version.saturating_sub(1), String::new(), when, String::new(), String::new()),
    };
    Entry {
        version: row.version,
        previous,
        status: status.as_ref().map_or(Status::Archived, |status| status.status),
        reason: fault.or_else(|| status.and_then(|status| status.reason)),
        author,
        timestamp,
        changelog,
        checksum,
        commit: commit.unwrap_or_default(),
        name,
    }
}

/// An agent's state in its repository.
fn agent_entry(history: &History, namespace: &str, slug: String) -> Result<Known, HistoryFault> {
    let (active, deleted, fault) = match history.current(namespace, &slug) {
        Ok(Some(Current::Release(artifact))) => (Some(artifact.metadata.version), false, None),
        Ok(Some(Current::Gone(_))) => (None, true, None),
        Ok(None) => (None, false, None),
        Err(HistoryFault::Damaged(why)) => (None, false, Some(why)),
        Err(fault) => return Err(fault),
    };
    let (manifest, fault) = match history.manifest(namespace, &slug) {
        Ok(manifest) => (manifest, fault),
        Err(HistoryFault::Damaged(why)) => (None, fault.or(Some(why))),
        Err(fault) => return Err(fault),
    };
    Ok(Known { namespace: namespace.to_owned(), slug, active, deleted, manifest, fault })
}

fn mirror_entry(namespace: &str, state: &MirrorState) -> wire::Mirror {
    let trouble = state.fault.as_ref().map(|failure| &failure.trouble);
    let status = match trouble {
        Some(Trouble::Diverged { .. }) => MirrorStatus::Diverged,
        Some(_) => MirrorStatus::Error,
        None if state.is_in_sync() => MirrorStatus::Ok,
        None => MirrorStatus::Behind,
    };
    let behind = state.behind.filter(|behind| *behind > 0).map(|behind| format!("{behind} commits are still to be pushed"));
    wire::Mirror {
        namespace: namespace.to_owned(),
        status,
        message: trouble.map(ToString::to_string).or(behind),
        commit: state.theirs.clone(),
        pushed_at: state.last_success.and_then(timestamp),
    }
}

fn timestamp(time: SystemTime) -> Option<Timestamp> {
    Timestamp::try_from(time).ok()
}
