//! Conversations and memories of an agent without pods, read from the database and shown as the agent would show them.

use std::time::Instant;

use kube::api::Api;
use serde::{Deserialize, Serialize};
use slipway_api::{Agent, ids};
use slipway_database::{Detail, Fault, Listed, MOST_LISTED, Reader, Records};
use slipway_http::{Error, HeaderValue, Query, Reply, header};

use super::target::Target;
use crate::call::Call;
use crate::cluster_error;
use crate::rate_limiter::Permit;

/// Retry-After while the database is unavailable.
const RETRY_SECONDS: u64 = 2;

/// Where an agent's words lie, as far as its view says so.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
struct Place {
    storage: Option<String>,
    database_url: Option<String>,
}

/// One agent's rows, and the permit of the call.
pub(super) struct StoredConversations {
    records: Records,
    _permit: Permit,
}

/// Opens the rows of an agent without pods; `reason` says why it has none.
pub(super) async fn open(call: &Call, target: &Target, reason: &str) -> Result<StoredConversations, Error> {
    let context = &call.context;
    let unread = |why: &str| Error::unavailable(format!("{reason}; {why}"));
    let json = context.caches.agents.get(&target.key).map(|item| item.json.clone()).unwrap_or_default();
    let reader = found(context.database.as_ref(), &Place::read(&json)).map_err(unread)?;
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
fn found<'a>(reader: Option<&'a Reader>, place: &Place) -> Result<&'a Reader, &'static str> {
    if place.storage.as_deref() == Some("memory") {
        return Err("its storage is memory, so that what was said went with its pods");
    }
    if place.database_url.is_some() {
        return Err("what was said lies in a database of its own, which only the agent itself reads");
    }
    reader.ok_or("what was said is read from the agent itself, for this API has no connection to the database")
}

impl Place {
    fn read(view: &str) -> Self {
        #[derive(Deserialize)]
        struct View {
            config: Place,
        }
        serde_json::from_str(view).map(|View { config }| config).unwrap_or_default()
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

fn from_database(fault: Fault) -> Error {
    match fault {
        Fault::Refused(words) => Error::bad_request(words),
        Fault::Unavailable(_) | Fault::Busy => Error::unavailable("the database is not available; try again")
            .with_header(header::RETRY_AFTER, HeaderValue::from(RETRY_SECONDS))
            .because(fault),
        Fault::Broken(_) => Error::internal(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_says_why() {
        let reader = Reader::open("postgresql://u@127.0.0.1:1/d", None, None).unwrap();
        for (config, connected, says) in [
            (r#""storage": null, "database_url": null"#, true, None),
            (r#""storage": "postgresql""#, true, None),
            (r#""storage": "memory""#, true, Some("storage is memory")),
            (r#""storage": "postgresql", "database_url": "postgres://db/x""#, true, Some("database of its own")),
            (r#""storage": "postgresql""#, false, Some("no connection")),
            (r#""storage": "memory""#, false, Some("storage is memory")),
        ] {
            let place = Place::read(&format!("{{\"id\": \"ag_1\", \"config\": {{{config}, \"name\": \"x\"}}}}"));
            let why = found(connected.then_some(&reader), &place).err();
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
