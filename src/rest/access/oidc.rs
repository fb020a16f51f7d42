//! Tokens of an OpenID Connect issuer, read as the API server reads them that has the flags `--oidc-…` of the same
//! names, so that one name means one person to both. A token says itself whose it is; one that names the issuer is
//! judged here and nowhere else.

mod claims;
mod jwt;
mod keys;
mod source;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use slipway_http::{Error, HeaderValue, header};
use url::{Host, Url};

use super::{Caller, invalid};
use jwt::Token;
use source::{Pace, Source};

/// The most that is reckoned with: a token may say that it never ends.
const LONGEST_LIFE: Duration = Duration::from_hours(1);

/// Whose tokens are taken, and what in them is a name and what a group.
#[derive(Debug, Clone)]
pub struct Oidc {
    /// Exactly as tokens and the issuer's own description name it.
    pub issuer: String,
    /// Tokens must be meant for it.
    pub audience: String,
    pub username_claim: String,
    /// None: the issuer and `#`, except before e-mail addresses. `-`: nothing.
    pub username_prefix: Option<String>,
    pub groups_claim: Option<String>,
    pub groups_prefix: String,
}

impl Oidc {
    /// What stands before names. `-` and e-mail addresses have nothing.
    fn prefix(&self) -> String {
        match self.username_prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
            Some("-") => String::new(),
            Some(prefix) => prefix.to_owned(),
            None if self.username_claim == "email" => String::new(),
            None => format!("{}#", self.issuer),
        }
    }
}

/// An issuer whose keys are known, or will be when they are needed.
#[derive(Debug)]
pub struct Issuer {
    oidc: Oidc,
    source: Source,
}

impl Issuer {
    /// The error says which setting cannot be used.
    pub fn new(oidc: Oidc) -> Result<Self, String> {
        Self::paced(oidc, Pace::default())
    }

    fn paced(oidc: Oidc, pace: Pace) -> Result<Self, String> {
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
        let source = Source::new(&oidc.issuer, is_near(&url), pace)?;
        Ok(Self { oidc, source })
    }

    /// Whether `token` says of itself that it is this issuer's. That is no proof of anything but who has to judge it.
    pub(super) fn is_named_by(&self, token: &str) -> bool {
        jwt::issuer(token).is_some_and(|issuer| issuer == self.oidc.issuer)
    }

    /// Whose token it is, and when it ends.
    pub(super) async fn caller(&self, token: &str, asked: SystemTime) -> Result<(Caller, SystemTime), Error> {
        let token = Token::read(token).map_err(|problem| invalid(&problem))?;
        self.check(&token).await?;
        let now = asked.duration_since(UNIX_EPOCH).map_err(Error::internal)?.as_secs_f64();
        let (caller, end) = claims::caller(&self.oidc, &token.claims, now).map_err(|problem| invalid(&problem))?;
        let left = Duration::try_from_secs_f64(end - now).unwrap_or(LONGEST_LIFE).min(LONGEST_LIFE);
        Ok((caller, asked + left))
    }

    /// Whether one of the issuer's keys has signed it. Keys change, so before a token is refused they are looked at
    /// again, as often as is decent.
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

    /// What the cluster calls whoever the issuer calls so.
    pub(super) fn user(&self, named: &str) -> String {
        format!("{}{named}", self.oidc.prefix())
    }

    /// Why the issuer's keys are not known as they are now, if so.
    pub(crate) async fn problem(&self) -> Option<String> {
        self.source.keys().await;
        self.source.problem()
    }
}

/// Keys that come over a network without TLS could be anybody's.
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
