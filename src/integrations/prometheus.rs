//! `prometheus`: whether the server computes.

use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use url::Url;

use crate::exchange::{Line, ServerCall, beneath};
use crate::login::IntegrationLogin;
use crate::outcome::{ConnectionFault, Subject};

const SERVER: &str = "a Prometheus server";

#[derive(Deserialize)]
struct Answer {
    status: String,
    data: Data,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
}

pub(crate) async fn ask(server: &Url, login: &IntegrationLogin<'_>, line: &Line<'_>) -> Result<String, ConnectionFault> {
    let authorization = login.authorization()?;
    let subject = Subject { server: SERVER, missing: None, has_login: authorization.is_some() };
    let url = beneath(server, "api/v1/query?query=vector(1)")?;
    let answer = line.send(ServerCall::get(url).with(AUTHORIZATION, authorization)).await?.successful(subject)?;
    let Answer { status, data } = answer.json(SERVER)?;
    if status != "success" || data.result_type != "vector" {
        return Err(ConnectionFault::other(&answer.place, SERVER));
    }
    Ok(format!("{} answers queries", answer.place))
}
