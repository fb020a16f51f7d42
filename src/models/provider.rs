//! Which providers there are, and how a model of one is opened.

use std::fmt;
use std::str::FromStr;

use crate::answer::Model;
use crate::fault::{Fault, FaultKind};
use crate::stub;

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
    type Err = Fault;

    fn from_str(name: &str) -> Result<Self, Fault> {
        let known = || Self::ALL.map(Self::as_str).join(", ");
        Self::ALL
            .into_iter()
            .find(|provider| provider.as_str() == name)
            .ok_or_else(|| Fault::new(FaultKind::Misconfigured, format!("there is no model provider `{name}`; there are {}", known())))
    }
}

/// A model as the environment describes it. A missing key is told by the first answer, because keys may come later;
/// what can never be right, such as a base URL that is none, is told here.
pub fn open(provider: Provider, id: &str, variables: &dyn Fn(&str) -> Option<String>) -> Result<Box<dyn Model>, Fault> {
    let _ = variables;
    match provider {
        Provider::Stub => stub::open(id),
        other => Err(Fault::new(FaultKind::Misconfigured, format!("the provider {other} is not built in"))),
    }
}

/// A model named `provider:model_id`.
pub fn open_uri(uri: &str, variables: &dyn Fn(&str) -> Option<String>) -> Result<Box<dyn Model>, Fault> {
    match uri.split_once(':') {
        Some((provider, id)) if !id.is_empty() => open(provider.parse()?, id, variables),
        _ => Err(Fault::new(FaultKind::Misconfigured, format!("`{uri}` names no model; a model is written provider:model_id"))),
    }
}
