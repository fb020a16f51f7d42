//! Which track of an agent answers whom: chats of people who talk at once, in conversations that they go on with or begin.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::api::Call;

/// People who talk at once.
const CALLERS: usize = 8;
/// The wait before a chat is sent again that is above REST's limit of chats a second.
const PAUSE: Duration = Duration::from_millis(50);

/// A conversation's id, and whether the canary has answered.
pub type TrackedChat = (String, bool);

/// What tells an agent's tracks apart: a message, and the answers to it.
pub struct Tracks {
    pub message: &'static str,
    pub stable: &'static str,
    pub canary: &'static str,
}

impl Tracks {
    /// One chat, and who has answered.
    #[track_caller]
    pub fn said(&self, chat: &Call, conversation: Option<&str>) -> TrackedChat {
        let mut body = json!({"message": self.message});
        if let Some(id) = conversation {
            body["conversation_id"] = json!(id);
        }
        let call = chat.clone().json(&body);
        loop {
            let reply = call.send();
            if reply.status == 429 {
                thread::sleep(PAUSE);
                continue;
            }
            assert_eq!(reply.status, 200, "{reply:?}");
            let said = reply.json()["data"].clone();
            let id = said["conversation_id"].as_str().unwrap_or_else(|| panic!("a conversation has an id: {said}")).to_owned();
            return match said["output"].as_str() {
                Some(output) if output == self.stable => (id, false),
                Some(output) if output == self.canary => (id, true),
                _ => panic!("neither track answers so: {said}"),
            };
        }
    }

    /// One chat each, in these conversations or new ones, in their order.
    #[track_caller]
    pub fn ask(&self, chat: &Call, conversations: &[Option<String>]) -> Vec<TrackedChat> {
        thread::scope(|scope| {
            let parts = conversations.chunks(conversations.len().div_ceil(CALLERS));
            let callers: Vec<_> =
                parts.map(|part| scope.spawn(move || part.iter().map(|id| self.said(chat, id.as_deref())).collect::<Vec<_>>())).collect();
            callers.into_iter().flat_map(|caller| caller.join().unwrap_or_else(|_| panic!("a chat has failed, see above"))).collect()
        })
    }
}
