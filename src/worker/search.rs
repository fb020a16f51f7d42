//! `POST /knowledge-bases/{kb_id}/search`: turns the query into a vector and asks the database.

use std::time::Instant;

use slipway_api::worker::{SearchRequest, SearchResponse};
use slipway_http::{Error, Reply, Request};
use slipway_models::embedding::Purpose;

use crate::failure;
use crate::server::Server;

/// Memory charged for each result until it is known how long they are. Most chunks have some 2 KiB.
const RESULT_BYTES: u64 = 8 * 1024;

pub(crate) async fn search(server: &Server, base: &str, request: Request) -> Result<Reply, Error> {
    let slot = request.slot().clone();
    let question: SearchRequest = request.json().await?;
    if let Some(fault) = question.fault() {
        return Err(Error::bad_request(fault));
    }
    slot.charge(u64::from(question.top_k) * RESULT_BYTES)?;
    let model = server.store()?.embedding_model(base).await?;
    let Some(model) = model.filter(|_| !question.query.trim().is_empty()) else {
        // Nothing was ingested yet, or nothing is asked.
        return Reply::json(&SearchResponse { results: Vec::new() });
    };
    let embedder = server.embedders.open(&model).map_err(failure::of_model)?;
    let begun = Instant::now();
    let texts = [question.query.trim().to_owned()];
    let vectors = embedder.embed(&texts, Purpose::Query).await.map_err(failure::of_model)?;
    server.metrics.embedding_seconds.observe(begun.elapsed().as_secs_f64());
    let vector = vectors.into_iter().next().ok_or_else(|| Error::internal("the embedding model returned no vector"))?;
    let results = server.store()?.search(base, &question, vector).await?;
    Reply::json(&SearchResponse { results })
}
