//! Fetches an issuer's keys from the address in its discovery document: on first use, when they are old, and for tokens
//! with an unknown key, but never more often than the intervals allow.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use reqwest::{Client, redirect};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::Url;

use super::is_safe;
use super::keys::IssuerKeys;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit of a response of the issuer.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub(super) struct FetchIntervals {
    /// Older keys are fetched again.
    pub fresh: Duration,
    /// How long keys are used while the issuer cannot be reached. Earlier tokens have expired by then.
    pub usable: Duration,
    /// The minimum time between two attempts.
    pub between: Duration,
}

impl Default for FetchIntervals {
    fn default() -> Self {
        Self { fresh: Duration::from_mins(10), usable: Duration::from_hours(1), between: Duration::from_secs(10) }
    }
}

#[derive(Debug)]
pub(super) struct KeySource {
    issuer: String,
    client: Client,
    intervals: FetchIntervals,
    known: RwLock<CachedKeys>,
    /// Held during a fetch.
    fetch_lock: Mutex<()>,
}

#[derive(Debug, Clone, Default)]
struct CachedKeys {
    keys: Option<(Arc<IssuerKeys>, Instant)>,
    tried: Option<Instant>,
    problem: Option<String>,
}

#[derive(Deserialize)]
struct Description {
    issuer: String,
    jwks_uri: String,
}

impl KeySource {
    pub(super) fn new(issuer: &str, near: bool, intervals: FetchIntervals) -> Result<Self, String> {
        // Requests are so rare that a pooled connection would be closed.
        let mut builder = Client::builder().redirect(redirect::Policy::none()).timeout(REQUEST_TIMEOUT).pool_max_idle_per_host(0);
        if near {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| format!("no connection to the issuer can be made: {}", root(&error)))?;
        Ok(Self { issuer: issuer.to_owned(), client, intervals, known: RwLock::default(), fetch_lock: Mutex::default() })
    }

    /// The issuer's keys, fetched if they are missing or old; none if they cannot be had.
    pub(super) async fn keys(&self) -> Option<Arc<IssuerKeys>> {
        let (keys, age) = self.usable().unzip();
        if age.is_some_and(|age| age < self.intervals.fresh) {
            return keys;
        }
        // Callers with usable keys do not wait for a fetch in progress.
        let fetch_lock = if keys.is_some() { self.fetch_lock.try_lock().ok() } else { Some(self.fetch_lock.lock().await) };
        if fetch_lock.is_some() && self.usable().is_none_or(|(_, age)| age >= self.intervals.fresh) {
            self.fetch().await;
        }
        self.usable().map(|(keys, _)| keys)
    }

    /// Keys that were fetched after `old`, if they differ.
    pub(super) async fn newer(&self, old: &Arc<IssuerKeys>) -> Option<Arc<IssuerKeys>> {
        let differs = || self.usable().map(|(keys, _)| keys).filter(|keys| !Arc::ptr_eq(keys, old));
        let _fetch_lock = self.fetch_lock.lock().await;
        if differs().is_none() {
            self.fetch().await;
        }
        differs()
    }

    /// Why the last attempt failed, if it did.
    pub(super) fn problem(&self) -> Option<String> {
        self.known().problem
    }

    fn known(&self) -> CachedKeys {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn usable(&self) -> Option<(Arc<IssuerKeys>, Duration)> {
        let (keys, fetched) = self.known().keys?;
        Some((keys, fetched.elapsed())).filter(|(_, age)| *age < self.intervals.usable)
    }

    fn change(&self, change: impl FnOnce(&mut CachedKeys)) {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Makes an attempt, unless there was one within the interval.
    async fn fetch(&self) {
        let now = Instant::now();
        if self.known().tried.is_some_and(|tried| now.saturating_duration_since(tried) < self.intervals.between) {
            return;
        }
        self.change(|known| known.tried = Some(now));
        let outcome = timeout(2 * REQUEST_TIMEOUT, self.ask()).await.unwrap_or_else(|_| Err("it takes too long".to_owned()));
        if let Err(problem) = &outcome {
            tracing::warn!(issuer = self.issuer, problem, "the keys of the OIDC issuer could not be fetched");
        }
        self.change(|known| match outcome {
            Ok(keys) => (known.keys, known.problem) = (Some((Arc::new(keys), now)), None),
            Err(problem) => known.problem = Some(problem),
        });
    }

    async fn ask(&self) -> Result<IssuerKeys, String> {
        let place = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let text = self.read(&place).await?;
        let description: Description = serde_json::from_slice(&text).map_err(|error| format!("{place}: {error}"))?;
        if description.issuer != self.issuer {
            return Err(format!("{place} speaks of another issuer: {}", description.issuer));
        }
        if !Url::parse(&description.jwks_uri).is_ok_and(|url| is_safe(&url)) {
            return Err(format!("{place} names a jwks_uri without https://"));
        }
        let text = self.read(&description.jwks_uri).await?;
        IssuerKeys::read(&text).map_err(|error| format!("{}: {error}", description.jwks_uri))
    }

    async fn read(&self, url: &str) -> Result<Vec<u8>, String> {
        let told = |error: reqwest::Error| format!("{url}: {}", root(&error));
        let mut response = self.client.get(url).send().await.map_err(told)?;
        if !response.status().is_success() {
            return Err(format!("{url} answers {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(told)? {
            body.extend_from_slice(&chunk);
            if body.len() > RESPONSE_BYTES_MAX {
                return Err(format!("{url} answers more than {RESPONSE_BYTES_MAX} bytes"));
            }
        }
        Ok(body)
    }
}

/// The root cause: the layers above it add nothing.
fn root(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
