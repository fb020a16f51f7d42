//! Events: what happened, and when, for `kubectl describe` and `kubectl get events`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as Record;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use serde_json::Value;
use sha2::{Digest, Sha256};
use slipway_api::labels;

/// An Event's note may have this many bytes.
const NOTE_MAX: usize = 1024;

/// How long is waited after each attempt to publish one.
const PAUSES: [Duration; 3] = [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1200)];

/// Who reports.
const CONTROLLER: &str = "slipway-manager";

#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    client: Client,
    instance: String,
}

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
        let reporter = Reporter { controller: CONTROLLER.to_owned(), instance: instance.clone() };
        let instance = instance.unwrap_or_else(|| CONTROLLER.to_owned());
        Self { recorder: Recorder::new(client.clone(), reporter), client, instance }
    }

    /// Publishes, with more about it as JSON. What happened is known by `which`: told again, it is no second Event.
    pub async fn publish_once(&self, about: &ObjectReference, happening: Happening, payload: &Value, which: &[&str]) {
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let record = self.record(about, namespace, happening, payload, which);
        let (api, params) = (Api::<Record>::namespaced(self.client.clone(), namespace), PostParams::default());
        match insist(|| api.create(&params, &record)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => tracing::warn!(%error, reason = record.reason, "an Event could not be published"),
        }
    }

    fn record(&self, about: &ObjectReference, namespace: &str, happening: Happening, payload: &Value, which: &[&str]) -> Record {
        let told = serde_json::json!([about.uid, happening.reason, which]).to_string();
        let (name, hash) = (about.name.as_deref().unwrap_or_default(), hex::encode(Sha256::digest(told)));
        Record {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{}", &hash[..16])),
                namespace: Some(namespace.to_owned()),
                annotations: Some(BTreeMap::from([(labels::PAYLOAD.to_owned(), payload.to_string())])),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(Timestamp::now())),
            type_: Some(if happening.warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(happening.reason),
            note: Some(cut(happening.note)),
            action: Some(happening.action.to_owned()),
            regarding: Some(about.clone()),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(cut_to(self.instance.clone(), 128)),
            ..Record::default()
        }
    }

    /// Publishes, and does not fail: an Event that is lost in the end must not keep an agent from running.
    pub async fn publish(&self, about: &ObjectReference, happening: Happening) {
        let event = Event {
            type_: if happening.warning { EventType::Warning } else { EventType::Normal },
            reason: happening.reason,
            note: Some(cut(happening.note)),
            action: happening.action.to_owned(),
            secondary: None,
        };
        if let Err(error) = insist(|| self.recorder.publish(&event, about)).await {
            tracing::warn!(%error, reason = event.reason, "an Event could not be published");
        }
    }
}

/// Tries again where the API server could not, which is seldom for long.
async fn insist<T, F: Future<Output = Result<T, kube::Error>>>(attempt: impl Fn() -> F) -> Result<T, kube::Error> {
    for pause in PAUSES {
        match attempt().await {
            Err(kube::Error::Api(status)) if status.code != 429 && status.code < 500 => return Err(kube::Error::Api(status)),
            Err(_) => tokio::time::sleep(pause).await,
            done => return done,
        }
    }
    attempt().await
}

fn cut(note: String) -> String {
    cut_to(note, NOTE_MAX)
}

fn cut_to(mut note: String, most: usize) -> String {
    if note.len() > most {
        let end = (0..=most - 3).rev().find(|at| note.is_char_boundary(*at)).unwrap_or(0);
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
