//! What went wrong, by what a caller can do about it. No words in here hold a password, a URL or what
//! anybody said: they go to logs and to clients.

use sqlx::Error;
use thiserror::Error as ThisError;

#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Fault {
    /// Not now: the server cannot be reached, is too busy, or has not been migrated yet. 503 with `Retry-After`.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// Another turn of this conversation is under way, or has taken this one's place. 409.
    #[error("an answer is already being made for this conversation")]
    Busy,
    /// What was asked cannot be done, now or later. 400.
    #[error("{0}")]
    Refused(String),
    /// There is no room for it until something else goes or a quota is raised. 409.
    #[error("{0}")]
    Full(String),
    /// A fault of ours, or a schema that is not ours. 500.
    #[error("the database refused what it should not have: {0}")]
    Broken(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Database(error) => database(error.code().as_deref().unwrap_or_default(), error.message()),
            Error::PoolTimedOut => Self::Unavailable(format!("no connection within {} s", crate::pool::ACQUIRE.as_secs())),
            Error::PoolClosed | Error::WorkerCrashed => Self::Unavailable("this process is ending".to_owned()),
            Error::Io(error) => Self::Unavailable(error.to_string()),
            // A TLS error's own words are often only "handshake failed"; what lies beneath says why.
            Error::Tls(error) => Self::Unavailable(match error.source() {
                Some(source) => format!("TLS: {error}: {source}"),
                None => format!("TLS: {error}"),
            }),
            // Bytes that end in the middle of a message: the server went away.
            Error::Protocol(words) => Self::Unavailable(format!("the connection broke: {words}")),
            Error::BeginFailed => Self::Unavailable("no transaction could begin".to_owned()),
            // The words of the others may quote values.
            Error::ColumnDecode { index, .. } => Self::Broken(format!("column {index} cannot be read")),
            Error::ColumnNotFound(name) => Self::Broken(format!("column {name} is missing")),
            Error::RowNotFound => Self::Broken("a row was expected and none came".to_owned()),
            Error::Configuration(_) => Self::Refused("the database's settings cannot be used".to_owned()),
            _ => Self::Broken("an unexpected fault of the driver".to_owned()),
        }
    }
}

/// By SQLSTATE, see PostgreSQL's appendix A. A message quotes names of the schema, never values, which are in the
/// detail; but for the classes 22 and 23, whose messages may quote what was sent.
fn database(code: &str, message: &str) -> Fault {
    match code {
        "57014" => Fault::Unavailable("a statement took too long and was ended".to_owned()),
        "3D000" => Fault::Unavailable("the server has no database of that name".to_owned()),
        "28P01" | "28000" => Fault::Unavailable("the server refused the login".to_owned()),
        "3F000" | "42P01" | "42883" => Fault::Unavailable("the schema is missing or too old; the manager makes it".to_owned()),
        "26000" | "42P05" => not_prepared(),
        // Another statement has the name. With other words, 08P01 is any fault of a pooler.
        "08P01" if message.starts_with("bind message supplies") => not_prepared(),
        // Said by functions of our own, in words for their callers.
        "SK404" | "SK409" | "SK410" => Fault::Refused(message.to_owned()),
        "SK413" => Fault::Full(message.to_owned()),
        "SK503" => Fault::Unavailable(message.to_owned()),
        "42501" => Fault::Broken("this login may not do that".to_owned()),
        // A standby that was promoted, or one that never was: the next connection may reach the right one.
        "25006" => Fault::Unavailable("this server only lets read".to_owned()),
        _ => match code.get(..2) {
            // Connection, out of resources, operator intervention, I/O error of the server, lock timeout, serialisation.
            Some("08" | "53" | "57" | "58" | "40") => Fault::Unavailable(message.to_owned()),
            Some("55") if code == "55P03" => Fault::Unavailable("a lock was not to be had".to_owned()),
            Some("22" | "23") => Fault::Broken(format!("SQLSTATE {code}")),
            _ => Fault::Broken(format!("{message} (SQLSTATE {code})")),
        },
    }
}

fn not_prepared() -> Fault {
    Fault::Broken(
        "a statement that was prepared is not there: what stands before the server keeps none; set database.preparedStatements to false"
            .to_owned(),
    )
}

/// Whether trying the very same again can help.
impl Fault {
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        for (code, passes) in [
            ("57P01", true),
            ("57P03", true),
            ("53300", true),
            ("08006", true),
            ("08P01", true),
            ("40P01", true),
            ("55P03", true),
            ("57014", true),
            ("28P01", true),
            ("42P01", true),
            ("23505", false),
            ("42501", false),
            ("42601", false),
            ("55006", false),
            ("", false),
        ] {
            assert_eq!(database(code, "words").is_passing(), passes, "{code}");
        }
    }

    #[test]
    fn values_are_not_quoted() {
        let fault = database("22P02", "invalid input syntax for type integer: \"my secret\"");
        assert!(!fault.to_string().contains("secret"), "{fault}");
    }
}
