//! Ollama's `/api/embed`. It cuts long texts itself.

use serde_json::json;
use url::Url;

use super::Purpose;
use super::catalog::ResolvedModel;
use super::checked::{BatchLimit, EmbeddingApi, RawVectors};
use super::remote::{list, numbers};
use crate::ModelFault;
use crate::provider_settings::{self, Variables};
use crate::transport::{ProviderCall, Transport, TransportLimits};

/// Ollama computes texts one by one, for all clients; small batches stay below the timeouts.
const BATCH_LIMIT: BatchLimit = BatchLimit { texts: 32, bytes: 256 << 10 };

pub(super) struct Ollama {
    url: Url,
    model: String,
    transport: Transport,
}

impl Ollama {
    pub(super) fn open(chosen: &ResolvedModel, variables: Variables<'_>) -> Result<Self, ModelFault> {
        let base = provider_settings::base(variables, "OLLAMA_BASE_URL", "http://localhost:11434")?;
        let transport = Transport::new("Ollama", &chosen.model, TransportLimits::default());
        Ok(Self { url: provider_settings::under(&base, "api/embed")?, model: chosen.model.clone(), transport })
    }
}

impl EmbeddingApi for Ollama {
    fn batch(&self) -> BatchLimit {
        BATCH_LIMIT
    }

    fn vectors(&self, texts: Vec<String>, _purpose: Purpose) -> RawVectors<'_> {
        Box::pin(async move {
            let body = json!({"model": self.model, "input": texts, "truncate": true});
            let answer = self.transport.json(&ProviderCall::json(self.url.clone(), &body)).await?;
            list(&answer, "embeddings")?.iter().map(numbers).collect()
        })
    }
}
