//! The settings of a provider in the environment: base URLs, keys, and the context window. An empty value counts as unset.
//! Messages never quote values, because a base URL may hold a password.

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use crate::fault::{FaultKind, ModelFault};
use crate::prices;
use crate::provider::Provider;

pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

const WINDOW: &str = "RUNTIME_MODEL_CONTEXT_TOKENS";

/// The variables that say where a provider is asked, and with which key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProviderVariables {
    pub(crate) base: &'static str,
    pub(crate) key: &'static str,
}

impl ProviderVariables {
    /// That of an agent's own models, where the platform names them a server. No other key goes there.
    pub(crate) const INTEGRATION: Self = Self { base: "RUNTIME_MODEL_BASE_URL", key: "RUNTIME_MODEL_API_KEY" };

    pub(crate) fn missing(self) -> ModelFault {
        if self != Self::INTEGRATION {
            return missing(self.key);
        }
        let message = format!("{} is not set; put api_key into the Secret of the integration that the agent names", self.key);
        ModelFault::new(FaultKind::MissingKey, message)
    }
}

/// Name and value of the first of these variables that is set.
pub(crate) fn first<'a>(variables: Variables<'_>, names: &[&'a str]) -> Option<(&'a str, String)> {
    names.iter().find_map(|name| {
        let value = variables(name)?.trim().to_owned();
        (!value.is_empty()).then_some((*name, value))
    })
}

/// A base URL without a trailing slash.
pub(crate) fn base(variables: Variables<'_>, name: &str, default: &str) -> Result<Url, ModelFault> {
    let (text, named) = first(variables, &[name]).map_or((default.to_owned(), false), |(_, value)| (value, true));
    let wrong = |why: &str| {
        let of = if named { name } else { "the provider's address" };
        ModelFault::new(FaultKind::Misconfigured, format!("{of} is not a base URL: {why}; right would be {default}"))
    };
    let url = Url::parse(text.trim_end_matches('/')).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("it must begin with http:// or https://"));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("it has no host"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it must end with the path"));
    }
    Ok(url)
}

/// `base` with `path` appended unchanged.
pub(crate) fn under(base: &Url, path: &str) -> Result<Url, ModelFault> {
    let text = format!("{}/{path}", base.as_str().trim_end_matches('/'));
    Url::parse(&text).map_err(|error| ModelFault::new(FaultKind::Misconfigured, format!("the model's id does not fit into a URL: {error}")))
}

/// Encodes one segment of a path, so that it cannot leave the segment.
pub(crate) fn segment(text: &str) -> String {
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    match text {
        // URL parsers resolve these even when they are encoded.
        "." | ".." => "_".to_owned(),
        _ => utf8_percent_encode(text, KEPT).to_string(),
    }
}

/// A key as a sensitive header value, which `Debug` does not show.
pub(crate) fn key(variables: Variables<'_>, names: &[&str], prefix: &str) -> Result<Option<HeaderValue>, ModelFault> {
    first(variables, names).map(|(name, key)| secret(&format!("{prefix}{key}"), name)).transpose()
}

pub(crate) fn secret(text: &str, name: &str) -> Result<HeaderValue, ModelFault> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        ModelFault::new(FaultKind::Misconfigured, format!("{name} holds characters that no key has; see how it got into the Secret"))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

pub(crate) fn missing(names: &str) -> ModelFault {
    ModelFault::new(FaultKind::MissingKey, format!("{names} is not set; put it into the Secret agent-env of the agent's namespace"))
}

/// The context window: the configured one, that of the price table, or the smallest current one of the provider.
pub(crate) fn window(variables: Variables<'_>, provider: Provider, id: &str) -> Result<u32, ModelFault> {
    if let Some((_, text)) = first(variables, &[WINDOW]) {
        return text.parse().ok().filter(|window| *window >= 512).ok_or_else(|| {
            ModelFault::new(
                FaultKind::Misconfigured,
                format!("{WINDOW} is `{text}`; it takes the number of tokens that the model's context holds, 512 at least"),
            )
        });
    }
    Ok(prices::window(provider, id).unwrap_or(match provider {
        Provider::Stub | Provider::OpenAi | Provider::GoogleAi | Provider::VertexAi => 128_000,
        Provider::Anthropic => 200_000,
        // Each request to Ollama sets the window; a larger one may exceed the memory of a desktop.
        Provider::Ollama => 8_192,
        Provider::Bedrock => 32_000,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_taken_or_refused_without_being_repeated() {
        for (value, result) in [
            ("", Ok("http://default.example/v1")),
            ("http://localhost:11434/", Ok("http://localhost:11434/")),
            ("https://gate.example/openai/v1//", Ok("https://gate.example/openai/v1")),
            ("localhost:11434", Err("http://")),
            ("ftp://user:hunter2@host", Err("http://")),
            ("https://host/v1?key=hunter2", Err("must end with the path")),
            ("not a url", Err("BASE is not a base URL")),
        ] {
            let variables = |name: &str| (name == "BASE").then(|| value.to_owned());
            let found = base(&variables, "BASE", "http://default.example/v1");
            match (found, result) {
                (Ok(url), Ok(expected)) => assert_eq!(url.as_str(), expected, "{value}"),
                (Err(fault), Err(expected)) => {
                    assert!(fault.message().contains(expected) && !fault.message().contains("hunter2"), "{value}: {fault}");
                }
                (found, _) => panic!("{value}: {found:?}"),
            }
        }
    }

    #[test]
    fn paths_are_appended_as_they_stand() {
        let base = Url::parse("http://host/v1").unwrap();
        assert_eq!(under(&base, "model/a%3A0/converse-stream").unwrap().as_str(), "http://host/v1/model/a%3A0/converse-stream");
        assert_eq!(under(&Url::parse("http://host").unwrap(), "api/chat").unwrap().as_str(), "http://host/api/chat");
    }

    #[test]
    fn the_window_is_set_known_or_assumed() {
        for (value, id, expected) in [
            (None, "gpt-4o", Ok(128_000)),
            (None, "gpt-4", Ok(8_192)),
            (None, "of-my-own", Ok(128_000)),
            (Some("32000"), "gpt-4o", Ok(32_000)),
            (Some("many"), "gpt-4o", Err(())),
            (Some("0"), "gpt-4o", Err(())),
        ] {
            let variables = |name: &str| value.filter(|_| name == WINDOW).map(str::to_owned);
            assert_eq!(window(&variables, Provider::OpenAi, id).map_err(|_| ()), expected, "{value:?} {id}");
        }
    }

    #[test]
    fn keys_are_trimmed_and_marked() {
        let variables = |name: &str| (name == "KEY").then(|| " sk-1\n".to_owned());
        let key = key(&variables, &["OTHER", "KEY"], "Bearer ").unwrap().unwrap();
        assert!(key.is_sensitive());
        assert_eq!(key.as_bytes(), b"Bearer sk-1");
        assert!(!format!("{key:?}").contains("sk-1"));
        assert!(secret("a\nb", "KEY").unwrap_err().message().contains("KEY"));
    }
}
