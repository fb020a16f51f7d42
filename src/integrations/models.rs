//! `openai` and `anthropic`: the list of models, and where a server has none, one token of the model that the integration names.

use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use slipway_api::integration::ModelIntegration;
use url::Url;

use crate::exchange::{Line, ServerAnswer, ServerCall, beneath};
use crate::login::IntegrationLogin;
use crate::outcome::{ConnectionFault, Subject};

const API_KEY: &str = "x-api-key";
const API_VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

#[derive(Deserialize)]
struct List {
    #[serde(rename = "data")]
    _data: Vec<IgnoredAny>,
}

/// A completion has the one, a message the other. Nothing of an answer is kept: a server may answer at length.
#[derive(Deserialize)]
struct Said {
    choices: Option<Vec<IgnoredAny>>,
    content: Option<Vec<IgnoredAny>>,
}

/// What differs between the two.
struct Protocol<'a> {
    server: &'a str,
    list: &'a str,
    completion: &'a str,
    login: (HeaderName, Option<HeaderValue>),
    version: Option<(&'static str, &'static str)>,
}

pub(crate) async fn openai(
    server: &Url,
    config: &ModelIntegration,
    login: &IntegrationLogin<'_>,
    line: &Line<'_>,
) -> Result<String, ConnectionFault> {
    let login = (AUTHORIZATION, login.header("api_key", "Bearer ")?);
    let protocol = Protocol { server: "an OpenAI-compatible server", list: "models", completion: "chat/completions", login, version: None };
    ask(server, config, line, protocol).await
}

pub(crate) async fn anthropic(
    server: &Url,
    config: &ModelIntegration,
    login: &IntegrationLogin<'_>,
    line: &Line<'_>,
) -> Result<String, ConnectionFault> {
    login.required("api_key")?;
    let login = (HeaderName::from_static(API_KEY), login.header("api_key", "")?);
    let protocol = Protocol {
        server: "an Anthropic-compatible server",
        list: "v1/models?limit=1",
        completion: "v1/messages",
        login,
        version: Some(API_VERSION),
    };
    ask(server, config, line, protocol).await
}

async fn ask(server: &Url, config: &ModelIntegration, line: &Line<'_>, protocol: Protocol<'_>) -> Result<String, ConnectionFault> {
    let Protocol { server: name, list, completion, login: (header, key), version } = protocol;
    let subject = Subject { server: name, missing: None, has_login: key.is_some() };
    let dressed = |call: ServerCall| {
        let call = call.with(header.clone(), key.clone());
        match version {
            Some((name, value)) => call.with(HeaderName::from_static(name), Some(HeaderValue::from_static(value))),
            None => call,
        }
    };
    let answer = line.send(dressed(ServerCall::get(beneath(server, list)?))).await?;
    let lists_none = matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
    let Some(model) = config.model.as_deref().filter(|_| lists_none) else {
        return listed(answer, subject);
    };
    let body = json!({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]});
    let missing = format!("there is no model {model}");
    let answer = line.send(dressed(ServerCall::post(beneath(server, completion)?, &body))).await?;
    let answer = answer.successful(Subject { missing: Some(&missing), ..subject })?;
    let Said { choices, content } = answer.json(name)?;
    if choices.is_none() && content.is_none() {
        return Err(ConnectionFault::other(&answer.place, name));
    }
    Ok(format!("{} lists no models, and answers by model {model}", answer.place))
}

fn listed(answer: ServerAnswer, subject: Subject<'_>) -> Result<String, ConnectionFault> {
    let answer = answer.successful(subject)?;
    let _: List = answer.json(subject.server)?;
    Ok(format!("{} lists its models", answer.place))
}
