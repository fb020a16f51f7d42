//! Feedback: what people think of an answer. One function of the database writes it, which takes what was asked from the stored
//! messages, so that nobody brings in a case that was never a question. `delivery` sends it to MLflow as well.

mod delivery;

use std::time::Instant;

use kube::api::Api;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_api::{Agent, ids};
use slipway_database::{Feedback, Marked, Reader};
use slipway_http::{Error, StatusCode};
use slipway_mlflow::Mark;

use crate::agents::ConversationStorage;
use crate::answer::Plain;
use crate::call::{Call, Json, Path};
use crate::relay::{from_database, target};
use crate::routes::CHAT;
use crate::{access, cluster_error};

const NAME_BYTES_MAX: usize = 128;
const SOURCE_BYTES_MAX: usize = 128;
const COMMENT_BYTES_MAX: usize = 4096;
const ID_BYTES_MAX: usize = 128;

/// A mark for an answer of an agent. One of `trace_id` and `message_id` is needed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewFeedback")]
pub(crate) struct NewFeedback {
    /// The agent, by id (ag_…) or slug.
    #[schemars(length(min = 1, max = 256))]
    agent_id: String,
    /// The trace of the answer, as the answer names it.
    #[schemars(length(min = 1, max = 128))]
    trace_id: Option<String>,
    /// The message that is marked, in the place of a trace or besides.
    #[schemars(length(min = 1, max = 128))]
    message_id: Option<String>,
    /// The conversation that the answer is in.
    #[schemars(length(min = 1, max = 128))]
    conversation_id: Option<String>,
    /// What is marked, for example `helpful`. A second mark of the same caller for the same trace and name takes the place of the first.
    #[schemars(length(min = 1, max = 128))]
    name: String,
    /// From 0 to 1, or from 1 to 5.
    #[schemars(range(min = 0, max = 5))]
    value: f64,
    /// 1 for a value from 0 to 1, 5 for one from 1 to 5. Without it a value up to 1 is on the scale from 0 to 1.
    #[schemars(extend("enum" = [1, 5, null]))]
    scale: Option<i32>,
    /// Who or what marks, for example `human`.
    #[schemars(length(max = 128))]
    source: Option<String>,
    #[schemars(length(max = 4096))]
    comment: Option<String>,
}

/// What became of a mark.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "FeedbackRecorded")]
pub(crate) struct Recorded {
    #[schemars(extend("enum" = ["recorded"]))]
    status: &'static str,
    trace_id: String,
    name: String,
    value: f64,
    /// Whether MLflow has taken the mark as an assessment of the trace. If not it is sent later, as long as it is kept.
    proxied: bool,
    /// Whether this mark made the question one of the cases of the agent's evaluations.
    dataset_appended: bool,
}

pub(crate) async fn create(call: Call<Json<NewFeedback>>) -> Result<Plain<Recorded>, Error> {
    let (mut call, Json(new)) = call.split();
    call.path = Path(vec![("id", new.agent_id.clone())]);
    if call.team.is_none() {
        call.team = Some(access::team_with(&call.context, &call.caller, CHAT, &call.path, &call.headers).await?);
    }
    let feedback = checked(new, ids::user(&call.caller.name))?;
    let target = target(&call).await?;
    let (context, name) = (&call.context, &target.key.name);
    let reader =
        reader(context.database.as_ref(), target.item.data.storage).map_err(|why| Error::unavailable(format!("agent {name}: {why}")))?;
    let team = call.team.as_ref().map(ToString::to_string).unwrap_or_default();
    let _permit = context.rate_limiter.admit_feedback(&team, (name, &target.item.id), &feedback.user, Instant::now())?;
    // Answers belong to the current Agent by UID, not to an earlier one of its name.
    let agents: Api<Agent> = Api::namespaced(context.client.clone(), &target.key.namespace);
    let there = agents.get_metadata(name).await.map_err(|error| cluster_error::from_kube(error, &format!("agent {name}")))?;
    let uid = there.metadata.uid.as_deref().unwrap_or_default();
    let team = ids::team(&team);
    let records = reader.of(&team, &target.item.id, uid).map_err(from_database)?;
    match records.give_feedback(&feedback).await.map_err(from_database)? {
        Marked::Recorded { trace, appended } => {
            let mark = mark(team, target.item.id.clone(), trace, &feedback);
            let proxied = delivery::deliver(&call, &records, &mark, &feedback).await;
            let Mark { trace: trace_id, name, value, .. } = mark;
            Ok(Plain(Recorded { status: "recorded", trace_id, name, value, proxied, dataset_appended: appended }))
        }
        Marked::NotFound => Err(Error::not_found(format!("agent {name} has no stored answer of this trace, message and conversation"))),
        Marked::TooMany => Err(Error::new(
            StatusCode::CONFLICT,
            "name: you have given this answer marks of 32 names, which is as many as may be; use one of them again",
        )),
        Marked::NotGranted => {
            Err(Error::unavailable("this API's login to the database may not record feedback; docs/rest.md has the statement that lets it"))
        }
    }
}

/// As MLflow is sent it.
fn mark(team: String, agent_id: String, trace: String, feedback: &Feedback) -> Mark {
    let Feedback { user, name, value, source, comment, .. } = feedback.clone();
    Mark { team, agent_id, trace, user, name, value, scale: feedback.scale(), source, comment }
}

/// What the mark says, if it can be one.
fn checked(new: NewFeedback, user: String) -> Result<Feedback, Error> {
    let NewFeedback { agent_id: _, trace_id, message_id, conversation_id, name, value, scale, source, comment } = new;
    if trace_id.is_none() && message_id.is_none() {
        return Err(Error::bad_request("trace_id: it is needed, unless message_id says which answer is meant"));
    }
    for (field, text) in [("trace_id", &trace_id), ("message_id", &message_id), ("conversation_id", &conversation_id)] {
        bounded(field, text.as_deref(), 1, ID_BYTES_MAX)?;
    }
    bounded("name", Some(&name), 1, NAME_BYTES_MAX)?;
    bounded("source", source.as_deref(), 0, SOURCE_BYTES_MAX)?;
    if let Some(comment) = &comment
        && (comment.len() > COMMENT_BYTES_MAX || comment.contains('\0'))
    {
        let message = format!("comment: must have at most {COMMENT_BYTES_MAX} bytes, and no U+0000; it has {} bytes", comment.len());
        return Err(Error::bad_request(message));
    }
    let range = match scale {
        Some(1) => 0.0..=1.0,
        Some(5) => 1.0..=5.0,
        None => 0.0..=5.0,
        Some(other) => {
            return Err(Error::bad_request(format!("scale: must be 1 (values from 0 to 1) or 5 (values from 1 to 5), not {other}")));
        }
    };
    if !range.contains(&value) {
        let (from, to) = (range.start(), range.end());
        return Err(Error::bad_request(format!("value: must be from {from} to {to} on this scale, and is {value}")));
    }
    Ok(Feedback { user, trace: trace_id, message: message_id, conversation: conversation_id, name, value, scale, source, comment })
}

fn bounded(field: &str, text: Option<&str>, least: usize, most: usize) -> Result<(), Error> {
    let Some(text) = text else { return Ok(()) };
    if (least..=most).contains(&text.len()) && !text.contains(char::is_control) {
        return Ok(());
    }
    let length = text.len();
    Err(Error::bad_request(format!("{field}: must have {least} to {most} bytes, and no control characters; it has {length} bytes")))
}

/// The way to the database, or why there is no answer in it that could be marked.
fn reader(database: Option<&Reader>, storage: ConversationStorage) -> Result<&Reader, &'static str> {
    match storage {
        ConversationStorage::Memory => Err("its storage is memory, so that no answer is kept that could be marked"),
        ConversationStorage::OwnDatabase => Err("its answers lie in a database of its own, where no feedback is recorded"),
        ConversationStorage::Platform => {
            database.ok_or("this API has no connection to the database, without which no feedback is recorded")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(change: &Value) -> String {
        let mut body = json!({"agent_id": "helper", "trace_id": "tr_1", "name": "helpful", "value": 1});
        crate::write::merge(&mut body, change.clone());
        match serde_json::from_value::<NewFeedback>(body) {
            Ok(new) => checked(new, "user_1".to_owned()).map_or_else(|error| error.message().to_owned(), |_| String::new()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_mark_is_bounded_and_its_scale_is_known() {
        for fits in [
            json!({}),
            json!({"value": 0}),
            json!({"value": 5}),
            json!({"value": 1.5}),
            json!({"value": 0.5, "scale": 1}),
            json!({"value": 1, "scale": 5}),
            json!({"trace_id": null, "message_id": "msg_1"}),
            json!({"source": "", "comment": "Line\nafter line", "conversation_id": "conv_1"}),
            json!({"name": "n".repeat(128), "source": "s".repeat(128), "comment": "é".repeat(2048)}),
        ] {
            assert_eq!(told(&fits), "", "{fits}");
        }
        for (wrong, says) in [
            (json!({"trace_id": null}), "trace_id"),
            (json!({"trace_id": ""}), "trace_id"),
            (json!({"trace_id": "t".repeat(129)}), "trace_id"),
            (json!({"message_id": "a\u{0}"}), "message_id"),
            (json!({"conversation_id": ""}), "conversation_id"),
            (json!({"name": ""}), "name"),
            (json!({"name": "é".repeat(65)}), "name: must have 1 to 128 bytes"),
            (json!({"name": "a\nb"}), "control"),
            (json!({"name": null}), "null"),
            (json!({"source": "s".repeat(129)}), "source"),
            (json!({"comment": "é".repeat(2049)}), "it has 4098 bytes"),
            (json!({"comment": "\u{0}"}), "U+0000"),
            (json!({"value": -0.1}), "from 0 to 5"),
            (json!({"value": 5.1}), "from 0 to 5"),
            (json!({"value": 0.9, "scale": 5}), "from 1 to 5"),
            (json!({"value": 1.1, "scale": 1}), "from 0 to 1"),
            (json!({"scale": 10}), "scale: must be 1"),
            (json!({"value": "good"}), "f64"),
            (json!({"expected_output": "x"}), "unknown field"),
        ] {
            let words = told(&wrong);
            assert!(words.contains(says), "{wrong}: {words:?}");
        }
    }

    #[test]
    fn without_a_database_the_reason_is_given() {
        let database = Reader::open("postgresql://u@127.0.0.1:1/d", None, None).unwrap();
        for (storage, connected, says) in [
            (ConversationStorage::Platform, true, ""),
            (ConversationStorage::Platform, false, "no connection to the database"),
            (ConversationStorage::Memory, true, "storage is memory"),
            (ConversationStorage::OwnDatabase, true, "database of its own"),
        ] {
            assert!(reader(connected.then_some(&database), storage).err().unwrap_or_default().contains(says), "{storage:?}");
        }
    }
}
