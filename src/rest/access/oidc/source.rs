//! Where an issuer's keys come from: its own description names a place, and there they are. They are fetched when
//! they are first needed, when they are old, and when a token is signed by a key that is not among them; never more
//! often than the pace allows, however many tokens are shown.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use reqwest::{Client, redirect};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::Url;

use super::is_safe;
use super::keys::Keys;

const PATIENCE: Duration = Duration::from_secs(5);
/// No more is read of what an issuer says.
const LONGEST: usize = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Keys older than this are fetched again.
    pub fresh: Duration,
    /// Keys are used for so long when the issuer cannot be reached. Tokens it issued before have run out by then.
    pub kept: Duration,
    /// The least time between two attempts.
    pub between: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { fresh: Duration::from_mins(10), kept: Duration::from_hours(1), between: Duration::from_secs(10) }
    }
}

#[derive(Debug)]
pub(super) struct Source {
    issuer: String,
    client: Client,
    pace: Pace,
    known: RwLock<Known>,
    /// Held by the one that fetches.
    turn: Mutex<()>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    keys: Option<(Arc<Keys>, Instant)>,
    tried: Option<Instant>,
    problem: Option<String>,
}

#[derive(Deserialize)]
struct Description {
    issuer: String,
    jwks_uri: String,
}

impl Source {
    pub(super) fn new(issuer: &str, near: bool, pace: Pace) -> Result<Self, String> {
        // Asked so seldom, a connection that was kept would be found closed.
        let mut builder = Client::builder().redirect(redirect::Policy::none()).timeout(PATIENCE).pool_max_idle_per_host(0);
        if near {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| format!("no connection to the issuer can be made: {}", root(&error)))?;
        Ok(Self { issuer: issuer.to_owned(), client, pace, known: RwLock::default(), turn: Mutex::default() })
    }

    /// The issuer's keys, fetched if they are not known or old; none if they cannot be had.
    pub(super) async fn keys(&self) -> Option<Arc<Keys>> {
        let (keys, age) = self.usable().unzip();
        if age.is_some_and(|age| age < self.pace.fresh) {
            return keys;
        }
        // Whoever can do with what is known does not wait for another that fetches.
        let turn = if keys.is_some() { self.turn.try_lock().ok() } else { Some(self.turn.lock().await) };
        if turn.is_some() && self.usable().is_none_or(|(_, age)| age >= self.pace.fresh) {
            self.fetch().await;
        }
        self.usable().map(|(keys, _)| keys)
    }

    /// Keys that came after `old`, if there are any.
    pub(super) async fn newer(&self, old: &Arc<Keys>) -> Option<Arc<Keys>> {
        let differs = || self.usable().map(|(keys, _)| keys).filter(|keys| !Arc::ptr_eq(keys, old));
        let _turn = self.turn.lock().await;
        if differs().is_none() {
            self.fetch().await;
        }
        differs()
    }

    /// Why the last attempt failed, if it did.
    pub(super) fn problem(&self) -> Option<String> {
        self.known().problem
    }

    fn known(&self) -> Known {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn usable(&self) -> Option<(Arc<Keys>, Duration)> {
        let (keys, fetched) = self.known().keys?;
        Some((keys, fetched.elapsed())).filter(|(_, age)| *age < self.pace.kept)
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// One attempt, unless there was one just now.
    async fn fetch(&self) {
        let now = Instant::now();
        if self.known().tried.is_some_and(|tried| now.saturating_duration_since(tried) < self.pace.between) {
            return;
        }
        self.change(|known| known.tried = Some(now));
        let outcome = timeout(2 * PATIENCE, self.ask()).await.unwrap_or_else(|_| Err("it takes too long".to_owned()));
        if let Err(problem) = &outcome {
            tracing::warn!(issuer = self.issuer, problem, "the keys of the OIDC issuer could not be fetched");
        }
        self.change(|known| match outcome {
            Ok(keys) => (known.keys, known.problem) = (Some((Arc::new(keys), now)), None),
            Err(problem) => known.problem = Some(problem),
        });
    }

    async fn ask(&self) -> Result<Keys, String> {
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
        Keys::read(&text).map_err(|error| format!("{}: {error}", description.jwks_uri))
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
            if body.len() > LONGEST {
                return Err(format!("{url} answers more than {LONGEST} bytes"));
            }
        }
        Ok(body)
    }
}

/// What lies at the bottom of an error: the layers above it say only that there was one.
fn root(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
