//! The keys for signing requests: from the environment, or short-lived ones of the role of the pod's ServiceAccount, which are
//! cached and renewed before they expire.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;

use super::container::Container;
use super::sign::AwsKeys;
use super::web_identity::WebIdentity;
use crate::fault::{FaultKind, ModelFault};
use crate::provider_settings::{self, Variables};

const ID_VARIABLE: &str = "AWS_ACCESS_KEY_ID";
const SECRET_VARIABLE: &str = "AWS_SECRET_ACCESS_KEY";
const SESSION_VARIABLE: &str = "AWS_SESSION_TOKEN";
/// Keys are renewed this long before they expire.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_mins(5);
/// The pause after a failed renewal, while the old keys are valid.
const RETRY_INTERVAL: SignedDuration = SignedDuration::from_secs(30);

pub(crate) enum AwsCredentials {
    Fixed(Arc<AwsKeys>),
    Renewed(Box<RenewedKeys>),
}

pub(crate) struct RenewedKeys {
    source: KeySource,
    kept: Mutex<Option<CachedKeys>>,
}

enum KeySource {
    WebIdentity(WebIdentity),
    Container(Container),
}

struct CachedKeys {
    keys: Arc<AwsKeys>,
    renewal: Timestamp,
    expires: Timestamp,
}

impl AwsCredentials {
    /// The first configured source, in the order of AWS's own libraries.
    pub(crate) fn of(variables: Variables<'_>) -> Result<Option<Self>, ModelFault> {
        let value = |name| provider_settings::first(variables, &[name]).map(|(_, value)| value);
        let source = match (value(ID_VARIABLE), value(SECRET_VARIABLE)) {
            (Some(id), Some(secret)) => return Ok(Some(Self::Fixed(Arc::new(AwsKeys { id, secret, session: value(SESSION_VARIABLE) })))),
            (Some(_), None) => return Err(half(ID_VARIABLE, SECRET_VARIABLE)),
            (None, Some(_)) => return Err(half(SECRET_VARIABLE, ID_VARIABLE)),
            (None, None) => match WebIdentity::of(variables)? {
                Some(identity) => Some(KeySource::WebIdentity(identity)),
                None => Container::of(variables)?.map(KeySource::Container),
            },
        };
        Ok(source.map(|source| Self::Renewed(Box::new(RenewedKeys { source, kept: Mutex::new(None) }))))
    }

    pub(crate) async fn keys(&self) -> Result<Arc<AwsKeys>, ModelFault> {
        match self {
            Self::Fixed(keys) => Ok(Arc::clone(keys)),
            Self::Renewed(renewed) => renewed.keys().await,
        }
    }
}

impl RenewedKeys {
    async fn keys(&self) -> Result<Arc<AwsKeys>, ModelFault> {
        // The lock is held while keys are fetched, so that concurrent requests fetch them once.
        let mut kept = self.kept.lock().await;
        let now = Timestamp::now();
        if let Some(kept) = &*kept
            && now < kept.renewal
        {
            return Ok(Arc::clone(&kept.keys));
        }
        match (self.source.keys().await, &mut *kept) {
            (Ok((keys, expires)), kept) => {
                let keys = Arc::new(keys);
                *kept =
                    Some(CachedKeys { keys: Arc::clone(&keys), renewal: expires.saturating_sub(RENEW_BEFORE).unwrap_or(expires), expires });
                Ok(keys)
            }
            (Err(fault), Some(kept)) if now < kept.expires => {
                tracing::warn!(%fault, "the keys for AWS could not be renewed, and the old ones are used until they expire");
                kept.renewal = now.saturating_add(RETRY_INTERVAL).unwrap_or(now).min(kept.expires);
                Ok(Arc::clone(&kept.keys))
            }
            (Err(fault), _) => Err(fault),
        }
    }
}

impl KeySource {
    async fn keys(&self) -> Result<(AwsKeys, Timestamp), ModelFault> {
        match self {
            Self::WebIdentity(identity) => identity.keys().await,
            Self::Container(container) => container.keys().await,
        }
    }
}

/// The fault if only one of two variables is set that belong together.
pub(super) fn half(set: &str, missing: &str) -> ModelFault {
    ModelFault::new(FaultKind::Misconfigured, format!("{set} is set, and {missing} is not; the one means nothing without the other"))
}

/// Reads a rotated token from its file.
pub(super) fn read(variable: &str, path: &str) -> Result<String, ModelFault> {
    let unusable = |why: &str| ModelFault::new(FaultKind::MissingKey, format!("the file of {variable}, {path}, {why}"));
    let text = std::fs::read_to_string(path).map_err(|error| unusable(&format!("cannot be read: {error}")))?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_control) {
        return Err(unusable("holds no token"));
    }
    Ok(token.to_owned())
}

/// The keys in a service's answer.
pub(super) fn issued(by: &str, mut field: impl FnMut(&str) -> Option<String>, session: &str) -> Result<(AwsKeys, Timestamp), ModelFault> {
    let mut needed = |name: &str| {
        let value = field(name).filter(|value| !value.is_empty());
        value.ok_or_else(|| ModelFault::new(FaultKind::Broken, format!("{by} answered without {name}")))
    };
    let keys = AwsKeys { id: needed("AccessKeyId")?, secret: needed("SecretAccessKey")?, session: Some(needed(session)?) };
    let expires = needed("Expiration")?.parse();
    Ok((keys, expires.map_err(|_| ModelFault::new(FaultKind::Broken, format!("{by} answered with an Expiration that is no time")))?))
}
