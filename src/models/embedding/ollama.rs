//! Ollama's `/api/embed`. It cuts long texts itself.

use serde_json::json;
use url::Url;

use super::Purpose;
use super::catalog::Chosen;
use super::checked::{Batch, Raw, Source};
use super::remote::{list, numbers};
use crate::Fault;
use crate::settings::{self, Variables};
use crate::transport::{Call, Limits, Transport};

/// It computes one text after the other, whoever asks; small batches keep below the limits of time.
const BATCH: Batch = Batch { texts: 32, bytes: 256 << 10 };

pub(super) struct Ollama {
    url: Url,
    model: String,
    transport: Transport,
}

impl Ollama {
    pub(super) fn open(chosen: &Chosen, variables: Variables<'_>) -> Result<Self, Fault> {
        let base = settings::base(variables, "OLLAMA_BASE_URL", "http://localhost:11434")?;
        let transport = Transport::new("Ollama", &chosen.model, Limits::default());
        Ok(Self { url: settings::under(&base, "api/embed")?, model: chosen.model.clone(), transport })
    }
}

impl Source for Ollama {
    fn batch(&self) -> Batch {
        BATCH
    }

    fn vectors(&self, texts: Vec<String>, _purpose: Purpose) -> Raw<'_> {
        Box::pin(async move {
            let body = json!({"model": self.model, "input": texts, "truncate": true});
            let answer = self.transport.json(&Call::json(self.url.clone(), &body)).await?;
            list(&answer, "embeddings")?.iter().map(numbers).collect()
        })
    }
}
