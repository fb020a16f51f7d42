//! Gemini models of a Google Cloud project.

use std::sync::Arc;

use url::Url;

use crate::exchange::{EventReader, ProviderApi, WriteFuture};
use crate::fault::ModelFault;
use crate::gemini;
use crate::google::GoogleCredentials;
use crate::message::ModelRequest;
use crate::provider_settings::{self, Variables};
use crate::transport::ProviderCall;
use crate::wire::Framing;

pub(crate) struct VertexAi {
    id: String,
    place: VertexEndpoint,
    credentials: Arc<GoogleCredentials>,
}

/// Project, location and base URL of Vertex AI.
pub(crate) struct VertexEndpoint {
    base: Url,
    project: Option<String>,
    location: String,
}

impl VertexEndpoint {
    pub(crate) fn of(variables: Variables<'_>) -> Result<Self, ModelFault> {
        let location = provider_settings::first(variables, &["GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION"])
            .map_or("global".into(), |(_, value)| value);
        let default = if location == "global" {
            "https://aiplatform.googleapis.com".to_owned()
        } else {
            format!("https://{}-aiplatform.googleapis.com", provider_settings::segment(&location))
        };
        let base = provider_settings::base(variables, "GOOGLE_VERTEX_BASE_URL", &default)?;
        Ok(Self { base, project: provider_settings::first(variables, &["GOOGLE_CLOUD_PROJECT"]).map(|(_, value)| value), location })
    }

    /// The URL of a model's method, such as `predict`.
    pub(crate) async fn url(&self, credentials: &GoogleCredentials, id: &str, method: &str) -> Result<Url, ModelFault> {
        let project = match &self.project {
            Some(project) => project.clone(),
            None => credentials.project().await?,
        };
        let [project, location, id] = [project.as_str(), &self.location, id].map(provider_settings::segment);
        provider_settings::under(&self.base, &format!("v1/projects/{project}/locations/{location}/publishers/google/models/{id}:{method}"))
    }
}

impl VertexAi {
    pub(crate) fn open(id: &str, variables: Variables<'_>) -> Result<Self, ModelFault> {
        Ok(Self { id: id.to_owned(), place: VertexEndpoint::of(variables)?, credentials: Arc::new(GoogleCredentials::of(variables)?) })
    }
}

impl ProviderApi for VertexAi {
    fn write<'a>(&'a self, request: &'a ModelRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let url = self.place.url(&self.credentials, &self.id, "streamGenerateContent?alt=sse").await?;
            let token = self.credentials.token().await?;
            Ok(ProviderCall::json(url, &gemini::body(&self.id, request)).header("authorization", token))
        })
    }

    fn framing(&self) -> Framing {
        Framing::sse()
    }

    fn reader(&self) -> Box<dyn EventReader> {
        Box::new(gemini::Candidates::default())
    }
}
