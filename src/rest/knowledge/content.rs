//! What is in a knowledge base: documents and searches, by the team's worker.

use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use slipway_api::worker::{DOCUMENTS_DEFAULT, DOCUMENTS_MAX, Document, DocumentPage, RemovedDocuments, SearchRequest, SearchResponse};
use slipway_api::{ids, names};
use slipway_http::{Error, Method, Reply};

use crate::agents::Deleted;
use crate::answer::{Answer, Data};
use crate::call::{Call, Json};
use crate::page;
use crate::relay::{WorkerBody, WorkerCall};
use crate::route::Parameter;

pub(crate) const LISTED: &[Parameter] = &[
    Parameter { name: "limit", about: "How many at most, 1 to 500. Default 100.", kind: "integer" },
    Parameter { name: "cursor", about: "Where to go on: next_cursor of the page before.", kind: "string" },
];

pub(crate) const SOURCE: &[Parameter] = &[Parameter { name: "source", about: "The source whose documents are deleted.", kind: "source" }];

const ID_LEN_MAX: usize = 64;

/// A page of documents.
#[derive(Serialize)]
pub(crate) struct Documents {
    data: Vec<Document>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl Answer for Documents {
    const IS_CHARGED_ELSEWHERE: bool = true;

    fn form(generator: &mut SchemaGenerator) -> Schema {
        page::form::<Document>(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        Reply::json(&self)
    }
}

pub(crate) async fn documents(mut call: Call) -> Result<Documents, Error> {
    let limit = call.query.number("limit", DOCUMENTS_DEFAULT, 1..=DOCUMENTS_MAX)?;
    let after = call.query.text("cursor").map(|after| format!("&after={}", utf8_percent_encode(&after, NON_ALPHANUMERIC)));
    std::mem::take(&mut call.query).end()?;
    let path = format!("{}/documents?limit={limit}{}", base_path(&call).await?, after.unwrap_or_default());
    let worker = WorkerCall { call: &call, method: Method::GET, path, body: WorkerBody::None };
    let DocumentPage { documents, next } = worker.json().await?;
    Ok(Documents { data: documents, next_cursor: next })
}

pub(crate) async fn delete_document(call: Call) -> Result<Data<Deleted>, Error> {
    let id = call.path.part("doc").to_owned();
    let fits = (1..=ID_LEN_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if !fits {
        return Err(Error::not_found("there is no such document; ids are letters, digits, `-` and `_`"));
    }
    let path = format!("{}/documents/{id}", base_path(&call).await?);
    WorkerCall { call: &call, method: Method::DELETE, path, body: WorkerBody::None }.done().await?;
    Ok(Data::new(Deleted { id, deleted: true }))
}

/// All documents of a source, which are gone.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeSourceDeleted")]
pub(crate) struct SourceDeleted {
    source: String,
    /// How many documents there were.
    deleted_count: u64,
}

pub(crate) async fn delete_source(mut call: Call) -> Result<Data<SourceDeleted>, Error> {
    let source = call.query.text("source").filter(|source| names::is_name(source)).ok_or_else(|| {
        Error::bad_request("`source` is required: the name of a source; names are lower-case letters, digits and hyphens, and `uploads` is that of uploaded files")
    })?;
    std::mem::take(&mut call.query).end()?;
    let path = format!("{}/documents?source={source}", base_path(&call).await?);
    let worker = WorkerCall { call: &call, method: Method::DELETE, path, body: WorkerBody::None };
    let RemovedDocuments { removed } = worker.json().await?;
    Ok(Data::new(SourceDeleted { source, deleted_count: removed }))
}

/// What was found, the best first.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(rename = "KnowledgeSearchAnswer")]
pub(crate) struct KnowledgeSearchAnswer(SearchResponse);

pub(crate) async fn search(call: Call<Json<SearchRequest>>) -> Result<Data<KnowledgeSearchAnswer>, Error> {
    let (call, Json(question)) = call.split();
    if let Some(fault) = question.fault() {
        return Err(Error::bad_request(fault));
    }
    let path = format!("{}/search", base_path(&call).await?);
    let body = WorkerBody::Json(Bytes::from(serde_json::to_vec(&question).map_err(Error::internal)?));
    WorkerCall { call: &call, method: Method::POST, path, body }.json().await.map(KnowledgeSearchAnswer).map(Data::new)
}

/// The path of the knowledge base at the worker.
pub(super) async fn base_path(call: &Call) -> Result<String, Error> {
    Ok(format!("/knowledge-bases/{}", ids::knowledge_base(&super::existing(call).await?)))
}
