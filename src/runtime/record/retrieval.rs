//! One search of a knowledge base: its span and its metrics.

use std::time::Instant;

use serde_json::{Value, json};

use super::{Recorder, ToolRecord, TurnRecord};
use crate::knowledge::Passage;
use crate::telemetry::RetrievalSpan;

const CANCELLED: &str = "cancelled";

pub(crate) struct RetrievalRecord {
    /// Taken at the end.
    span: Option<RetrievalSpan>,
    recorder: Recorder,
    base: String,
    began: Instant,
}

impl TurnRecord {
    /// A search before the model is asked. `top` is how many passages it may find.
    pub(crate) fn retrieval(&self, base: &str, query: &str, top: u32) -> RetrievalRecord {
        RetrievalRecord::new(&self.recorder, self.span.retrieval(base, top), base, query)
    }
}

impl ToolRecord {
    /// The search that the tool makes.
    pub(crate) fn retrieval(&self, base: &str, query: &str, top: u32) -> Option<RetrievalRecord> {
        let span = self.span.as_ref()?.retrieval(base, top);
        Some(RetrievalRecord::new(&self.recorder, span, base, query))
    }
}

impl RetrievalRecord {
    fn new(recorder: &Recorder, span: RetrievalSpan, base: &str, query: &str) -> Self {
        span.query(|| recorder.presentable(query).unwrap_or_default());
        Self { span: Some(span), recorder: recorder.clone(), base: base.to_owned(), began: Instant::now() }
    }

    /// What was found, or a word for why nothing could be.
    pub(crate) fn finish(mut self, found: Result<&[Passage], &str>) {
        let documents = |passages: &[Passage]| {
            let documents = passages.iter().map(|Passage { source, .. }| {
                json!({"id": source.document_id, "score": source.score, "chunk_id": source.chunk_id, "page": source.page})
            });
            documents.collect::<Value>().to_string()
        };
        match found {
            Ok([]) => self.end("empty", Some("[]"), None),
            Ok(passages) => self.end("ok", Some(&documents(passages)), None),
            Err(kind) => self.end("error", None, Some(kind)),
        }
    }

    fn end(&mut self, outcome: &'static str, documents: Option<&str>, error: Option<&str>) {
        let Some(span) = self.span.take() else { return };
        self.recorder.0.meters.retrieval(&self.base, outcome, self.began.elapsed().as_secs_f64());
        span.finish(documents, error);
    }
}

impl Drop for RetrievalRecord {
    fn drop(&mut self) {
        self.end(CANCELLED, None, Some(CANCELLED));
    }
}
