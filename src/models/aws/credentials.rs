//! The keys that requests are signed with: those of the environment, or short-lived ones of the role
//! that the pod's service account stands for. The latter are kept and renewed before they expire.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;

use super::container::Container;
use super::sign::Keys;
use super::web_identity::WebIdentity;
use crate::fault::{Fault, FaultKind};
use crate::settings::{self, Variables};

const ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const SESSION: &str = "AWS_SESSION_TOKEN";
/// Keys are renewed this long before they expire.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_mins(5);
/// The pause after a failed renewal, while the old keys are valid.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(30);

pub(crate) enum Credentials {
    Fixed(Arc<Keys>),
    Renewed(Box<Renewed>),
}

pub(crate) struct Renewed {
    source: Source,
    kept: Mutex<Option<Kept>>,
}

enum Source {
    WebIdentity(WebIdentity),
    Container(Container),
}

struct Kept {
    keys: Arc<Keys>,
    renewal: Timestamp,
    expires: Timestamp,
}

impl Credentials {
    /// In the order of AWS's own libraries. None where nothing is said of any.
    pub(crate) fn of(variables: Variables<'_>) -> Result<Option<Self>, Fault> {
        let value = |name| settings::first(variables, &[name]).map(|(_, value)| value);
        let source = match (value(ID), value(SECRET)) {
            (Some(id), Some(secret)) => return Ok(Some(Self::Fixed(Arc::new(Keys { id, secret, session: value(SESSION) })))),
            (Some(_), None) => return Err(half(ID, SECRET)),
            (None, Some(_)) => return Err(half(SECRET, ID)),
            (None, None) => match WebIdentity::of(variables)? {
                Some(identity) => Some(Source::WebIdentity(identity)),
                None => Container::of(variables)?.map(Source::Container),
            },
        };
        Ok(source.map(|source| Self::Renewed(Box::new(Renewed { source, kept: Mutex::new(None) }))))
    }

    pub(crate) async fn keys(&self) -> Result<Arc<Keys>, Fault> {
        match self {
            Self::Fixed(keys) => Ok(Arc::clone(keys)),
            Self::Renewed(renewed) => renewed.keys().await,
        }
    }
}

impl Renewed {
    async fn keys(&self) -> Result<Arc<Keys>, Fault> {
        // Held while keys are fetched, so that many requests at once fetch them once.
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
                *kept = Some(Kept { keys: Arc::clone(&keys), renewal: expires.saturating_sub(RENEW_BEFORE).unwrap_or(expires), expires });
                Ok(keys)
            }
            (Err(fault), Some(kept)) if now < kept.expires => {
                tracing::warn!(%fault, "the keys for AWS could not be renewed, and the old ones are used until they expire");
                kept.renewal = now.saturating_add(RETRY_AFTER).unwrap_or(now).min(kept.expires);
                Ok(Arc::clone(&kept.keys))
            }
            (Err(fault), _) => Err(fault),
        }
    }
}

impl Source {
    async fn keys(&self) -> Result<(Keys, Timestamp), Fault> {
        match self {
            Self::WebIdentity(identity) => identity.keys().await,
            Self::Container(container) => container.keys().await,
        }
    }
}

/// Two variables of which neither says anything alone.
pub(super) fn half(set: &str, missing: &str) -> Fault {
    Fault::new(FaultKind::Misconfigured, format!("{set} is set, and {missing} is not; the one means nothing without the other"))
}

/// A token that is replaced from time to time in a file.
pub(super) fn read(variable: &str, path: &str) -> Result<String, Fault> {
    let unusable = |why: &str| Fault::new(FaultKind::MissingKey, format!("the file of {variable}, {path}, {why}"));
    let text = std::fs::read_to_string(path).map_err(|error| unusable(&format!("cannot be read: {error}")))?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_control) {
        return Err(unusable("holds no token"));
    }
    Ok(token.to_owned())
}

/// The keys that a service answered with.
pub(super) fn issued(by: &str, mut field: impl FnMut(&str) -> Option<String>, session: &str) -> Result<(Keys, Timestamp), Fault> {
    let mut needed = |name: &str| {
        let value = field(name).filter(|value| !value.is_empty());
        value.ok_or_else(|| Fault::new(FaultKind::Broken, format!("{by} answered without {name}")))
    };
    let keys = Keys { id: needed("AccessKeyId")?, secret: needed("SecretAccessKey")?, session: Some(needed(session)?) };
    let expires = needed("Expiration")?.parse();
    Ok((keys, expires.map_err(|_| Fault::new(FaultKind::Broken, format!("{by} answered with an Expiration that is no time")))?))
}
