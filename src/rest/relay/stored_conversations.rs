//! Conversations and memories of an agent without pods, read from the database and shown as the agent would show them.

use std::time::Instant;

use kube::api::Api;
use serde::Serialize;
use slipway_api::{Agent, ids};
use slipway_database::{Detail, Fault, Listed, MOST_LISTED, Reader, Records};
use slipway_http::{Error, HeaderValue, Query, Reply, header};

use super::target::Target;
use crate::agents::ConversationStorage;
use crate::call::Call;
use crate::cluster_error;
use crate::rate_limiter::Permit;

/// Retry-After while the database is unavailable.
const RETRY_SECONDS: u64 = 2;

/// One agent's rows, and the permit of the call.
pub(super) struct StoredConversations {
    records: Records,
    _permit: Permit,
}

/// Opens the rows of an agent without pods; `reason` says why it has none.
pub(super) async fn open(call: &Call, target: &Target, reason: &str) -> Result<StoredConversations, Error> {
    let context = &call.context;
    let unread = |why: &str| Error::unavailable(format!("{reason}; {why}"));
    let reader = reader(context.database.as_ref(), target.item.data.storage).map_err(unread)?;
    let team = call.team.as_ref().map(ToString::to_string).unwrap_or_default();
    let permit = context.rate_limiter.admit_call(&team, &target.key.name, &target.item.id, Instant::now())?;
    // Rows belong to the current Agent by UID, not to an earlier one of its name.
    let agents: Api<Agent> = Api::namespaced(context.client.clone(), &target.key.namespace);
    let there = agents
        .get_metadata(&target.key.name)
        .await
        .map_err(|error| cluster_error::from_kube(error, &format!("agent {}", target.key.name)))?;
    let records =
        reader.of(&ids::team(&team), &target.item.id, there.metadata.uid.as_deref().unwrap_or_default()).map_err(from_database)?;
    Ok(StoredConversations { records, _permit: permit })
}

/// The reader, or why the rows cannot be read.
fn reader(database: Option<&Reader>, storage: ConversationStorage) -> Result<&Reader, &'static str> {
    match storage {
        ConversationStorage::Memory => Err("its storage is memory, so that what was said went with its pods"),
        ConversationStorage::OwnDatabase => Err("what was said lies in a database of its own, which only the agent itself reads"),
        ConversationStorage::Platform => {
            database.ok_or("what was said is read from the agent itself, for this API has no connection to the database")
        }
    }
}

impl StoredConversations {
    pub(super) async fn conversations(&self, mut query: Query) -> Result<Reply, Error> {
        let limit = query.number("limit", 100, 1..=MOST_LISTED)?;
        let (cursor, search) = (query.text("cursor"), query.text("search"));
        query.end()?;
        let page = self.records.conversations(limit, cursor.as_deref(), search.as_deref()).await.map_err(from_database)?;
        Reply::json(&Listed::from(page))
    }

    pub(super) async fn conversation(&self, id: &str) -> Result<Reply, Error> {
        #[derive(Serialize)]
        struct Wrapped {
            data: Detail,
        }
        let found = self.records.conversation(id).await.map_err(from_database)?;
        let found = found.ok_or_else(|| Error::not_found(format!("there is no conversation {id}")))?;
        Reply::json(&Wrapped { data: found.into() })
    }

    pub(super) async fn memories(&self, mut query: Query) -> Result<Reply, Error> {
        let limit = query.number("limit", 100, 1..=MOST_LISTED)?;
        let cursor = query.text("cursor");
        query.end()?;
        let page = self.records.memories(limit, cursor.as_deref()).await.map_err(from_database)?;
        Reply::json(&Listed::from(page))
    }
}

pub(crate) fn from_database(fault: Fault) -> Error {
    match fault {
        Fault::Refused(words) | Fault::Full(words) => Error::bad_request(words),
        Fault::Unavailable(_) | Fault::Busy => Error::unavailable("the database is not available; try again")
            .with_header(header::RETRY_AFTER, HeaderValue::from(RETRY_SECONDS))
            .because(fault),
        Fault::Broken(_) => Error::internal(fault),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_read_says_why() {
        let database = Reader::open("postgresql://u@127.0.0.1:1/d", None, None).unwrap();
        for (config, connected, says) in [
            (json!({"storage": null, "databaseUrl": null}), true, None),
            (json!({"storage": "postgresql"}), true, None),
            (json!({"storage": "memory"}), true, Some("storage is memory")),
            (json!({"storage": "postgresql", "databaseUrl": "postgres://db/x"}), true, Some("database of its own")),
            (json!({"storage": "postgresql"}), false, Some("no connection")),
            (json!({"storage": "memory"}), false, Some("storage is memory")),
        ] {
            let mut spec = json!({"name": "x", "framework": "custom"});
            crate::write::merge(&mut spec, config.clone());
            let storage = ConversationStorage::of(&serde_json::from_value(spec).unwrap());
            let why = reader(connected.then_some(&database), storage).err();
            assert_eq!(why.is_some(), says.is_some(), "{config}: {why:?}");
            assert!(why.unwrap_or_default().contains(says.unwrap_or_default()), "{config}: {why:?}");
        }
    }

    #[test]
    fn a_database_that_is_away_is_worth_asking_again() {
        let away = from_database(Fault::Unavailable("no connection to db.internal".to_owned()));
        assert_eq!((away.status().as_u16(), away.header(&header::RETRY_AFTER).unwrap().to_str().unwrap()), (503, "2"));
        assert!(!away.message().contains("internal"), "{away:?}");
        assert_eq!(from_database(Fault::Refused("`limit` must be a number".to_owned())).status().as_u16(), 400);
        assert_eq!(from_database(Fault::Broken("x".to_owned())).status().as_u16(), 500);
    }
}
