//! Gemini models with an API key.

use http::HeaderValue;
use url::Url;

use crate::exchange::{EventReader, ProviderApi, WriteFuture};
use crate::fault::ModelFault;
use crate::gemini;
use crate::message::ModelRequest;
use crate::provider_settings::{self, Variables};
use crate::transport::ProviderCall;
use crate::wire::Framing;

pub(crate) struct GoogleAi {
    id: String,
    url: Url,
    key: Option<HeaderValue>,
}

impl GoogleAi {
    pub(crate) fn open(id: &str, variables: Variables<'_>) -> Result<Self, ModelFault> {
        let base = provider_settings::base(variables, "GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com")?;
        let url =
            provider_settings::under(&base, &format!("v1beta/models/{}:streamGenerateContent?alt=sse", provider_settings::segment(id)))?;
        Ok(Self { id: id.to_owned(), url, key: provider_settings::key(variables, &["GOOGLE_API_KEY", "GEMINI_API_KEY"], "")? })
    }
}

impl ProviderApi for GoogleAi {
    fn write<'a>(&'a self, request: &'a ModelRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let key = self.key.clone().ok_or_else(|| provider_settings::missing("GOOGLE_API_KEY"))?;
            Ok(ProviderCall::json(self.url.clone(), &gemini::body(&self.id, request)).header("x-goog-api-key", key))
        })
    }

    fn framing(&self) -> Framing {
        Framing::sse()
    }

    fn reader(&self) -> Box<dyn EventReader> {
        Box::new(gemini::Candidates::default())
    }
}
