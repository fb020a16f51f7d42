//! `POST /knowledge-bases/{id}/ingest`: makes an Ingestion of a source, of a source of the knowledge base by name, or of a file
//! that is uploaded.

use kube::ResourceExt;
use kube::api::ObjectMeta;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use slipway_api::{Ingestion, IngestionSpec};
use slipway_http::{Error, Request, StatusCode, multipart};

use super::jobs::{self, Status};
use super::source::{self, ONCE};
use super::{find, upload};
use crate::answer::{Accepted, Data};
use crate::call::{Body, Call};
use crate::evaluations::ulid;
use crate::fields::INGESTION;
use crate::{cluster_error, openapi, write};

/// What is read: a source, or a source of the knowledge base by its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ingest {
    source: Option<Value>,
    /// A null is refused: it would be given, and name nothing.
    #[serde(default)]
    source_name: String,
    confirm_removal: Option<bool>,
}

/// The request of an ingestion; its media type decides how the body is read.
pub(crate) struct Ingestible(Request);

impl Body for Ingestible {
    fn form(_: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        let name = json!({"type": "string", "minLength": 1, "maxLength": 40, "description": "A source of the knowledge base, by name."});
        let confirm_removal = json!({"type": ["boolean", "null"], "description": INGESTION["properties"]["confirmRemoval"]["description"]});
        let mut source = source::form(&ONCE);
        source["description"] = json!("A source that is read once.");
        let mut form = json!({
            "type": "object",
            "description": "Exactly one of `source` and `source_name`. A file is sent as multipart/form-data, in the part `file`, of at most 100 MiB.",
            "properties": {"source": source, "source_name": name, "confirm_removal": confirm_removal},
            "oneOf": [{"required": ["source"]}, {"required": ["source_name"]}],
        });
        openapi::closed(&mut form);
        Schema::try_from(form).ok().map(|schema| ("application/json", schema))
    }

    async fn read(request: Request) -> Result<Self, Error> {
        Ok(Self(request))
    }
}

/// An ingestion that has begun.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeJobBegun")]
pub(crate) struct Begun {
    /// `GET /knowledge-bases/{id}/jobs/{job_id}` shows how far it is.
    pub job_id: String,
    pub status: Status,
}

pub(crate) async fn ingest(call: Call<Ingestible>) -> Result<Accepted<Begun>, Error> {
    let (call, Ingestible(request)) = call.split();
    // Before a body of any size is read.
    let base = match find(&call).await {
        Ok(base) => base,
        Err(error) => return Err(request.refuse(error).await),
    };
    let name = base.name_any();
    let id = format!("ing-{}", ulid(&call)?);
    let is_form = multipart::is_form(request.headers());
    if is_form && let Some(job) = made_before(&call, &id).await? {
        upload::skip(request).await?;
        return Ok(begun(&job));
    }
    let spec = if is_form {
        IngestionSpec { upload: Some(upload::pass(&call, &name, request).await?), ..IngestionSpec::default() }
    } else {
        let known = |wanted: &str| base.spec.sources.iter().any(|source| source.name == wanted);
        read(request.json().await?, known)?
    };
    let job = Ingestion {
        metadata: ObjectMeta { name: Some(id.clone()), namespace: Some(call.namespace()), ..ObjectMeta::default() },
        spec: IngestionSpec { knowledge_base: name, ..spec },
        status: None,
    };
    let made = write::create(&call, &jobs::api(&call), job, &format!("job {id}")).await?;
    Ok(begun(&made))
}

fn begun(job: &Ingestion) -> Accepted<Begun> {
    Accepted(Data::since(Begun { job_id: job.name_any(), status: Status::of(job) }, job.resource_version()))
}

/// The job of an earlier upload with the call's Idempotency-Key. A second upload would be another one.
async fn made_before(call: &Call, id: &str) -> Result<Option<Ingestion>, Error> {
    if write::key_digest(call).is_none() {
        return Ok(None);
    }
    let found = jobs::api(call).get_opt(id).await.map_err(|error| cluster_error::from_kube(error, &format!("job {id}")))?;
    Ok(found.filter(|job| job.spec.upload.is_some()))
}

fn read(given: Ingest, is_known: impl Fn(&str) -> bool) -> Result<IngestionSpec, Error> {
    let base = IngestionSpec { confirm_removal: given.confirm_removal.unwrap_or_default(), ..IngestionSpec::default() };
    let name = Some(given.source_name).filter(|name| !name.is_empty());
    match (given.source, name) {
        (Some(source), None) => {
            let source = source::to_resource(&ONCE, "source", source)?;
            let source = serde_json::from_value(source).map_err(|error| Error::bad_request(format!("source: {error}")))?;
            Ok(IngestionSpec { source: Some(source), ..base })
        }
        (None, Some(name)) if is_known(&name) => Ok(IngestionSpec { source_name: Some(name), ..base }),
        (None, Some(name)) => {
            let name: String = name.chars().take(64).collect();
            Err(Error::new(StatusCode::NOT_FOUND, format!("source_name: the knowledge base has no source {name:?}")))
        }
        _ => Err(Error::bad_request("exactly one of `source` and `source_name` is required; a file is sent as multipart/form-data")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_is_named_and_no_more() {
        let read = |body: Value| {
            let given = serde_json::from_value(body).map_err(|error| error.to_string())?;
            read(given, |name| name == "wiki").map_err(|error| error.message().to_owned())
        };
        let once = read(json!({"source": {"type": "s3", "bucket": "docs"}})).unwrap();
        assert_eq!(once.source.as_ref().unwrap().clone().s3.unwrap().bucket, "docs");
        assert_eq!(read(json!({"source_name": "wiki"})).unwrap().source_name.as_deref(), Some("wiki"));
        assert!(read(json!({"source_name": "wiki", "confirm_removal": true})).unwrap().confirm_removal && !once.confirm_removal);
        for (body, says) in [
            (json!({}), "exactly one of"),
            (json!({"source_name": null}), "null"),
            (json!({"source": {"type": "local", "path": "."}, "source_name": "wiki"}), "exactly one of"),
            (json!({"source_name": "other"}), "no source \"other\""),
            (json!({"source": {"type": "s3"}}), "bucket"),
            (json!({"upload": "up_1"}), "upload"),
        ] {
            let fault = read(body.clone()).unwrap_err();
            assert!(fault.contains(says), "{body}: {fault}");
        }
    }
}
