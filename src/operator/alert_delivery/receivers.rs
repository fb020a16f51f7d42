//! The integrations that alerts are sent to, from the caches alone.

use std::sync::Arc;

use kube::Resource;
use slipway_api::Integration;
use slipway_api::integration::{AlertSubscription, IntegrationType};
use slipway_cluster::{Guarded, Key};

use crate::caches::Caches;

/// An Integration that asks for alerts.
#[derive(Clone)]
pub(crate) struct AlertReceiver {
    pub key: Key,
    pub uid: String,
    pub kind: IntegrationType,
    object: Arc<Guarded<Integration>>,
}

/// What a message that was refused waits for: another spec, another login, or another host that the login is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReceiverState {
    key: Key,
    generation: Option<i64>,
    secret: Option<[u8; 32]>,
    origin: Option<String>,
}

impl AlertReceiver {
    pub(crate) fn integration(&self) -> Option<&Integration> {
        self.object.0.as_ref().ok()
    }

    pub(crate) fn alerts(&self) -> Option<&AlertSubscription> {
        self.integration()?.spec.alerts.as_ref()
    }

    pub(super) fn state(&self, caches: &Caches) -> ReceiverState {
        let integration = self.integration();
        let secret = integration.and_then(|integration| integration.spec.secret(&self.key.name));
        let secret = secret.and_then(|name| caches.secrets.get(&Key::new(self.key.namespace.clone(), name)));
        let status = integration.and_then(|integration| integration.status.as_ref());
        ReceiverState {
            key: self.key.clone(),
            generation: self.object.meta().generation,
            secret: secret.map(|secret| secret.hash),
            origin: status.and_then(|status| status.origin.clone()),
        }
    }

    /// Whether the Integration is still the one that is meant, and says the same.
    pub(super) fn is_current(&self, caches: &Caches) -> bool {
        caches
            .integrations
            .get(&self.key)
            .is_some_and(|found| found.meta().uid.as_ref() == Some(&self.uid) && found.meta().generation == self.object.meta().generation)
    }
}

impl ReceiverState {
    /// Whether the Integration of this UID is gone, and not only without alerts.
    pub(super) fn is_gone(&self, uid: &str, caches: &Caches) -> bool {
        caches.integrations.get(&self.key).is_none_or(|found| found.meta().uid.as_deref() != Some(uid))
    }
}

/// In the order of keys.
pub(crate) fn receivers(caches: &Caches) -> Vec<AlertReceiver> {
    let mut keys = caches.integrations.keys();
    keys.sort();
    let of = |key: Key| {
        let object = caches.integrations.get(&key)?;
        let integration = object.0.as_ref().ok()?;
        let is_meant = integration.spec.alerts.is_some() && integration.metadata.deletion_timestamp.is_none();
        let kind = integration.spec.kind().filter(|kind| is_meant && matches!(kind, IntegrationType::Webhook | IntegrationType::Slack))?;
        let uid = integration.metadata.uid.clone()?;
        Some(AlertReceiver { key, uid, kind, object })
    };
    keys.into_iter().filter_map(of).collect()
}
