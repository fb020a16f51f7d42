//! The platform's database URL, and the part of it that agents get.
//!
//! Nothing that this module gives out for a ConfigMap holds a password.

use std::fmt;

use thiserror::Error;
use url::{Host, Url};

/// A PostgreSQL URL whose password never shows in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(Url);

#[derive(Debug, Error)]
pub enum DatabaseUrlError {
    #[error("the database URL cannot be read: {0}; it should look like postgresql://user:password@host:5432/database")]
    Malformed(#[from] url::ParseError),
    #[error("the database URL begins with {0}://; it should begin with postgresql://")]
    Scheme(String),
    #[error("the database URL names no {0}; it should look like postgresql://user:password@host:5432/database")]
    Missing(&'static str),
}

impl DatabaseUrl {
    pub fn parse(text: &str) -> Result<Self, DatabaseUrlError> {
        let url = Url::parse(text.trim())?;
        match url.scheme() {
            "postgresql" | "postgres" => {}
            other => return Err(DatabaseUrlError::Scheme(other.to_owned())),
        }
        if url.host_str().unwrap_or_default().is_empty() {
            return Err(DatabaseUrlError::Missing("host"));
        }
        if url.path().trim_matches('/').is_empty() {
            return Err(DatabaseUrlError::Missing("database"));
        }
        Ok(Self(url))
    }

    /// The same, reachable from every namespace.
    #[must_use]
    pub fn qualified(mut self, suffix: &str) -> Self {
        if let Some(host) = qualified_host(&self.0, suffix) {
            let _ = self.0.set_host(Some(&host));
        }
        self
    }

    /// With the password, for a Secret.
    pub fn complete(&self) -> &str {
        self.0.as_str()
    }

    /// Without the password, for a ConfigMap.
    pub fn public(&self) -> String {
        let mut url = self.0.clone();
        let _ = url.set_password(None);
        let kept: Vec<_> = url.query_pairs().filter(|(key, _)| !is_secret(key)).map(owned).collect();
        set_query(&mut url, kept);
        url.into()
    }

    /// The same database, by another login.
    #[must_use]
    pub fn with_login(mut self, user: &str, password: &str) -> Self {
        let _ = self.0.set_username(user);
        let _ = self.0.set_password(Some(password));
        self
    }

    /// Without user and password, for a ConfigMap of agents whose login comes from a Secret.
    pub fn anonymous(&self) -> String {
        let mut url = self.clone();
        let _ = url.0.set_username("");
        url.public()
    }

    /// The user as it stands in the URL, percent-encoded.
    pub fn user(&self) -> &str {
        self.0.username()
    }

    /// The password as it stands in the URL, percent-encoded.
    pub fn password(&self) -> Option<&str> {
        self.0.password()
    }

    pub fn sslmode(&self) -> Option<String> {
        self.0.query_pairs().find(|(key, _)| key == "sslmode").map(|(_, mode)| mode.into_owned())
    }

    /// The database beside this one that holds the chunks of knowledge bases, without user and password. `sslmode`
    /// is dropped, for the drivers that refuse it, and comes as a variable instead.
    pub fn knowledge(&self) -> String {
        let database = format!("{}_knowledge", self.0.path().trim_matches('/'));
        let mut url = self.0.clone();
        let _ = url.set_scheme("postgresql");
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_path(&database);
        let kept: Vec<_> = url.query_pairs().filter(|(key, _)| key != "sslmode" && !is_secret(key)).map(owned).collect();
        set_query(&mut url, kept);
        url.into()
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.public())
    }
}

/// A URL whose bare host name is completed with `suffix`; anything else is left as it is.
pub fn qualified_url(text: &str, suffix: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return text.to_owned() };
    let Some(host) = qualified_host(&url, suffix) else { return text.to_owned() };
    let _ = url.set_host(Some(&host));
    let qualified = String::from(url);
    // The URL crate adds a slash to an empty path; clients that append paths would see two.
    if text.ends_with('/') { qualified } else { qualified.trim_end_matches('/').to_owned() }
}

/// The completed host, if the URL's host is a bare service name.
fn qualified_host(url: &Url, suffix: &str) -> Option<String> {
    match url.host()? {
        Host::Domain(name) if !name.contains('.') && name != "localhost" && name.parse::<std::net::IpAddr>().is_err() => {
            Some(format!("{name}.{suffix}"))
        }
        _ => None,
    }
}

/// `password`, `sslpassword` and whatever else a driver may call it.
fn is_secret(parameter: &str) -> bool {
    parameter.to_ascii_lowercase().contains("pass")
}

fn owned((key, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)) -> (String, String) {
    (key.into_owned(), value.into_owned())
}

fn set_query(url: &mut Url, pairs: Vec<(String, String)>) {
    if pairs.is_empty() {
        url.set_query(None);
    } else {
        url.query_pairs_mut().clear().extend_pairs(pairs);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SUFFIX: &str = "slipway-system.svc.cluster.local";

    #[test]
    fn only_a_bare_service_name_is_completed() {
        let cases = [
            ("postgres://u:p@db:5432/app", "postgres://u:p@db.slipway-system.svc.cluster.local:5432/app"),
            ("postgres://u:p@db.example.com/app", "postgres://u:p@db.example.com/app"),
            ("postgres://u:p@localhost/app", "postgres://u:p@localhost/app"),
            ("postgres://u:p@192.0.2.7/app", "postgres://u:p@192.0.2.7/app"),
            ("postgres://u:p@[2001:db8::1]/app", "postgres://u:p@[2001:db8::1]/app"),
        ];
        for (url, expected) in cases {
            assert_eq!(DatabaseUrl::parse(url).unwrap().qualified(SUFFIX).complete(), expected);
        }
        assert_eq!(qualified_url("http://ollama:11434", SUFFIX), "http://ollama.slipway-system.svc.cluster.local:11434");
        assert_eq!(qualified_url("https://ollama.example.com/v1", SUFFIX), "https://ollama.example.com/v1");
    }

    #[test]
    fn what_a_config_map_gets_has_no_password() {
        let url =
            DatabaseUrl::parse("postgres://u:s%40cret@db/app?sslmode=require&password=s%40cret&sslPassword=s%40cret&application_name=x")
                .unwrap();
        assert_eq!(url.public(), "postgres://u@db/app?sslmode=require&application_name=x");
        assert_eq!(format!("{url:?}"), url.public());
        assert_eq!(url.knowledge(), "postgresql://db/app_knowledge?application_name=x");
        assert_eq!(url.anonymous(), "postgres://db/app?sslmode=require&application_name=x");
        let other = url.clone().with_login("team", "secret");
        assert!(other.complete().starts_with("postgres://team:secret@db/app?") && other.user() == "team");
        assert_eq!(url.sslmode().as_deref(), Some("require"));
    }

    #[test]
    fn a_bad_url_says_what_is_wrong_without_the_password() {
        for (url, says) in [
            ("db:5432/app", "postgresql://"),
            ("mysql://u:hunter2@h/d", "mysql"),
            ("postgresql://u:hunter2@h", "database"),
            ("postgresql:///d", "host"),
        ] {
            let error = DatabaseUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_spelling_of_a_password_gets_into_a_config_map(
            user in "[a-z]{0,4}(@[a-z]{0,2})?|%3A|\\PC{0,4}",
            password in "(hunter2[@:/?#% ]?){1,2}",
            parameters in prop::collection::vec(("(ssl)?[pP][aA%]{1}[sS]{2}(word)?|p%61ssword|pass%77ord|sslmode|x|\\PC{0,3}", "hunter2|require|y"), 0..4),
            host in "db|db\\.example|10\\.0\\.0\\.7|\\[::1\\]",
        ) {
            let query: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let text = format!("postgres://{user}:{password}@{host}:5432/app?{}", query.join("&"));
            let Ok(url) = DatabaseUrl::parse(&text) else { return Ok(()) };
            for shown in [url.public(), url.anonymous(), url.knowledge(), format!("{url:?}"), url.clone().qualified(SUFFIX).public()] {
                let shown = Url::parse(&shown).unwrap();
                prop_assert_eq!(shown.password(), None);
                prop_assert!(!shown.query_pairs().any(|(name, _)| is_secret(&name)), "{}", shown);
                prop_assert_eq!(shown.port(), url.0.port());
                prop_assert!(shown.host_str().unwrap().starts_with(url.0.host_str().unwrap()));
            }
        }
    }
}
