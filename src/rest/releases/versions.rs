//! The configurations that an agent had, version by version, each in the form of the agent's own `config`.

use futures::{StreamExt, TryStreamExt, stream};
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

/// Artifacts are read a few at a time.
const AT_ONCE: usize = 8;

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
    // What a release does not carry is the agent's own: name and description. One that is gone has neither.
    let now = match agents::find(&call).await {
        Ok((agent, _)) => agent.spec,
        Err(error) if error.status() == slipway_http::StatusCode::NOT_FOUND => {
            AgentSpec { name: name.slug.clone(), ..AgentSpec::default() }
        }
        Err(error) => return Err(error),
    };
    let read = entries.into_iter().map(|entry| version(&call, &name.slug, &now, entry));
    let data = stream::iter(read).buffered(AT_ONCE).try_collect().await?;
    Ok(Listed { data, next_cursor })
}

async fn version(call: &Call, slug: &str, now: &AgentSpec, entry: Entry) -> Result<Version, Error> {
    let namespace = call.namespace();
    let release = call.context.state.release(&namespace, slug, entry.version).await?;
    let config = match slipway_release::spec(&artifact(&release.artifact)?, now) {
        Ok(spec) => fields::to_callers(&AGENT, serde_json::to_value(&spec).map_err(Error::internal)?)?,
        Err(_) => Value::Null,
    };
    let agent_id = ids::agent(&namespace, slug);
    Ok(Version {
        id: format!("{agent_id}-v{}", entry.version),
        agent_id,
        version: entry.version,
        config,
        created_at: entry.timestamp.to_string(),
    })
}
