//! `slack`: incoming webhooks in the form that Slack, Mattermost and Rocket.Chat take. Texts of alerts come from policies and names,
//! so that nothing of them is a link or a mention.

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_api::integration::SlackIntegration;

use crate::exchange::{self, Line, ServerCall};
use crate::login::IntegrationLogin;
use crate::outcome::{ConnectionFault, Reason, Subject};

const CRITICAL: &str = "#d00000";
const WARNING: &str = "#e0a000";
const RESOLVED: &str = "#2e7d32";
/// How long a text may be. An alert's message is shorter.
const TEXT_CHARACTERS_MAX: usize = 2000;

pub(crate) async fn ask(config: &SlackIntegration, login: &IntegrationLogin<'_>, line: &Line<'_>) -> Result<String, ConnectionFault> {
    let body = json!({"type": "test", "timestamp": Timestamp::now().to_string(), "data": {}});
    let answer = line.send(message(config, login, &body)?).await?;
    // The URL is the login: one that leads nowhere is a wrong one.
    if matches!(answer.status.as_u16(), 401 | 403 | 404 | 410) {
        let status = answer.status.as_u16();
        return Err(ConnectionFault::new(Reason::Unauthorized, format!("{} refuses webhook_url (status {status})", answer.place)));
    }
    let subject = Subject { server: "an incoming webhook", missing: None, has_login: true };
    let answer = answer.successful(subject)?;
    Ok(format!("{} takes messages (status {})", answer.place, answer.status.as_u16()))
}

/// The request that brings a message.
pub(crate) fn message(config: &SlackIntegration, login: &IntegrationLogin<'_>, body: &Value) -> Result<ServerCall, ConnectionFault> {
    let url = exchange::url(login.required("webhook_url")?);
    let invalid =
        || ConnectionFault::new(Reason::Invalid, "the Secret's key webhook_url is no http or https URL without user and password");
    Ok(ServerCall::post(url.ok_or_else(invalid)?, &form(config, body)))
}

/// What is sent of a message in the form of webhooks.
pub(crate) fn form(config: &SlackIntegration, body: &Value) -> Value {
    let data = &body["data"];
    let mut form = json!({"text": text(body)});
    if body["type"] != "test" {
        let field = |title: &str, value: String| (!value.is_empty()).then(|| json!({"title": title, "value": value, "short": true}));
        let fields = [
            ("Agent", "agent"),
            ("Team", "team"),
            ("Metric", "metric"),
            ("Value", "value"),
            ("Threshold", "threshold"),
            ("Policy", "policy"),
        ];
        let fields: Vec<Value> = fields.into_iter().filter_map(|(title, name)| field(title, shown(&data[name]))).collect();
        let mut attachment = json!({"color": color(body), "fallback": text(body), "text": shown(&data["message"]), "fields": fields});
        if let Some(time) = body["timestamp"].as_str().and_then(|time| time.parse::<Timestamp>().ok()) {
            attachment["ts"] = json!(time.as_second());
        }
        form["attachments"] = json!([attachment]);
    }
    for (name, value) in [("username", &config.username), ("channel", &config.channel)] {
        if let Some(value) = value {
            form[name] = json!(value);
        }
    }
    form
}

/// The line that notifications show.
fn text(body: &Value) -> String {
    let data = &body["data"];
    let of = |name: &str| shown(&data[name]);
    let about = || format!("{} (team {}): {}", of("agent"), of("team"), of("metric"));
    match body["type"].as_str() {
        Some("test") => "Slipway tests this integration.".to_owned(),
        Some("alert.resolved") => format!("resolved: {}", about()),
        _ if data["value"].is_null() || data["threshold"].is_null() => format!("{}: {}", of("severity"), about()),
        _ => format!("{}: {} is {}, from {} on", of("severity"), about(), of("value"), of("threshold")),
    }
}

fn color(body: &Value) -> &'static str {
    match (body["type"].as_str(), body["data"]["severity"].as_str()) {
        (Some("alert.resolved"), _) => RESOLVED,
        (_, Some("critical")) => CRITICAL,
        _ => WARNING,
    }
}

/// A value as text, in which nothing is a link or a mention.
fn shown(value: &Value) -> String {
    let text: String = match value {
        Value::String(text) => text.chars().take(TEXT_CHARACTERS_MAX).collect(),
        // Without the digits that nobody has measured.
        Value::Number(number) => number.as_f64().map(|number| ((number * 100.0).round() / 100.0).to_string()).unwrap_or_default(),
        _ => String::new(),
    };
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(kind: &str, agent: &str) -> Value {
        json!({"type": kind, "timestamp": "2026-03-01T10:00:00Z", "data": {
            "id": "al_1", "team": "a", "agent_id": "ag_1", "agent": agent, "severity": "critical", "metric": "error_rate_pct",
            "policy": null, "value": 34.000_000_001, "threshold": 20.0, "message": "34 % of 50 requests failed",
        }})
    }

    #[test]
    fn an_alert_is_a_line_and_an_attachment() {
        let config = SlackIntegration { username: Some("Slipway".to_owned()), channel: None };
        let expected = json!({
            "text": "critical: helper (team a): error_rate_pct is 34, from 20 on",
            "username": "Slipway",
            "attachments": [{
                "color": "#d00000",
                "fallback": "critical: helper (team a): error_rate_pct is 34, from 20 on",
                "text": "34 % of 50 requests failed",
                "ts": 1_772_359_200,
                "fields": [
                    {"title": "Agent", "value": "helper", "short": true},
                    {"title": "Team", "value": "a", "short": true},
                    {"title": "Metric", "value": "error_rate_pct", "short": true},
                    {"title": "Value", "value": "34", "short": true},
                    {"title": "Threshold", "value": "20", "short": true},
                ],
            }],
        });
        assert_eq!(form(&config, &alert("alert.raised", "helper")), expected);
        let resolved = form(&SlackIntegration::default(), &alert("alert.resolved", "helper"));
        assert_eq!(
            (&resolved["text"], &resolved["attachments"][0]["color"]),
            (&json!("resolved: helper (team a): error_rate_pct"), &json!(RESOLVED))
        );
        let test = form(&SlackIntegration::default(), &json!({"type": "test", "data": {}}));
        assert_eq!(test, json!({"text": "Slipway tests this integration."}));
    }

    #[test]
    fn nothing_in_a_text_is_a_mention() {
        let sent = form(&SlackIntegration::default(), &alert("alert.raised", "<!channel> & <http://evil.example|here>")).to_string();
        assert!(!sent.contains('<') && !sent.contains('>'), "{sent}");
        assert!(sent.contains("&lt;!channel&gt; &amp; &lt;http"), "{sent}");
    }
}
