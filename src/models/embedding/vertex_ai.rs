//! Embedding models of a Google Cloud project: `:predict` of the publisher's model. Google cuts long texts itself.

use serde_json::{Value, json};

use super::Purpose;
use super::catalog::ResolvedModel;
use super::checked::{BatchLimit, EmbeddingApi, RawVectors};
use super::remote::{list, numbers};
use crate::ModelFault;
use crate::google::GoogleCredentials;
use crate::provider_settings::Variables;
use crate::transport::{ProviderCall, Transport, TransportLimits};
use crate::vertex_ai::VertexEndpoint;

pub(super) struct VertexAi {
    model: String,
    shortened: Option<usize>,
    place: VertexEndpoint,
    credentials: GoogleCredentials,
    transport: Transport,
}

impl VertexAi {
    pub(super) fn open(chosen: &ResolvedModel, variables: Variables<'_>) -> Result<Self, ModelFault> {
        Ok(Self {
            model: chosen.model.clone(),
            shortened: chosen.shortened,
            place: VertexEndpoint::of(variables)?,
            credentials: GoogleCredentials::of(variables)?,
            transport: Transport::new("Vertex AI", &chosen.model, TransportLimits::default()),
        })
    }

    fn body(&self, texts: &[String], purpose: Purpose) -> Value {
        let task = match purpose {
            Purpose::Query => "RETRIEVAL_QUERY",
            Purpose::Passage => "RETRIEVAL_DOCUMENT",
        };
        let instances: Vec<Value> = texts.iter().map(|text| json!({"content": text, "task_type": task})).collect();
        let mut parameters = json!({"autoTruncate": true});
        if let Some(length) = self.shortened {
            parameters["outputDimensionality"] = length.into();
        }
        json!({"instances": instances, "parameters": parameters})
    }
}

impl EmbeddingApi for VertexAi {
    /// The newest family accepts one text per request, the oldest five; the others 20,000 tokens together.
    fn batch(&self) -> BatchLimit {
        let texts = match self.model.as_str() {
            model if model.starts_with("gemini-") => 1,
            model if model.starts_with("textembedding-gecko") => 5,
            _ => 64,
        };
        BatchLimit { texts, bytes: 20_000 }
    }

    fn vectors(&self, texts: Vec<String>, purpose: Purpose) -> RawVectors<'_> {
        Box::pin(async move {
            let url = self.place.url(&self.credentials, &self.model, "predict").await?;
            let call = ProviderCall::json(url, &self.body(&texts, purpose)).header("authorization", self.credentials.token().await?);
            let answer = self.transport.json(&call).await?;
            list(&answer, "predictions")?.iter().map(|prediction| numbers(&prediction["embeddings"]["values"])).collect()
        })
    }
}
