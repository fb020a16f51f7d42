//! Who takes messages of webhooks: it can be closed for a while, and looks at signatures as Standard Webhooks has them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::{Value, json};

use crate::servers::{HeardRequest, LittleServer, ServedAnswer};

/// How long ago a message may have been sent that is looked at, in seconds: a story is not longer.
const STORY_SECONDS: i64 = 3600;

pub(crate) struct StoryReceiver {
    pub(crate) server: LittleServer,
    is_open: Arc<AtomicBool>,
}

/// A message, as it was sent once.
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) body: Value,
    asked: HeardRequest,
    /// Whether it was taken.
    pub(crate) taken: bool,
}

/// Marks what was heard while it was closed.
const CLOSED: &str = "x-closed";

impl StoryReceiver {
    pub(crate) fn start(address: SocketAddr) -> Self {
        let is_open = Arc::new(AtomicBool::new(true));
        let (answers, keeps) = (Arc::clone(&is_open), Arc::clone(&is_open));
        let answer = move |_: &HeardRequest| ServedAnswer::json(if answers.load(Ordering::SeqCst) { 200 } else { 503 }, &json!({}));
        let keep = move |asked: &HeardRequest| {
            let mut asked = asked.clone();
            if !keeps.load(Ordering::SeqCst) {
                asked.headers.insert(CLOSED.to_owned(), "yes".to_owned());
            }
            Some(asked)
        };
        Self { server: LittleServer::start(address, answer, keep), is_open }
    }

    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
    }

    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }

    /// All messages that came to this path, refused ones too.
    pub(crate) fn messages(&self, path: &str) -> Vec<Message> {
        let heard = self.server.heard();
        let of_path = heard.into_iter().filter(|asked| asked.path == path);
        of_path
            .map(|asked| Message {
                id: asked.header("webhook-id").to_owned(),
                body: asked.json(),
                taken: asked.header(CLOSED).is_empty(),
                asked,
            })
            .collect()
    }
}

impl Message {
    /// What is wrong with its signature, by this secret (`whsec_…`).
    pub(crate) fn fault(&self, secret: &str) -> Option<String> {
        let Some(key) = secret.strip_prefix("whsec_").and_then(|text| STANDARD.decode(text).ok()) else {
            return Some(format!("{} characters are no secret of a webhook", secret.len()));
        };
        let stamp = self.asked.header("webhook-timestamp");
        let now = jiff::Timestamp::now().as_second();
        if !stamp.parse::<i64>().is_ok_and(|at| (now - at).abs() <= STORY_SECONDS) {
            return Some(format!("its time is {stamp:?}"));
        }
        let signed = format!("{}.{stamp}.{}", self.id, self.asked.body);
        let expected = STANDARD.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), signed.as_bytes()));
        let given = self.asked.header("webhook-signature");
        let is_good = given.split(' ').any(|one| one.strip_prefix("v1,") == Some(expected.as_str()));
        (!is_good).then(|| format!("its signature is {given:?}"))
    }
}
