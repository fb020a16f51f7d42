//! `webhook`: messages signed as Standard Webhooks has them. A test is a message, too.

use jiff::Timestamp;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::{Value, json};
use slipway_api::contract::tools::CONNECTION_HEADERS;
use slipway_api::integration::WebhookIntegration;

use crate::exchange::{self, Line, ServerCall};
use crate::login::IntegrationLogin;
use crate::outcome::{ConnectionFault, Reason, Subject};
use crate::signature::SigningKey;

const ID: &str = "webhook-id";
const TIMESTAMP: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";

pub(crate) async fn ask(config: &WebhookIntegration, login: &IntegrationLogin<'_>, line: &Line<'_>) -> Result<String, ConnectionFault> {
    let now = Timestamp::now();
    let id = format!("msg_test{}", now.as_microsecond());
    let body = json!({"type": "test", "timestamp": now.to_string(), "data": {}});
    let missing = "there is nothing that takes messages at the path of url";
    let subject = Subject { server: "a receiver of webhooks", missing: Some(missing), has_login: true };
    let answer = line.send(message(config, login, &id, &body)?).await?.successful(subject)?;
    Ok(format!("{} takes messages (status {})", answer.place, answer.status.as_u16()))
}

/// The request that brings a message, signed now.
pub(crate) fn message(
    config: &WebhookIntegration,
    login: &IntegrationLogin<'_>,
    id: &str,
    body: &Value,
) -> Result<ServerCall, ConnectionFault> {
    let invalid = |message: String| ConnectionFault::new(Reason::Invalid, message);
    let url = exchange::url(&config.url).ok_or_else(|| invalid("url is no http or https URL without user and password".to_owned()))?;
    let key = SigningKey::read(login.required("signing_secret")?);
    let key = key.map_err(|why| invalid(format!("the Secret's key signing_secret {why}")))?;
    let now = Timestamp::now().as_second();
    let mut call = ServerCall::post(url, body);
    for (name, value) in &config.headers {
        let header = name.parse::<HeaderName>().ok().filter(|header| !CONNECTION_HEADERS.contains(&header.as_str()));
        let (Some(header), Ok(value)) = (header, HeaderValue::from_str(value)) else {
            return Err(invalid("headers has one that cannot be sent".to_owned()));
        };
        call = call.with(header, Some(value));
    }
    let signature = key.sign(id, now, call.body.as_deref().unwrap_or_default());
    let plain = |value: &str| HeaderValue::from_str(value).map_err(|_| invalid("the message's id cannot be sent".to_owned()));
    Ok(call
        .with(AUTHORIZATION, login.header("token", "Bearer ")?)
        .with(HeaderName::from_static(ID), Some(plain(id)?))
        .with(HeaderName::from_static(TIMESTAMP), Some(HeaderValue::from(now)))
        .with(HeaderName::from_static(SIGNATURE), Some(plain(&signature)?)))
}
