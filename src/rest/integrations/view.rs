//! An integration as REST shows it: of its login no more than the names of the keys.

use kube::ResourceExt;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};
use slipway_api::guardrail_policy::Severity;
use slipway_api::integration::{AlertSubscription, DeliveryStatus, IntegrationPhase, IntegrationTest, IntegrationType};
use slipway_api::{Integration, condition};
use slipway_http::Error;

use super::types::schema;
use crate::fields;
use crate::list_cache::{self, ListEntry};

/// An integration.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Integration")]
pub(crate) struct View {
    pub id: String,
    /// The resource's name, which sources, tools, agents and paths may use instead of the id.
    pub slug: String,
    pub name: String,
    pub description: Option<String>,
    #[serde(rename = "type")]
    pub kind: IntegrationType,
    pub status: Status,
    /// Why it is not connected, if that is so.
    pub message: Option<String>,
    pub config: Config,
    /// The Secret with the login, where it is not the integration's own.
    pub credentials_secret: Option<String>,
    /// The keys that the login has. Their values are never shown.
    pub credential_keys: Vec<String>,
    /// The alerts that are sent there. Null: none.
    pub alerts: Option<Alerts>,
    pub last_test: Option<LastTest>,
    /// How the delivery of alerts stands. Null while none was to be sent.
    pub delivery: Option<Delivery>,
    pub resource_version: Option<String>,
    pub created_at: String,
}

/// An integration that was written.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "IntegrationWritten")]
pub(crate) struct Written {
    #[serde(flatten)]
    pub view: View,
    /// What was made for the login, which is shown this once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generated: Option<Generated>,
}

/// What the platform has made for a login. It has no `Debug`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "IntegrationGenerated")]
pub(crate) struct Generated {
    /// What messages to the webhook are signed with.
    pub signing_secret: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "IntegrationStatus")]
pub(crate) enum Status {
    /// The last test of it as it is reached the server.
    Connected,
    /// It did not, or something stands in the way of a test.
    Error,
    /// It was not tested as it is, or its login is not there.
    Disconnected,
}

impl Status {
    pub(crate) const ALL: [Self; 3] = [Self::Connected, Self::Error, Self::Disconnected];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Error => "error",
            Self::Disconnected => "disconnected",
        }
    }

    const fn of_test(succeeded: bool) -> Self {
        if succeeded { Self::Connected } else { Self::Error }
    }
}

/// Where the server is, by the fields of the type.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Config(Map<String, Value>);

impl JsonSchema for Config {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "IntegrationConfig".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let forms: Vec<Value> = IntegrationType::ALL.iter().map(|kind| fields::form(schema(*kind))).collect();
        Schema::try_from(json!({"anyOf": forms})).unwrap_or_default()
    }
}

/// Which alerts are sent. An empty list stands for all.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "IntegrationAlerts")]
pub(crate) struct Alerts {
    pub severities: Vec<Severity>,
    /// By slug.
    pub agents: Vec<String>,
    pub metrics: Vec<String>,
    /// Whether the end of an alert is sent, too.
    pub resolved: bool,
}

impl From<AlertSubscription> for Alerts {
    fn from(AlertSubscription { severities, agents, metrics, resolved }: AlertSubscription) -> Self {
        Self { severities, agents, metrics, resolved }
    }
}

/// What came of a test.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "IntegrationTested")]
pub(crate) struct Tested {
    /// `connected` or `error`.
    pub status: Status,
    pub message: String,
    /// How long the server took to answer. Null where it did not.
    pub latency_ms: Option<i64>,
}

impl From<&IntegrationTest> for Tested {
    fn from(test: &IntegrationTest) -> Self {
        Self { status: Status::of_test(test.succeeded), message: spelled(&test.message), latency_ms: test.latency_ms }
    }
}

/// The last test.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "IntegrationLastTest")]
pub(crate) struct LastTest {
    #[serde(flatten)]
    pub outcome: Tested,
    pub at: Option<String>,
}

/// Alerts that are on their way.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "IntegrationDelivery")]
pub(crate) struct Delivery {
    /// How many wait, in steps: 0, 1, 10, 100, 1000.
    pub waiting: i64,
    /// Since when none has arrived, if the last one did not.
    pub failing_since: Option<String>,
    /// What the receiver said last, while it takes none.
    pub last_error: Option<String>,
}

impl From<DeliveryStatus> for Delivery {
    fn from(DeliveryStatus { waiting, failing_since, last_error }: DeliveryStatus) -> Self {
        Self { waiting, failing_since: failing_since.map(|since| since.0.to_string()), last_error }
    }
}

/// What a list is filtered by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IntegrationState {
    pub kind: IntegrationType,
    pub status: Status,
}

impl View {
    pub(super) fn of(integration: &Integration) -> Result<Self, Error> {
        let spec = &integration.spec;
        let kind = spec.kind().ok_or_else(|| Error::internal("an integration is of no type, or of several"))?;
        let status = integration.status.clone().unwrap_or_default();
        // Of another spec than the present one nothing is known yet.
        let is_current = status.observed_generation == integration.metadata.generation;
        let ready = status.conditions.iter().find(|found| is_current && found.type_ == condition::READY);
        let config = match fields::to_callers(schema(kind), spec.config())? {
            Value::Object(config) => Config(config),
            _ => Config(Map::new()),
        };
        Ok(Self {
            id: integration.id(),
            slug: integration.name_any(),
            name: spec.name.clone(),
            description: spec.description.clone(),
            kind,
            status: match status.phase.filter(|_| is_current) {
                Some(IntegrationPhase::Connected) => Status::Connected,
                Some(IntegrationPhase::Error) => Status::Error,
                Some(IntegrationPhase::Disconnected) | None => Status::Disconnected,
            },
            message: ready.filter(|ready| ready.status != "True").map(|ready| spelled(&ready.message)),
            config,
            credentials_secret: spec.credentials_secret.clone().filter(|secret| !integration.owns(secret)),
            credential_keys: status.credential_keys,
            alerts: spec.alerts.clone().map(Alerts::from),
            last_test: status.last_test.map(|test| LastTest { outcome: Tested::from(&test), at: test.at.map(|at| at.0.to_string()) }),
            delivery: status.delivery.map(Delivery::from),
            resource_version: integration.resource_version(),
            created_at: crate::agents::time(integration.creation_timestamp().map(|time| time.0)),
        })
    }
}

/// What the manager says of a field, as callers spell that. What it says of a server stays as it is.
fn spelled(message: &str) -> String {
    let is_of_a_field = ["spec.", "credentialsSecret: "].iter().any(|start| message.starts_with(start));
    if is_of_a_field { fields::spelled(message) } else { message.to_owned() }
}

pub(crate) fn item(integration: &Integration) -> Option<ListEntry<IntegrationState>> {
    let mut view = View::of(integration).ok()?;
    view.message = list_cache::truncate(view.message);
    let description = view.description.as_deref().unwrap_or_default();
    Some(ListEntry {
        id: view.id.clone(),
        version: 0,
        created: integration.creation_timestamp().map_or(0, |time| time.0.as_second()),
        search: format!("{} {} {} {description}", view.slug, view.name, view.kind.as_str()).to_lowercase().into(),
        json: serde_json::to_string(&view).ok()?.into(),
        omitted: None,
        data: IntegrationState { kind: view.kind, status: view.status },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(generation: i64, status: &Value) -> Value {
        let metadata = json!({"name": "drive", "namespace": "team-a", "generation": generation});
        let spec = json!({"name": "Drive", "googleDrive": {"endpoint": "https://drive.example.com"}, "credentialsSecret": "in-drive"});
        let object: Integration = serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap();
        serde_json::to_value(View::of(&object).unwrap()).unwrap()
    }

    #[test]
    fn a_status_counts_for_the_spec_that_it_speaks_of() {
        let ready = json!([{"type": "Ready", "status": "False", "reason": "Unauthorized", "message": "no", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let test = json!({"id": "change", "digest": "d", "succeeded": false, "reason": "Unauthorized", "message": "no", "latencyMs": 7});
        let status = json!({"phase": "Error", "observedGeneration": 2, "credentialKeys": ["k"], "conditions": ready, "lastTest": test});
        let now = shown(2, &status);
        assert_eq!((&now["status"], &now["message"], &now["credential_keys"]), (&json!("error"), &json!("no"), &json!(["k"])), "{now}");
        assert_eq!(now["last_test"], json!({"status": "error", "message": "no", "latency_ms": 7, "at": null}));
        assert_eq!((&now["type"], &now["config"]), (&json!("google-drive"), &json!({"endpoint": "https://drive.example.com"})));
        assert_eq!(now["credentials_secret"], Value::Null, "its own needs no name");
        let before = shown(3, &status);
        assert_eq!((&before["status"], &before["message"]), (&json!("disconnected"), &Value::Null), "{before}");
        assert_eq!(shown(1, &Value::Null)["status"], "disconnected");
    }

    #[test]
    fn a_field_is_told_as_callers_spell_it_and_a_server_as_it_is() {
        for (message, told) in [
            ("credentialsSecret: Secret in-drive lacks token", "credentials_secret: Secret in-drive lacks token"),
            ("spec.googleDrive: has no host", "google_drive: has no host"),
            ("https://baseUrl.example.com refuses the credentials", "https://baseUrl.example.com refuses the credentials"),
        ] {
            assert_eq!(spelled(message), told);
        }
    }
}
