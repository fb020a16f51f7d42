//! Embedding models of a Google Cloud project: `:predict` of the publisher's model. Google cuts long texts itself.

use serde_json::{Value, json};

use super::Purpose;
use super::catalog::Chosen;
use super::checked::{Batch, Raw, Source};
use super::remote::{list, numbers};
use crate::Fault;
use crate::google::Credentials;
use crate::settings::Variables;
use crate::transport::{Call, Limits, Transport};
use crate::vertex_ai::Place;

pub(super) struct VertexAi {
    model: String,
    shortened: Option<usize>,
    place: Place,
    credentials: Credentials,
    transport: Transport,
}

impl VertexAi {
    pub(super) fn open(chosen: &Chosen, variables: Variables<'_>) -> Result<Self, Fault> {
        Ok(Self {
            model: chosen.model.clone(),
            shortened: chosen.shortened,
            place: Place::of(variables)?,
            credentials: Credentials::of(variables)?,
            transport: Transport::new("Vertex AI", &chosen.model, Limits::default()),
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

impl Source for VertexAi {
    /// The newest family takes one text at a time, the oldest five; the others take 20,000 tokens together.
    fn batch(&self) -> Batch {
        let texts = match self.model.as_str() {
            model if model.starts_with("gemini-") => 1,
            model if model.starts_with("textembedding-gecko") => 5,
            _ => 64,
        };
        Batch { texts, bytes: 20_000 }
    }

    fn vectors(&self, texts: Vec<String>, purpose: Purpose) -> Raw<'_> {
        Box::pin(async move {
            let url = self.place.url(&self.credentials, &self.model, "predict").await?;
            let call = Call::json(url, &self.body(&texts, purpose)).header("authorization", self.credentials.token().await?);
            let answer = self.transport.json(&call).await?;
            list(&answer, "predictions")?.iter().map(|prediction| numbers(&prediction["embeddings"]["values"])).collect()
        })
    }
}
