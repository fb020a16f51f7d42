//! Events: what happened, and when, for `kubectl describe` and `kubectl get events`.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

/// An Event's note may have this many bytes.
const NOTE_MAX: usize = 1024;

#[derive(Clone)]
pub struct Events(Recorder);

/// Something worth telling.
#[derive(Debug, Clone)]
pub struct Happening {
    pub warning: bool,
    pub reason: String,
    pub action: &'static str,
    pub note: String,
}

impl Events {
    pub fn new(client: Client, instance: Option<String>) -> Self {
        Self(Recorder::new(client, Reporter { controller: "slipway-manager".to_owned(), instance }))
    }

    /// Publishes, and does not fail: an Event that is lost must not keep an agent from running.
    pub async fn publish(&self, about: &ObjectReference, happening: Happening) {
        let event = Event {
            type_: if happening.warning { EventType::Warning } else { EventType::Normal },
            reason: happening.reason,
            note: Some(cut(happening.note)),
            action: happening.action.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.0.publish(&event, about).await {
            tracing::warn!(%error, reason = event.reason, "an Event could not be published");
        }
    }
}

fn cut(mut note: String) -> String {
    if note.len() > NOTE_MAX {
        let end = (0..=NOTE_MAX - 3).rev().find(|at| note.is_char_boundary(*at)).unwrap_or(0);
        note.truncate(end);
        note.push('…');
    }
    note
}

#[cfg(test)]
mod tests {
    #[test]
    fn long_notes_are_cut_between_characters() {
        let cut = super::cut("é".repeat(1000));
        assert!(cut.len() <= 1024 && cut.ends_with('…'));
        assert_eq!(super::cut("short".to_owned()), "short");
    }
}
