//! What came of a request: a reason, in one word, and a sentence. The one place that has the words for what all servers do.

use slipway_egress::Blocked;

/// Why an integration is not connected: the reason of its condition Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Connected,
    Unreachable,
    TimedOut,
    Unauthorized,
    /// A path, a bucket or a model.
    NotFound,
    AddressNotAllowed,
    /// Something else answers.
    Unexpected,
    SecretKeyMissing,
    /// What is written in the spec or in the Secret cannot be used.
    Invalid,
}

impl Reason {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "Connected",
            Self::Unreachable => "Unreachable",
            Self::TimedOut => "TimedOut",
            Self::Unauthorized => "Unauthorized",
            Self::NotFound => "NotFound",
            Self::AddressNotAllowed => "AddressNotAllowed",
            Self::Unexpected => "Unexpected",
            Self::SecretKeyMissing => "SecretKeyMissing",
            Self::Invalid => "Invalid",
        }
    }
}

/// Why a connection failed, or a message was not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionFault {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// What is asked, for words about answers that refuse it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// As in "a Prometheus server".
    pub(crate) server: &'a str,
    /// What is not there where the answer is 404. None: then it is another server.
    pub(crate) missing: Option<&'a str>,
    pub(crate) has_login: bool,
}

impl ConnectionFault {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    pub(crate) fn late(place: &str) -> Self {
        Self::new(Reason::TimedOut, format!("{place} did not answer within {} s", crate::LIMIT.as_secs()))
    }

    pub(crate) fn blocked(blocked: &Blocked) -> Self {
        // A URL that nobody can connect to is no matter of addresses.
        let is_address = matches!(blocked, Blocked::Address { .. } | Blocked::Name { .. });
        Self::new(if is_address { Reason::AddressNotAllowed } else { Reason::Invalid }, blocked.to_string())
    }

    /// Where no answer came, the network of the worker may be why.
    pub(crate) fn seen_by_worker(mut self) -> Self {
        if matches!(self.reason, Reason::Unreachable | Reason::TimedOut) {
            self.message.push_str(" (from the team's worker; chart value worker.egress)");
        }
        self
    }

    /// Something else answers, as the body shows.
    pub(crate) fn other(place: &str, server: &str) -> Self {
        Self::new(Reason::Unexpected, format!("{place} answers, but not as {server} does"))
    }

    /// An answer that is no success.
    pub(crate) fn refused(place: &str, status: u16, subject: Subject<'_>) -> Self {
        let Subject { server, missing, has_login } = subject;
        match (status, missing) {
            (401 | 403, _) if has_login => Self::new(Reason::Unauthorized, format!("{place} refuses the credentials (status {status})")),
            (401 | 403, _) => Self::new(Reason::Unauthorized, format!("{place} asks for credentials (status {status})")),
            (404 | 405 | 410, Some(missing)) => Self::new(Reason::NotFound, format!("{missing} ({place} answers with status {status})")),
            (404 | 405 | 410, None) => {
                Self::new(Reason::Unexpected, format!("{place} answers, but not as {server} does (status {status})"))
            }
            (300..=399, _) => Self::new(Reason::Unexpected, format!("{place} redirects to another place, which is not followed")),
            (408 | 425 | 429 | 500..=599, _) => Self::new(Reason::Unreachable, format!("{place} answers with status {status}")),
            _ => Self::new(Reason::Unexpected, format!("{place} answers with status {status}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_a_reason_and_words() {
        let place = "https://a.example";
        for (status, missing, has_login, reason, words) in [
            (401, None, true, Reason::Unauthorized, "https://a.example refuses the credentials (status 401)"),
            (403, Some("x"), false, Reason::Unauthorized, "https://a.example asks for credentials (status 403)"),
            (404, Some("there is no model x"), true, Reason::NotFound, "there is no model x (https://a.example answers with status 404)"),
            (404, None, true, Reason::Unexpected, "https://a.example answers, but not as a test does (status 404)"),
            (302, None, true, Reason::Unexpected, "https://a.example redirects to another place, which is not followed"),
            (429, None, true, Reason::Unreachable, "https://a.example answers with status 429"),
            (503, Some("x"), true, Reason::Unreachable, "https://a.example answers with status 503"),
            (418, None, true, Reason::Unexpected, "https://a.example answers with status 418"),
        ] {
            let fault = ConnectionFault::refused(place, status, Subject { server: "a test", missing, has_login });
            assert_eq!((fault.reason, &*fault.message), (reason, words), "{status}");
        }
        assert!(ConnectionFault::late(place).seen_by_worker().message.ends_with("chart value worker.egress)"));
        assert_eq!(ConnectionFault::other(place, "a test").seen_by_worker().message, "https://a.example answers, but not as a test does");
    }
}
