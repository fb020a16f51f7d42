//! The next step of an Integration, pure: what keeps it from a test, which host its login is for, and whether a test is due.

#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use slipway_api::integration::{ANOTHER_HOST, BY_CHANGE, BY_INTERVAL, IntegrationStatus, IntegrationType};
use slipway_api::{Integration, labels};
use slipway_egress::{Blocked, Egress};
use url::Url;

use crate::caches::secret::{SecretState, keyed_hash};
use crate::fault::ConditionFault;

/// For how long an Integration and its Secret stay as they are before they are tested: what is applied together is tested once.
const QUIET: Duration = Duration::from_secs(2);
/// The least time between two tests of one Integration.
const BETWEEN: Duration = Duration::from_secs(1);
/// The pause after a test that nobody carried out. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_mins(5);
/// How many bytes of a hash a status has.
const HASH_BYTES: usize = 8;
const DIGEST_BYTES: usize = 16;

/// Why there is no word from a worker.
pub(super) const WORKER_UNAVAILABLE: &str = "WorkerUnavailable";

/// An Integration, and what is known of its surroundings.
pub(super) struct Seen<'a> {
    pub integration: &'a Integration,
    pub is_of_team: bool,
    /// Whether the Secrets of the namespace are known.
    pub secrets_known: bool,
    /// The Secret that the spec names, and the one that is the Integration's by its name.
    pub secret: Option<&'a SecretState>,
    pub own_secret: Option<&'a SecretState>,
    /// The PersistentVolumeClaim with the team's files.
    pub volume: Option<&'a str>,
    pub has_worker: bool,
    pub egress: &'a Egress,
    /// Of all that a test depends on, and for how long it has been this one.
    pub digest: &'a str,
    pub quiet: Duration,
    /// How long ago it was tested last.
    pub since_test: Option<Duration>,
    pub unanswered: Option<&'a Unanswered>,
    pub job: Job,
    /// How often it is tested by itself.
    pub interval: Option<Duration>,
    pub now: Timestamp,
}

/// Tests in a row that nobody carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unanswered {
    pub fault: ConditionFault,
    pub times: u32,
}

/// The Job of an Integration of type local.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    Absent,
    /// One of an earlier test.
    Earlier,
    /// The one of the test that is under way.
    Present,
}

/// What the status says of the login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LoginStatus {
    /// The keys that the Secret has, of those that the type looks for.
    pub keys: Vec<String>,
    /// A hash of `in-<name>`, and the host that it is for.
    pub credentials: Option<String>,
    pub origin: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IntegrationStep {
    /// The Secrets of the namespace are yet to be read, so that nothing can be said.
    Wait,
    /// It cannot be tested; after so long it is tried again, if that is known.
    Settle(ConditionFault, Option<Duration>),
    /// It is tested, or looked at again, after this while.
    Later(Duration),
    /// The worker is asked. The id goes into the status.
    Test {
        id: String,
    },
    /// The Job of an earlier test is to go.
    Clear,
    StartJob {
        id: String,
    },
    Watch,
    /// Nothing, until something changes or this while has passed.
    Rest {
        next: Option<Duration>,
    },
}

impl LoginStatus {
    /// Whether a status says the same.
    pub(super) fn is_noted(&self, status: &IntegrationStatus) -> bool {
        (&self.keys, &self.credentials, &self.origin) == (&status.credential_keys, &status.credentials, &status.origin)
    }
}

/// The pause after this many tests in a row that nobody carried out.
pub(super) fn pause(times: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << times.saturating_sub(1).min(16)).min(MAX_PAUSE)
}

/// A keyed hash of all that a test depends on.
pub(super) fn digest(
    key: &[u8],
    integration: &Integration,
    secret: Option<&SecretState>,
    volume: Option<&str>,
) -> Result<String, serde_json::Error> {
    let spec = serde_json::to_vec(&integration.spec.tested())?;
    let secret = secret.map(|secret| secret.hash.as_slice()).unwrap_or_default();
    let volume = volume.filter(|_| integration.spec.local.is_some()).unwrap_or_default();
    let pairs = [("spec", spec.as_slice()), ("secret", secret), ("volume", volume.as_bytes())];
    let hash = keyed_hash(key, pairs.into_iter().map(|(name, value)| (name.as_bytes(), value)));
    Ok(hex::encode(&hash[..DIGEST_BYTES]))
}

/// What is known of the login. The host that `in-<name>` is for is the one that this Secret says, or else stays what it was as long as
/// that Secret does, whatever the spec names in the meantime.
pub(super) fn login(seen: &Seen<'_>, before: &IntegrationStatus) -> LoginStatus {
    if !seen.secrets_known {
        let IntegrationStatus { credential_keys, credentials, origin, .. } = before;
        return LoginStatus { keys: credential_keys.clone(), credentials: credentials.clone(), origin: origin.clone() };
    }
    let spec = &seen.integration.spec;
    let fields = spec.kind().map(|kind| kind.info().credentials).unwrap_or_default();
    let is_looked_for = |key: &&String| fields.iter().any(|field| field.name == key.as_str());
    let keys = seen.secret.map(|secret| secret.keys.iter().filter(is_looked_for).cloned().collect()).unwrap_or_default();
    let Some(own) = seen.own_secret else { return LoginStatus { keys, ..LoginStatus::default() } };
    let credentials = Some(hex::encode(&own.hash[..HASH_BYTES]));
    let (is_used, is_known) = (seen.integration.uses_own_secret(), before.credentials == credentials);
    if own.origin.is_none() && !is_used && !is_known {
        return LoginStatus { keys, ..LoginStatus::default() };
    }
    let pinned = before.origin.clone().filter(|_| is_known);
    let first_seen = || spec.origin().filter(|_| is_used);
    // The writer of the login knows best which host it is for.
    LoginStatus { keys, credentials, origin: own.origin.clone().or(pinned).or_else(first_seen) }
}

fn name(integration: &Integration) -> &str {
    integration.metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn next(seen: &Seen<'_>, login: &LoginStatus, before: &IntegrationStatus) -> IntegrationStep {
    if seen.is_of_team && !seen.secrets_known {
        return IntegrationStep::Wait;
    }
    if let Some(fault) = obstacle(seen, login) {
        return IntegrationStep::Settle(fault, None);
    }
    let is_local = seen.integration.spec.kind() == Some(IntegrationType::Local);
    if is_local && seen.job == Job::Present {
        return IntegrationStep::Watch;
    }
    let (last, asked) = (before.last_test.as_ref(), seen.integration.asked_test());
    let is_asked = asked.is_some_and(|asked| last.is_none_or(|last| last.id != asked));
    let is_changed = last.is_none_or(|last| last.digest != seen.digest);
    if !is_asked && !is_changed {
        let passed = last.and_then(|last| last.at.as_ref()).map(|at| Duration::try_from(seen.now.duration_since(at.0)).unwrap_or_default());
        let left = seen.interval.map(|interval| passed.map_or(Duration::ZERO, |passed| interval.saturating_sub(passed)));
        if left.is_none_or(|left| !left.is_zero()) {
            return IntegrationStep::Rest { next: left };
        }
    }
    if !is_asked && let Some(step) = held_back(seen, is_changed) {
        return step;
    }
    if let Some(passed) = seen.since_test.filter(|passed| *passed < BETWEEN) {
        return IntegrationStep::Later(BETWEEN.saturating_sub(passed));
    }
    // The annotation stays, so that whatever is tested while it is there is an answer to it.
    let id = asked.unwrap_or(if is_changed { BY_CHANGE } else { BY_INTERVAL }).to_owned();
    match seen.job {
        Job::Earlier if is_local => IntegrationStep::Clear,
        _ if is_local => IntegrationStep::StartJob { id },
        _ if seen.has_worker => IntegrationStep::Test { id },
        _ => IntegrationStep::Settle(
            ConditionFault { reason: WORKER_UNAVAILABLE, message: "the team's worker is not ready".to_owned() },
            None,
        ),
    }
}

/// What a test that nobody asked for waits for: that nothing changes for a while, and the pause after one that came to nothing.
fn held_back(seen: &Seen<'_>, is_changed: bool) -> Option<IntegrationStep> {
    if is_changed && seen.quiet < QUIET {
        return Some(IntegrationStep::Later(QUIET.saturating_sub(seen.quiet)));
    }
    let unanswered = seen.unanswered?;
    let left = pause(unanswered.times).saturating_sub(seen.since_test?);
    (!left.is_zero()).then(|| IntegrationStep::Settle(unanswered.fault.clone(), Some(left)))
}

/// What keeps it from being tested until somebody changes something.
fn obstacle(seen: &Seen<'_>, login: &LoginStatus) -> Option<ConditionFault> {
    if !seen.is_of_team {
        let namespace = seen.integration.metadata.namespace.as_deref().unwrap_or_default();
        let message =
            format!("namespace {namespace} belongs to no Team; integrations are in namespaces named team-<slug> (kubectl get teams)");
        return Some(ConditionFault { reason: "NotATeamNamespace", message });
    }
    let Some(kind) = seen.integration.spec.kind() else {
        return Some(ConditionFault {
            reason: "Invalid",
            message: "spec: must have exactly one of the fields that say what it is".to_owned(),
        });
    };
    if kind == IntegrationType::Local && seen.volume.is_none() {
        let message = "spec.local: the Team names no volume with files in spec.knowledgeVolume".to_owned();
        return Some(ConditionFault { reason: "VolumeNotNamed", message });
    }
    refused_server(seen, kind).or_else(|| refused_login(seen, kind, login))
}

/// A server that is forbidden as it is written. What its name resolves to, the worker finds out.
fn refused_server(seen: &Seen<'_>, kind: IntegrationType) -> Option<ConditionFault> {
    let fault = |reason, what: String| Some(ConditionFault { reason, message: format!("spec.{}: {what}", kind.field()) });
    let url = match Url::parse(&seen.integration.spec.server()?) {
        Ok(url) => url,
        Err(error) => return fault("Invalid", format!("has a URL that cannot be read: {error}")),
    };
    match seen.egress.check(&url) {
        Ok(()) => None,
        Err(blocked @ Blocked::Url(_)) => fault("Invalid", blocked.to_string()),
        Err(blocked) => fault("AddressNotAllowed", blocked.to_string()),
    }
}

fn refused_login(seen: &Seen<'_>, kind: IntegrationType, login: &LoginStatus) -> Option<ConditionFault> {
    let (integration, spec) = (seen.integration, &seen.integration.spec);
    let secret = spec.secret(name(integration))?;
    let fault = |reason, what: String| Some(ConditionFault { reason, message: format!("credentialsSecret: Secret {secret} {what}") });
    let Some(state) = seen.secret else {
        let is_needed = kind.info().needs_login() || spec.credentials_secret.is_some();
        return if is_needed { fault("SecretMissing", "does not exist in this namespace".to_owned()) } else { None };
    };
    if !integration.owns(&secret) && !state.readable {
        let what = format!("lacks the label {}=true, without which integrations cannot use it", labels::AGENT_READABLE);
        return fault("SecretNotAllowed", what);
    }
    if let Some(missing) = kind.info().missing(&login.keys) {
        return fault("SecretKeyMissing", format!("lacks {missing}"));
    }
    let pinned = login.origin.as_ref().filter(|_| integration.owns(&secret))?;
    if spec.origin().as_ref() == Some(pinned) {
        return None;
    }
    fault(ANOTHER_HOST, format!("was written for {pinned}; write it anew, or name that host again"))
}
