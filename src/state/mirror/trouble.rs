//! Why a push failed. English messages of git are classified here; an unknown message is passed on.

use std::time::Duration;

use slipway_egress::ResolveError;
use thiserror::Error;

use crate::git::{Finished, GitFault};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Trouble {
    #[error(
        "the remote's branch {branch} is at {}, which is not in our history; ours is at {ours}. Nothing was overwritten. If it is \
         not wanted there, delete or rename the branch at the remote, and ours is pushed anew; or configure another branch. If our \
         volume was lost and this branch is the later history, stop the platform and restore the volume from it",
        .theirs.as_deref().unwrap_or("an unknown commit")
    )]
    Diverged { branch: String, ours: String, theirs: Option<String> },
    #[error("{0}")]
    Forbidden(String),
    #[error("the remote does not take our credentials, or they give no right to write: {0}")]
    Credentials(String),
    #[error("the remote has not the host key that is configured; somebody may be posing as it: {0}")]
    HostKey(String),
    #[error("the remote's certificate is not trusted: {0}")]
    Certificate(String),
    #[error("the remote redirects elsewhere, which is not followed; configure the URL that it leads to: {0}")]
    Redirected(String),
    #[error("the remote has no repository there: {0}")]
    Missing(String),
    #[error("the remote refused the commits: {0}")]
    Declined(String),
    #[error("the remote cannot be reached: {0}")]
    Unreachable(String),
    #[error("git: {0}")]
    Git(#[from] GitFault),
    #[error("git failed: {0}")]
    Other(String),
}

impl From<ResolveError> for Trouble {
    fn from(fault: ResolveError) -> Self {
        match fault {
            ResolveError::Blocked(blocked) => Self::Forbidden(blocked.to_string()),
            no_address @ ResolveError::NoAddress { .. } => Self::Unreachable(no_address.to_string()),
        }
    }
}

type Kind = fn(String) -> Trouble;

/// Messages of git, its HTTP client and ssh, in the order in which they are matched.
const MESSAGES: [(&str, Kind); 32] = [
    ("host key verification failed", Trouble::HostKey),
    ("remote host identification has changed", Trouble::HostKey),
    ("no matching host key", Trouble::HostKey),
    ("permission denied (", Trouble::Credentials),
    ("load key", Trouble::Credentials),
    ("too many authentication failures", Trouble::Credentials),
    ("authentication failed", Trouble::Credentials),
    ("could not read username", Trouble::Credentials),
    ("could not read password", Trouble::Credentials),
    ("returned error: 401", Trouble::Credentials),
    ("returned error: 403", Trouble::Credentials),
    ("returned error: 30", Trouble::Redirected),
    ("http code = 30", Trouble::Redirected),
    ("unable to update url base from redirection", Trouble::Redirected),
    ("certificate", Trouble::Certificate),
    ("ssl: no alternative", Trouble::Certificate),
    ("repository not found", Trouble::Missing),
    ("not found", Trouble::Missing),
    ("returned error: 404", Trouble::Missing),
    ("does not appear to be a git repository", Trouble::Missing),
    ("not a git repository", Trouble::Missing),
    ("could not resolve", Trouble::Unreachable),
    ("failed to connect", Trouble::Unreachable),
    ("couldn't connect", Trouble::Unreachable),
    ("connection refused", Trouble::Unreachable),
    ("connection timed out", Trouble::Unreachable),
    ("connection reset", Trouble::Unreachable),
    ("connection closed", Trouble::Unreachable),
    ("no route to host", Trouble::Unreachable),
    ("operation too slow", Trouble::Unreachable),
    ("returned error: 5", Trouble::Unreachable),
    ("early eof", Trouble::Unreachable),
];

/// Classifies the output of a failed git.
pub(super) fn meant(finished: &Finished) -> Trouble {
    let said = finished.stderr.line();
    let lower = said.to_lowercase();
    let known = MESSAGES.iter().find(|(saying, _)| lower.contains(saying));
    let said = if said.is_empty() { format!("{} without a word", finished.status) } else { said };
    known.map_or_else(|| Trouble::Other(said.clone()), |(_, kind)| kind(said.clone()))
}

/// Exponential backoff of at most five minutes, with a jitter that depends on the namespace alone.
pub(super) fn pause(namespace: &str, failures: u32) -> Duration {
    const MAX_BACKOFF_MS: u64 = 300_000;
    let base = 1000_u64.checked_shl(failures.saturating_sub(1).min(20)).unwrap_or(MAX_BACKOFF_MS).min(MAX_BACKOFF_MS);
    // FNV-1a.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = namespace.bytes().chain(failures.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, mix);
    Duration::from_millis(base - base / 4 + (hash >> 32) % (base / 4 + 1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;
    use crate::git::Scrubbed;

    #[test]
    fn what_git_says_is_understood() {
        for (said, expected) in [
            ("fatal: unable to access 'https://h/': Could not resolve host: h", "the remote cannot be reached"),
            ("fatal: could not read Username for 'https://h': terminal prompts disabled", "does not take our credentials"),
            (
                "remote: denied\nfatal: unable to access 'https://h/': The requested URL returned error: 403",
                "does not take our credentials",
            ),
            ("git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.", "does not take our credentials"),
            ("Host key verification failed.\nfatal: Could not read from remote repository.", "host key"),
            ("fatal: unable to access 'https://h/': The requested URL returned error: 302", "redirects elsewhere"),
            ("fatal: repository 'https://h/' not found", "has no repository there"),
            ("fatal: unable to access 'https://h/': The requested URL returned error: 502", "cannot be reached"),
            ("error: something new", "git failed: error: something new"),
            ("", "git failed: exit status: 1 without a word"),
        ] {
            let finished = Finished {
                status: ExitStatus::from_raw(256),
                stdout: Scrubbed::new(b"", &[]),
                stderr: Scrubbed::new(said.as_bytes(), &[]),
            };
            let words = meant(&finished).to_string();
            assert!(words.contains(expected), "{said}: {words}");
        }
    }

    #[test]
    fn pauses_grow_end_and_differ() {
        let mut longest = Duration::ZERO;
        for failures in 1..40 {
            let pause = pause("team-a", failures);
            assert_eq!(pause, super::pause("team-a", failures), "it depends on nothing else");
            assert!(pause <= Duration::from_mins(5) && pause >= Duration::from_millis(750), "{failures}: {pause:?}");
            assert!(failures > 9 || pause > longest, "{failures}: {pause:?}");
            longest = longest.max(pause);
        }
        assert!(longest > Duration::from_secs(225));
        let many: BTreeSet<Duration> = (0..100).map(|n| pause(&format!("team-{n}"), 5)).collect();
        assert!(many.len() > 90, "{} of 100 differ", many.len());
    }
}
