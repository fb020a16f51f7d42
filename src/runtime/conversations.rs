//! Conversations as a caller sees them: a list, one with its messages, and whether an answer is being made for one.

use serde::Serialize;
use slipway_database::{Detail, Generation, Listed, MOST_LISTED};
use slipway_http::{Error, Query, Reply};

use crate::agent::Agent;
use crate::failure;

#[derive(Serialize)]
struct Status {
    generating: bool,
    partial: Option<String>,
}

pub(crate) async fn list(agent: &Agent, mut query: Query) -> Result<Reply, Error> {
    let limit = query.number("limit", 100, 1..=MOST_LISTED)?;
    let (cursor, search) = (query.text("cursor"), query.text("search"));
    query.end()?;
    let page = agent.store.conversations(limit, cursor.as_deref(), search.as_deref()).await.map_err(failure::of_store)?;
    Reply::json(&Listed::from(page))
}

pub(crate) async fn detail(agent: &Agent, id: &str) -> Result<Reply, Error> {
    let found = agent.store.conversation(id).await.map_err(failure::of_store)?;
    Reply::json(&Detail::from(found.ok_or_else(|| unknown(id))?))
}

pub(crate) async fn delete(agent: &Agent, id: &str) -> Result<Reply, Error> {
    if agent.store.delete_conversation(id).await.map_err(failure::of_store)? {
        agent.background.outdated(id);
        return Reply::json(&serde_json::json!({"id": id, "deleted": true}));
    }
    Err(unknown(id))
}

pub(crate) async fn status(agent: &Agent, id: &str) -> Result<Reply, Error> {
    let status = match agent.store.generation(id).await.map_err(failure::of_store)? {
        None => return Err(unknown(id)),
        Some(Generation::Idle) => Status { generating: false, partial: None },
        Some(Generation::Generating { partial, .. }) => Status { generating: true, partial: Some(partial) },
    };
    Reply::json(&status)
}

pub(crate) async fn memories(agent: &Agent, mut query: Query) -> Result<Reply, Error> {
    let limit = query.number("limit", 100, 1..=MOST_LISTED)?;
    let cursor = query.text("cursor");
    query.end()?;
    let page = agent.memory.list(limit, cursor.as_deref()).await.map_err(failure::of_store)?;
    Reply::json(&Listed::from(page))
}

fn unknown(id: &str) -> Error {
    Error::not_found(format!("there is no conversation {id}"))
}
