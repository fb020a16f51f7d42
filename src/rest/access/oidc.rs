//! Tokens of an OpenID Connect issuer, interpreted like the API server's flags `--oidc-…`, so that a user has the same name
//! for both. Tokens that name the issuer are verified here and nowhere else.

mod claims;
mod jwt;
mod key_source;
mod keys;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use slipway_http::{Error, HeaderValue, header};
use url::{Host, Url};

use super::{Caller, invalid};
use jwt::Token;
use key_source::{FetchIntervals, KeySource};

/// The longest assumed lifetime of a token.
const TOKEN_LIFETIME_MAX: Duration = Duration::from_hours(1);

/// The issuer, and the claims for user name and groups.
#[derive(Debug, Clone)]
pub struct Oidc {
    /// Exactly as in tokens and in the discovery document.
    pub issuer: String,
    /// The audience that tokens must have.
    pub audience: String,
    pub username_claim: String,
    /// None: the issuer and `#`, except before e-mail addresses. `-`: no prefix.
    pub username_prefix: Option<String>,
    pub groups_claim: Option<String>,
    pub groups_prefix: String,
}

impl Oidc {
    /// The prefix of user names; empty for `-` and for e-mail addresses.
    fn prefix(&self) -> String {
        match self.username_prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
            Some("-") => String::new(),
            Some(prefix) => prefix.to_owned(),
            None if self.username_claim == "email" => String::new(),
            None => format!("{}#", self.issuer),
        }
    }
}

/// An issuer, whose keys are fetched when they are needed.
#[derive(Debug)]
pub struct Issuer {
    oidc: Oidc,
    source: KeySource,
}

impl Issuer {
    /// The error names the invalid setting.
    pub fn new(oidc: Oidc) -> Result<Self, String> {
        Self::with_intervals(oidc, FetchIntervals::default())
    }

    fn with_intervals(oidc: Oidc, intervals: FetchIntervals) -> Result<Self, String> {
        let url = Url::parse(&oidc.issuer).map_err(|error| format!("the issuer must be a URL: {error}"))?;
        if !is_safe(&url) || url.query().is_some() || url.fragment().is_some() {
            return Err("the issuer must begin with https:// and have neither query nor fragment".to_owned());
        }
        if oidc.audience.is_empty() || oidc.username_claim.is_empty() {
            return Err("an issuer takes an audience that its tokens are for, and a claim that names the caller".to_owned());
        }
        if oidc.prefix().starts_with("system:") || oidc.groups_prefix.starts_with("system:") {
            return Err("names and groups of an issuer cannot begin with system:, which is the cluster's own".to_owned());
        }
        let source = KeySource::new(&oidc.issuer, is_near(&url), intervals)?;
        Ok(Self { oidc, source })
    }

    /// Whether `token` claims to be this issuer's. This only selects who verifies it.
    pub(super) fn is_named_by(&self, token: &str) -> bool {
        jwt::issuer(token).is_some_and(|issuer| issuer == self.oidc.issuer)
    }

    /// The caller of a valid token, and its expiry.
    pub(super) async fn caller(&self, token: &str, asked: SystemTime) -> Result<(Caller, SystemTime), Error> {
        let token = Token::read(token).map_err(|problem| invalid(&problem))?;
        self.check(&token).await?;
        let now = asked.duration_since(UNIX_EPOCH).map_err(Error::internal)?.as_secs_f64();
        let (caller, end) = claims::caller(&self.oidc, &token.claims, now).map_err(|problem| invalid(&problem))?;
        let left = Duration::try_from_secs_f64(end - now).unwrap_or(TOKEN_LIFETIME_MAX).min(TOKEN_LIFETIME_MAX);
        Ok((caller, asked + left))
    }

    /// Verifies the signature. Keys rotate: before a token is refused, they are fetched again, within the intervals.
    async fn check(&self, token: &Token<'_>) -> Result<(), Error> {
        let away = || {
            let error = Error::unavailable(
                "the keys of the token's issuer cannot be had at the moment, so that nobody can say whether it is valid",
            );
            error.with_header(header::RETRY_AFTER, HeaderValue::from_static("10"))
        };
        let keys = self.source.keys().await.ok_or_else(away)?;
        if keys.signed(token) {
            return Ok(());
        }
        match self.source.newer(&keys).await {
            Some(newer) if newer.signed(token) => Ok(()),
            None if self.source.problem().is_some() => Err(away()),
            _ => Err(invalid("no key of its issuer has signed it")),
        }
    }

    /// The Kubernetes user name of the issuer's user.
    pub(super) fn user(&self, named: &str) -> String {
        format!("{}{named}", self.oidc.prefix())
    }

    /// Why the issuer's keys are stale or missing, if they are.
    pub(crate) async fn problem(&self) -> Option<String> {
        self.source.keys().await;
        self.source.problem()
    }
}

/// Without TLS anyone could provide the keys.
fn is_safe(url: &Url) -> bool {
    url.scheme() == "https" || (url.scheme() == "http" && is_near(url))
}

fn is_near(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
