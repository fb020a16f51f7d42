//! `GET` and `DELETE /knowledge-bases/{kb_id}/documents`, and `DELETE` of one of them.

use slipway_api::worker::{DOCUMENTS_DEFAULT, DOCUMENTS_MAX, RemovedDocuments};
use slipway_http::{Error, Query, Reply, StatusCode};

use crate::server::Server;

pub(crate) async fn list(server: &Server, base: &str, mut query: Query) -> Result<Reply, Error> {
    let limit = query.number("limit", DOCUMENTS_DEFAULT, 1..=DOCUMENTS_MAX)?;
    let after = query.text("after");
    query.end()?;
    Reply::json(&server.store()?.documents(base, limit, after.as_deref()).await?)
}

pub(crate) async fn delete(server: &Server, base: &str, document: &str) -> Result<Reply, Error> {
    if server.store()?.delete_document(base, document).await? {
        return Ok(Reply::text("").with_status(StatusCode::NO_CONTENT));
    }
    Err(Error::not_found(format!("there is no document {document} in this knowledge base")))
}

/// All documents of `?source=`.
pub(crate) async fn delete_source(server: &Server, base: &str, mut query: Query) -> Result<Reply, Error> {
    let source = query.text("source").ok_or_else(|| Error::bad_request("`source` is required: the source whose documents are deleted"))?;
    query.end()?;
    Reply::json(&RemovedDocuments { removed: server.store()?.delete_source(base, &source).await? })
}
