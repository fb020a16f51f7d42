//! The environment, read once. Values that may hold secrets are never quoted.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use slipway_http::log::Format;
use slipway_http::token::Verifier;
use tracing_subscriber::filter::LevelFilter;

pub(crate) struct Settings {
    pub(crate) port: u16,
    pub(crate) log_level: LevelFilter,
    pub(crate) log_format: Format,
    /// The team's id: `tk_…`.
    pub(crate) team: String,
    /// None: there are no knowledge bases.
    pub(crate) database: Option<Database>,
    /// The key by which calls of the platform are known. With one, no others are answered.
    pub(crate) access_key: Option<Verifier>,
    /// The key by which the manager is known, who sends what is to be connected to. Without one, nobody can.
    pub(crate) control_key: Option<Verifier>,
    /// For requests under way at the end.
    pub(crate) grace: Duration,
}

/// The sibling database, with the team's login.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) sslmode: Option<String>,
}

/// Everything that is wrong, one line each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) Vec<String>);

impl Refusal {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "slipway-worker cannot run:")?;
        self.0.iter().try_for_each(|fault| writeln!(f, "- {fault}"))
    }
}

impl Settings {
    /// A faulty value is replaced by its default, so that the rest can be checked, too.
    pub(crate) fn read(lookup: impl Fn(&str) -> Option<OsString>) -> (Self, Refusal) {
        let mut faults = Vec::new();
        let mut value = |name: &str| {
            if let Ok(value) = lookup(name)?.into_string() {
                Some(value).filter(|value| !value.is_empty())
            } else {
                faults.push(format!("{name} is not valid UTF-8"));
                None
            }
        };
        let names = [
            "SLIPWAY_KNOWLEDGE_URL",
            "PGSSLMODE",
            "RUNTIME_TEAM",
            "RUNTIME_ACCESS_PUBLIC_KEY",
            "RUNTIME_PORT",
            "RUNTIME_SHUTDOWN_SECONDS",
            "RUNTIME_LOG_LEVEL",
            "RUNTIME_LOG_FORMAT",
            "RUNTIME_CONTROL_PUBLIC_KEY",
        ];
        let [url, sslmode, team, access, port, grace, level, format, control] = names.map(&mut value);
        let team = team.unwrap_or_else(|| {
            faults.push(format!("{} is missing; it is the team's id", names[2]));
            String::new()
        });
        let mut key = |name: &str, key: Option<String>| {
            let verifier = Verifier::from_base64(&key?);
            if verifier.is_none() {
                faults.push(format!("{name} must be an Ed25519 public key, 32 bytes in base64"));
            }
            verifier
        };
        let (access_key, control_key) = (key(names[3], access), key(names[8], control));
        let mut number = |name: &str, value: Option<String>, default: u16| {
            value.map_or(default, |value| {
                value.parse().unwrap_or_else(|_| {
                    faults.push(format!("{name} must be a number, 0 to 65535"));
                    default
                })
            })
        };
        let (port, grace) = (number(names[4], port, slipway_api::worker::PORT), number(names[5], grace, 25));
        let log_level = level.map_or(LevelFilter::INFO, |level| {
            level.parse().unwrap_or_else(|_| {
                faults.push(format!("{} must be one of error, warn, info, debug, trace", names[6]));
                LevelFilter::INFO
            })
        });
        let log_format = match format.as_deref() {
            None | Some("json") => Format::Json,
            Some("human") => Format::Human,
            Some(_) => {
                faults.push(format!("{} must be json or human", names[7]));
                Format::Json
            }
        };
        let grace = Duration::from_secs(u64::from(grace.max(1)));
        let database = url.map(|url| Database { url, sslmode });
        let settings = Self { port, log_level, log_format, team, database, access_key, control_key, grace };
        (settings, Refusal(faults))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Settings, Refusal) {
        Settings::read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)))
    }

    const GOOD: [(&str, &str); 2] = [("SLIPWAY_KNOWLEDGE_URL", "postgresql://u:hunter2@db/k"), ("RUNTIME_TEAM", "tk_a")];

    #[test]
    fn the_team_suffices_and_a_database_makes_knowledge_bases() {
        for (variables, has_database) in [(&GOOD[..], true), (&GOOD[1..], false)] {
            let (settings, refusal) = read(variables);
            assert!(refusal.is_empty(), "{refusal}");
            assert_eq!((settings.port, settings.grace, &*settings.team), (8000, Duration::from_secs(25), "tk_a"));
            assert!(settings.access_key.is_none() && settings.control_key.is_none());
            assert_eq!(settings.database.is_some(), has_database);
        }
    }

    #[test]
    fn every_fault_is_told_and_no_value() {
        let (_, refusal) = read(&[
            ("RUNTIME_ACCESS_PUBLIC_KEY", "hunter2"),
            ("RUNTIME_CONTROL_PUBLIC_KEY", "hunter2"),
            ("RUNTIME_PORT", "x"),
            ("RUNTIME_LOG_LEVEL", "loud"),
            ("RUNTIME_LOG_FORMAT", "xml"),
        ]);
        assert_eq!(refusal.0.len(), 6, "{refusal}");
        for name in [
            "RUNTIME_TEAM",
            "RUNTIME_ACCESS_PUBLIC_KEY",
            "RUNTIME_CONTROL_PUBLIC_KEY",
            "RUNTIME_PORT",
            "RUNTIME_LOG_LEVEL",
            "RUNTIME_LOG_FORMAT",
        ] {
            assert!(refusal.to_string().contains(name), "{name}: {refusal}");
        }
        assert!(!refusal.to_string().contains("hunter2"), "{refusal}");
    }
}
