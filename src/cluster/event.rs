//! Kubernetes Events, for `kubectl describe` and `kubectl get events`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use slipway_api::labels;
use tokio::sync::Semaphore;

/// The longest note that the API server accepts.
const MAX_NOTE_BYTES: usize = 1024;

/// The pauses between attempts to publish an Event.
const RETRY_PAUSES: [Duration; 3] = [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1200)];

/// The reporting controller.
const CONTROLLER: &str = "slipway-manager";

/// The Events sent at once. They are few, so that a thousand new agents are not kept waiting by what is said of them.
const MAX_SENDS: usize = 2;

/// The memory of the Events that wait to be sent, about. Beyond it, publishing waits.
const MAX_WAITING_BYTES: usize = 2 << 20;

/// The memory of a waiting Event besides its note, about: what it is about, its task, and what the allocator adds.
const EVENT_BYTES: usize = 1024;

/// The repeated Events whose count is remembered. Beyond it all counts start again.
const MAX_REPEATS: usize = 4096;

#[derive(Clone)]
pub struct Events {
    publisher: Arc<Publisher>,
    /// A permit for each byte that may wait to be sent.
    room: Arc<Semaphore>,
}

struct Publisher {
    client: Client,
    instance: String,
    /// The count of each Event that was published more than once, by name.
    repeats: Mutex<HashMap<String, i32>>,
    sends: Semaphore,
}

/// The content of an Event.
#[derive(Debug, Clone)]
pub struct EventSpec {
    pub warning: bool,
    pub reason: String,
    pub action: &'static str,
    pub note: String,
}

impl Events {
    pub fn new(client: Client, instance: Option<String>) -> Self {
        let instance = instance.unwrap_or_else(|| CONTROLLER.to_owned());
        let publisher = Publisher { client, instance, repeats: Mutex::default(), sends: Semaphore::new(MAX_SENDS) };
        Self { publisher: Arc::new(publisher), room: Arc::new(Semaphore::new(MAX_WAITING_BYTES)) }
    }

    /// Publishes an Event in the background, after those that were published before. Failures are logged and not returned,
    /// because a lost Event must not stop a reconcile. The same content published again updates the count and the time of the
    /// same Event.
    pub async fn publish(&self, about: &ObjectReference, mut event_spec: EventSpec) {
        event_spec.note = cut(event_spec.note);
        let bytes = permits(EVENT_BYTES + event_spec.note.len());
        let Ok(room) = self.room.clone().acquire_many_owned(bytes).await else { return };
        let (publisher, waiting) = (self.publisher.clone(), Box::new((about.clone(), event_spec, Timestamp::now())));
        tokio::spawn(async move {
            let _room = room;
            let Ok(_turn) = publisher.sends.acquire().await else { return };
            // The memory of an Event and its request is allocated for those alone that are sent now.
            Box::pin(publisher.send(*waiting)).await;
        });
    }

    /// Waits until all published Events have been sent, so that a process that ends loses none.
    pub async fn sent(&self) {
        drop(self.room.acquire_many(permits(MAX_WAITING_BYTES)).await);
    }

    /// Publishes an Event with a JSON payload. `which` identifies it: published again, it makes no second Event. Whether it is there.
    pub async fn publish_once(&self, about: &ObjectReference, event_spec: EventSpec, payload: &Value, which: &[&str]) -> bool {
        let event = self.publisher.event(about, event_spec, Timestamp::now(), Some(payload), which);
        self.publisher.make(&event).await.is_some()
    }
}

impl Publisher {
    async fn send(&self, (about, event_spec, at): (ObjectReference, EventSpec, Timestamp)) {
        let (action, note) = (event_spec.action, event_spec.note.clone());
        let event = self.event(&about, event_spec, at, None, &[action, &note]);
        if self.make(&event).await == Some(Created::Earlier) {
            self.repeat(&event).await;
        } else {
            self.repeats().remove(name(&event));
        }
    }

    fn api(&self, event: &Event) -> Api<Event> {
        Api::namespaced(self.client.clone(), event.metadata.namespace.as_deref().unwrap_or_default())
    }

    fn repeats(&self) -> MutexGuard<'_, HashMap<String, i32>> {
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates an Event, with retries while the API server is unavailable.
    async fn make(&self, event: &Event) -> Option<Created> {
        let (api, params) = (self.api(event), PostParams::default());
        let (mut pauses, mut unsure) = (RETRY_PAUSES.into_iter(), false);
        loop {
            let error = match api.create(&params, event).await {
                Ok(_) => return Some(Created::ThisCall),
                // An earlier attempt without a good answer may have created it.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    return Some(if unsure { Created::ThisCall } else { Created::Earlier });
                }
                Err(error) => error,
            };
            let hopeless = matches!(&error, kube::Error::Api(status) if status.code != 429 && status.code < 500);
            let Some(pause) = pauses.next().filter(|_| !hopeless) else {
                tracing::warn!(%error, reason = event.reason, "an Event could not be published");
                return None;
            };
            tokio::time::sleep(pause).await;
            unsure = true;
        }
    }

    async fn repeat(&self, event: &Event) {
        let count = {
            let mut repeats = self.repeats();
            if repeats.len() >= MAX_REPEATS && !repeats.contains_key(name(event)) {
                repeats.clear();
            }
            let count = repeats.entry(name(event).to_owned()).or_insert(1);
            *count = count.saturating_add(1);
            *count
        };
        let series = json!({"series": {"count": count, "lastObservedTime": event.event_time}});
        if let Err(error) = self.api(event).patch(name(event), &PatchParams::default(), &Patch::Merge(series)).await {
            tracing::warn!(%error, reason = event.reason, "the count of a repeated Event could not be updated");
        }
    }

    fn event(&self, about: &ObjectReference, event_spec: EventSpec, at: Timestamp, payload: Option<&Value>, which: &[&str]) -> Event {
        let identity = json!([about.uid, event_spec.reason, which]).to_string();
        let (name, hash) = (about.name.as_deref().unwrap_or_default(), hex::encode(Sha256::digest(identity)));
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{}", &hash[..16])),
                namespace: Some(about.namespace.clone().unwrap_or_else(|| "default".to_owned())),
                annotations: payload.map(|payload| BTreeMap::from([(labels::PAYLOAD.to_owned(), payload.to_string())])),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(at)),
            type_: Some(if event_spec.warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(event_spec.reason),
            note: Some(cut(event_spec.note)),
            action: Some(event_spec.action.to_owned()),
            regarding: Some(about.clone()),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(cut_to(self.instance.clone(), 128)),
            ..Event::default()
        }
    }
}

/// Which call created an Event that exists.
#[derive(PartialEq, Eq)]
enum Created {
    ThisCall,
    Earlier,
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn name(event: &Event) -> &str {
    event.metadata.name.as_deref().unwrap_or_default()
}

fn cut(note: String) -> String {
    cut_to(note, MAX_NOTE_BYTES)
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
    use http::{Request, Response, StatusCode};
    use http_body_util::BodyExt;
    use kube::client::Body;

    use super::*;

    #[test]
    fn long_notes_are_cut_between_characters() {
        let cut = super::cut("é".repeat(1000));
        assert!(cut.len() <= 1024 && cut.ends_with('…'));
        assert_eq!(super::cut("short".to_owned()), "short");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_an_event_before_too_many_do() {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let noted = sent.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let noted = noted.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let body = request.into_body().collect().await.unwrap().to_bytes();
                noted.lock().unwrap().push(serde_json::from_slice::<Value>(&body).unwrap()["reason"].clone());
                let answer = Response::builder().status(StatusCode::CREATED).body(Body::from(body.to_vec()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        });
        let (events, about) = (Events::new(Client::new(server, "default"), None), ObjectReference::default());
        let publish = async |reason: usize| {
            let note = "n".repeat(MAX_NOTE_BYTES);
            events.publish(&about, EventSpec { warning: false, reason: reason.to_string(), action: "Apply", note }).await;
        };
        let fixed = size_of::<(ObjectReference, EventSpec, Timestamp)>();
        assert!(fixed < EVENT_BYTES / 2, "{fixed}");
        let begun = tokio::time::Instant::now();
        let room = MAX_WAITING_BYTES / (EVENT_BYTES + MAX_NOTE_BYTES);
        for reason in 0..room {
            publish(reason).await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        publish(room).await;
        assert_eq!(begun.elapsed().as_secs(), 1, "there is room once one has been sent");
        events.sent().await;
        assert_eq!(begun.elapsed().as_secs(), (room + 1).div_ceil(MAX_SENDS) as u64);
        assert_eq!(*sent.lock().unwrap(), (0..=room).map(|reason| json!(reason.to_string())).collect::<Vec<_>>(), "in their order");
    }

    /// Publishes one Event `times` times to a server that gives these answers. Returns the counts that were patched.
    async fn published(answers: &[u16], times: usize) -> Vec<Value> {
        let left = Arc::new(Mutex::new(answers.to_vec()));
        let patches = Arc::new(Mutex::new(Vec::new()));
        let noted = patches.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let (left, noted) = (left.clone(), noted.clone());
            async move {
                let status = StatusCode::from_u16(left.lock().unwrap().remove(0)).unwrap();
                let patches = request.method() == "PATCH";
                let body: Value = serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes()).unwrap();
                if patches {
                    noted.lock().unwrap().push(body["series"]["count"].clone());
                }
                let answer = if status.is_success() { body } else { json!({"kind": "Status", "code": status.as_u16()}) };
                let answer = Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        });
        let events = Events::new(Client::new(server, "default"), None);
        let about = ObjectReference { name: Some("a".to_owned()), uid: Some("u".to_owned()), ..ObjectReference::default() };
        for _ in 0..times {
            let event_spec = EventSpec { warning: false, reason: "Repaired".to_owned(), action: "Repair", note: "n".to_owned() };
            events.publish(&about, event_spec).await;
            events.sent().await;
        }
        let sent = patches.lock().unwrap();
        sent.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_event_is_counted() {
        assert_eq!(published(&[201, 409, 200, 409, 200], 3).await, [2, 3]);
        assert_eq!(published(&[409, 200, 201, 409, 200], 3).await, [2, 2], "the Event had expired in between");
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_whose_answer_was_lost_is_no_repetition() {
        assert_eq!(published(&[500, 429, 409], 1).await, [0; 0]);
        assert_eq!(published(&[403], 1).await, [0; 0]);
        assert_eq!(published(&[500, 500, 500, 500], 1).await, [0; 0], "after the last attempt it is given up");
    }
}
