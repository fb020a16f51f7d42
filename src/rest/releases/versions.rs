//! The earlier configurations of an agent, each in the form of `config`.

use futures::{Stream, StreamExt, pin_mut, stream};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;
use slipway_api::{AgentSpec, ids};
use slipway_http::Error;
use slipway_release::wire::Entry;

use super::{Listed, artifact, entries, named};
use crate::agents;
use crate::call::Call;
use crate::fields::{self, AGENT};

/// The number of artifacts that are read at a time.
const CONCURRENT_READS: usize = 8;
/// The size of the artifacts at which a page ends: five hundred with all files may have hundreds of megabytes.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// A configuration that an agent had.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgentVersion")]
#[expect(clippy::struct_field_names, reason = "they are called what callers call them")]
pub(crate) struct Version {
    pub id: String,
    pub agent_id: String,
    pub version: u64,
    /// As the agent's own `config`. Null if a later version of Slipway wrote what this one does not know.
    #[schemars(schema_with = "config")]
    pub config: Value,
    pub created_at: String,
}

fn config(generator: &mut SchemaGenerator) -> Schema {
    let agent = generator.subschema_for::<fields::AgentFields>();
    schemars::json_schema!({"anyOf": [agent, {"type": "null"}]})
}

pub(crate) async fn list(call: Call) -> Result<Listed<Version>, Error> {
    let (call, mut name) = named(call).await?;
    let (entries, next_cursor) = entries(&call, &mut name).await?;
    // A release carries neither name nor description; these come from the current agent, if there is one.
    let now = match agents::find(&call).await {
        Ok((agent, _)) => agent.spec,
        Err(error) if error.status() == slipway_http::StatusCode::NOT_FOUND => {
            AgentSpec { name: name.slug.clone(), ..AgentSpec::default() }
        }
        Err(error) => return Err(error),
    };
    let asked = entries.len();
    let read = entries.into_iter().map(|entry| version(&call, &name.slug, &now, entry));
    let data = gathered(stream::iter(read).buffered(CONCURRENT_READS), PAGE_BYTES).await?;
    let cut_off = data.last().filter(|_| data.len() < asked).map(|last| last.version.to_string());
    Ok(Listed { data, next_cursor: cut_off.or(next_cursor) })
}

/// Collects items with their sizes until the total reaches `most`.
async fn gathered<T>(read: impl Stream<Item = Result<(T, usize), Error>>, most: usize) -> Result<Vec<T>, Error> {
    pin_mut!(read);
    let (mut found, mut bytes) = (Vec::new(), 0);
    while bytes < most
        && let Some(next) = read.next().await
    {
        let (item, size) = next?;
        bytes += size;
        found.push(item);
    }
    Ok(found)
}

/// The version, and the size of its artifact.
async fn version(call: &Call, slug: &str, now: &AgentSpec, entry: Entry) -> Result<(Version, usize), Error> {
    let namespace = call.namespace();
    let release = call.context.state.release(&namespace, slug, entry.version).await?;
    let config = match slipway_release::spec(&artifact(&release.artifact)?, now) {
        Ok(spec) => fields::to_callers(&AGENT, serde_json::to_value(&spec).map_err(Error::internal)?)?,
        Err(_) => Value::Null,
    };
    let agent_id = ids::agent(&namespace, slug);
    let version = Version {
        id: format!("{agent_id}-v{}", entry.version),
        agent_id,
        version: entry.version,
        config,
        created_at: entry.timestamp.to_string(),
    };
    Ok((version, release.artifact.len()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_page_ends_when_it_is_large_and_has_one_version_at_least() {
        for (most, expected) in [(1, 1), (10, 1), (11, 2), (30, 3), (1000, 20)] {
            let read = AtomicUsize::new(0);
            let all = stream::iter((0..20).map(|at| {
                let read = &read;
                async move {
                    read.fetch_add(1, Ordering::Relaxed);
                    Ok((at, 10))
                }
            }));
            let found = gathered(all.buffered(CONCURRENT_READS), most).await.unwrap();
            assert_eq!(found, (0..expected).collect::<Vec<_>>(), "{most} bytes");
            assert!(read.into_inner() < expected + CONCURRENT_READS, "{most} bytes: no more is read than a few beyond the page");
        }
        assert!(gathered(stream::iter(Vec::<Result<(u8, usize), Error>>::new()), 1).await.unwrap().is_empty());
    }
}
