//! The providers, and opening a model of one of them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::answer::Model;
use crate::anthropic::{self, Anthropic};
use crate::bedrock::Bedrock;
use crate::exchange::{ProviderApi, RemoteModel};
use crate::fault::{FaultKind, ModelFault};
use crate::google_ai::GoogleAi;
use crate::ollama::Ollama;
use crate::openai::{self, OpenAi};
use crate::provider_settings::{self, ProviderVariables, Variables};
use crate::stub;
use crate::transport::{Transport, TransportLimits};
use crate::vertex_ai::VertexAi;

const TIMEOUT_VARIABLE: &str = "RUNTIME_MODEL_TIMEOUT_SECONDS";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    Stub,
    Ollama,
    OpenAi,
    Anthropic,
    GoogleAi,
    VertexAi,
    Bedrock,
}

impl Provider {
    pub const ALL: [Self; 7] = [Self::Stub, Self::Ollama, Self::OpenAi, Self::Anthropic, Self::GoogleAi, Self::VertexAi, Self::Bedrock];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stub => "stub",
            Self::Ollama => "ollama",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::GoogleAi => "google-ai",
            Self::VertexAi => "vertex-ai",
            Self::Bedrock => "bedrock",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Provider {
    type Err = ModelFault;

    fn from_str(name: &str) -> Result<Self, ModelFault> {
        let known = || Self::ALL.map(Self::as_str).join(", ");
        Self::ALL
            .into_iter()
            .find(|provider| provider.as_str() == name)
            .ok_or_else(|| ModelFault::new(FaultKind::Misconfigured, format!("there is no model provider `{name}`; there are {}", known())))
    }
}

/// Opens a model with the settings of the environment. A missing key fails the first call, as keys may be added later; an
/// invalid setting, such as a malformed base URL, fails here.
pub fn open(provider: Provider, id: &str, variables: &dyn Fn(&str) -> Option<String>) -> Result<Box<dyn Model>, ModelFault> {
    open_with_limits(limits(provider, variables)?, provider, id, variables)
}

/// As `open`, for an agent's own models of its provider: where the platform names these a server, they are asked there, with the key that
/// it gives beside it and no other. Other callers of a model, such as a judge, `open` it.
pub fn open_own(provider: Provider, id: &str, variables: &dyn Fn(&str) -> Option<String>) -> Result<Box<dyn Model>, ModelFault> {
    let place = ProviderVariables::INTEGRATION;
    if provider_settings::first(variables, &[place.base]).is_none() {
        return open(provider, id, variables);
    }
    let factory = || -> Result<_, ModelFault> {
        let (window, limits) = (provider_settings::window(variables, provider, id)?, limits(provider, variables)?);
        Ok(ModelFactory { provider, id, window, limits })
    };
    match provider {
        Provider::OpenAi => Ok(factory()?.over(OpenAi::open(id, place, variables)?)),
        Provider::Anthropic => Ok(factory()?.over(Anthropic::open(id, place, variables)?)),
        _ => open(provider, id, variables),
    }
}

/// As `open`, with limits other than those of the environment.
pub(crate) fn open_with_limits(
    limits: TransportLimits,
    provider: Provider,
    id: &str,
    variables: Variables<'_>,
) -> Result<Box<dyn Model>, ModelFault> {
    let window = provider_settings::window(variables, provider, id)?;
    let opening = ModelFactory { provider, id, window, limits };
    match provider {
        Provider::Stub => stub::open(id, window),
        Provider::Ollama => Ok(opening.over(Ollama::open(id, window, variables)?)),
        Provider::OpenAi => Ok(opening.over(OpenAi::open(id, openai::PLACE, variables)?)),
        Provider::Anthropic => Ok(opening.over(Anthropic::open(id, anthropic::PLACE, variables)?)),
        Provider::GoogleAi => Ok(opening.over(GoogleAi::open(id, variables)?)),
        Provider::VertexAi => Ok(opening.over(VertexAi::open(id, variables)?)),
        Provider::Bedrock => Ok(opening.over(Bedrock::open(id, variables)?)),
    }
}

struct ModelFactory<'a> {
    provider: Provider,
    id: &'a str,
    window: u32,
    limits: TransportLimits,
}

impl ModelFactory<'_> {
    fn over<W: ProviderApi>(&self, wire: W) -> Box<dyn Model> {
        let transport = Transport::new(self.provider.as_str(), self.id, self.limits);
        Box::new(RemoteModel {
            provider: self.provider,
            id: self.id.to_owned(),
            window: self.window,
            wire: Arc::new(wire),
            transport: Arc::new(transport),
        })
    }
}

/// The timeouts of a provider. One setting decides both the time to the first byte and the idle time.
fn limits(provider: Provider, variables: Variables<'_>) -> Result<TransportLimits, ModelFault> {
    let mut limits = TransportLimits::default();
    if provider == Provider::Ollama {
        // A local server may load tens of gigabytes before the first byte.
        limits.first_byte *= 2;
    }
    if let Some((_, text)) = provider_settings::first(variables, &[TIMEOUT_VARIABLE]) {
        let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= 86_400.0).ok_or_else(|| {
            ModelFault::new(FaultKind::Misconfigured, format!("{TIMEOUT_VARIABLE} is `{text}`; it takes a number of seconds, up to a day"))
        })?;
        limits.first_byte = Duration::from_secs_f64(seconds);
        limits.idle = limits.first_byte;
    }
    Ok(limits)
}

/// A model named `provider:model_id`.
pub fn open_uri(uri: &str, variables: &dyn Fn(&str) -> Option<String>) -> Result<Box<dyn Model>, ModelFault> {
    match uri.split_once(':') {
        Some((provider, id)) if !id.is_empty() => open(provider.parse()?, id, variables),
        _ => Err(ModelFault::new(FaultKind::Misconfigured, format!("`{uri}` names no model; a model is written provider:model_id"))),
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;
    use crate::message::{Message, ModelRequest};

    #[test]
    fn providers_are_known_by_their_names() {
        for provider in Provider::ALL {
            assert_eq!(provider.as_str().parse(), Ok(provider));
        }
        let fault = "azure".parse::<Provider>().unwrap_err();
        assert!(fault.message().contains("azure") && fault.message().contains("vertex-ai"), "{fault}");
    }

    #[test]
    fn a_model_is_opened_by_provider_and_id() {
        for (uri, opened) in [
            ("stub:stub-echo", Ok((Provider::Stub, "stub-echo"))),
            ("ollama:llama3.2:3b", Ok((Provider::Ollama, "llama3.2:3b"))),
            ("openai:gpt-4o", Ok((Provider::OpenAi, "gpt-4o"))),
            ("stub-echo", Err("provider:model_id")),
            ("openai:", Err("provider:model_id")),
            ("azure:gpt-4o", Err("azure")),
            ("stub:parrot", Err("parrot")),
        ] {
            let model = open_uri(uri, &|_| None);
            match (&model, opened) {
                (Ok(model), Ok(expected)) => assert_eq!((model.provider(), model.id()), expected),
                (Err(fault), Err(expected)) => assert!(fault.message().contains(expected), "{fault}"),
                _ => panic!("{uri}"),
            }
        }
    }

    #[tokio::test]
    async fn an_agents_own_models_are_asked_where_the_platform_says() {
        let given = [("OPENAI_API_KEY", "sk-other"), ("ANTHROPIC_API_KEY", "sk-other"), ("RUNTIME_MODEL_BASE_URL", "nonsense")];
        let variables = |name: &str| given.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        for provider in [Provider::OpenAi, Provider::Anthropic] {
            let fault = open_own(provider, "m", &variables).err().unwrap();
            assert!(*fault.kind() == FaultKind::Misconfigured && fault.message().contains("RUNTIME_MODEL_BASE_URL"), "{fault}");
            assert!(open(provider, "m", &variables).is_ok(), "nobody else is asked there");
        }
        assert!(open_own(Provider::GoogleAi, "m", &variables).is_ok(), "no integration gives it a server");

        // The key of another server is not sent to this one, and without a server there is none for the key.
        for (base, key, named) in [
            (Some("https://api.openai.com/v1"), None, "RUNTIME_MODEL_API_KEY"),
            (Some("https://api.openai.com/v1"), Some(" "), "RUNTIME_MODEL_API_KEY"),
            (None, Some("sk-1"), "OPENAI_API_KEY"),
        ] {
            let variables = |name: &str| match name {
                "RUNTIME_MODEL_BASE_URL" => base.map(str::to_owned),
                "RUNTIME_MODEL_API_KEY" => key.map(str::to_owned),
                "OPENAI_API_KEY" => base.map(|_| "sk-other".to_owned()),
                _ => None,
            };
            let model = open_own(Provider::OpenAi, "m", &variables).unwrap();
            let request = ModelRequest { messages: vec![Message::user("hi")], ..ModelRequest::default() };
            let pieces: Vec<_> = model.answer(request).collect().await;
            let [Err(fault)] = &pieces[..] else { panic!("{pieces:?}") };
            assert!(*fault.kind() == FaultKind::MissingKey && fault.message().contains(named), "{base:?} {key:?}: {fault}");
        }
    }

    #[tokio::test]
    async fn a_missing_key_is_told_by_the_first_answer_and_names_the_variable() {
        for (provider, variable) in [
            (Provider::OpenAi, "OPENAI_API_KEY"),
            (Provider::Anthropic, "ANTHROPIC_API_KEY"),
            (Provider::GoogleAi, "GOOGLE_API_KEY"),
            (Provider::Bedrock, "AWS_ACCESS_KEY_ID"),
        ] {
            let variables = |name: &str| (name == "AWS_REGION").then(|| "us-east-1".to_owned());
            let model = open(provider, "some-model", &variables).unwrap();
            let request = ModelRequest { messages: vec![Message::user("hi")], ..ModelRequest::default() };
            let pieces: Vec<_> = model.answer(request).collect().await;
            let [Err(fault)] = &pieces[..] else { panic!("{pieces:?}") };
            assert_eq!(*fault.kind(), FaultKind::MissingKey);
            assert!(fault.message().contains(variable) && fault.message().contains("agent-env"), "{fault}");
        }
    }

    #[test]
    fn settings_that_can_never_be_right_are_told_at_once() {
        for (provider, name, value) in [
            (Provider::Ollama, "OLLAMA_BASE_URL", "localhost"),
            (Provider::OpenAi, "OPENAI_BASE_URL", "nonsense"),
            (Provider::OpenAi, "OPENAI_API_KEY", "two\nlines"),
            (Provider::Anthropic, "ANTHROPIC_BASE_URL", "ftp://x"),
            (Provider::GoogleAi, "GOOGLE_GEMINI_BASE_URL", "x"),
            (Provider::VertexAi, "GOOGLE_VERTEX_BASE_URL", "x"),
            (Provider::Ollama, "RUNTIME_MODEL_CONTEXT_TOKENS", "lots"),
            (Provider::Ollama, TIMEOUT_VARIABLE, "-1"),
        ] {
            let fault = open(provider, "m", &|asked| (asked == name).then(|| value.to_owned())).err().unwrap();
            assert_eq!(*fault.kind(), FaultKind::Misconfigured);
            assert!(fault.message().contains(name), "{fault}");
        }
    }
}
