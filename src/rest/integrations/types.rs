//! The types of integrations: what each takes, and what may name one. Words and keys come from the kind's table of types, fields
//! from its schema.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use slipway_api::IntegrationSpec;
use slipway_api::integration::{IntegrationType, TYPES, TypeInfo, Use};
use slipway_http::Error;

use crate::answer::Data;
use crate::call::Call;
use crate::fields::{self, INTEGRATION};

/// A type of integration.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "IntegrationTypeInfo")]
pub(crate) struct TypeView {
    /// As `type` of an integration has it.
    #[serde(rename = "type")]
    kind: IntegrationType,
    label: &'static str,
    description: &'static str,
    /// The fields of `config`.
    config_fields: Vec<ConfigField>,
    /// The keys of `credentials`.
    credential_fields: Vec<CredentialField>,
    /// Sets of keys, of which one is given whole. An empty set among them: none is needed. No set: `required` says it.
    credential_choices: Vec<Vec<&'static str>>,
    /// What may name one: `knowledge`, `alerts`, `tools`, `models`.
    used_by: Vec<&'static str>,
}

/// A field of the config.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "IntegrationConfigField")]
struct ConfigField {
    name: String,
    /// As JSON Schema has it.
    #[serde(rename = "type")]
    kind: String,
    required: bool,
    description: String,
    /// What counts where the field is left out, if anything does.
    default: Option<String>,
}

/// A key of the login.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "IntegrationCredentialField")]
struct CredentialField {
    name: &'static str,
    required: bool,
    description: &'static str,
}

pub(crate) async fn list(_: Call) -> Result<Data<Vec<TypeView>>, Error> {
    Ok(Data::new(TYPES.iter().map(TypeView::of).collect()))
}

/// The schema of a type's config, in the spelling of the resource.
pub(super) fn schema(kind: IntegrationType) -> &'static Value {
    &INTEGRATION["properties"][kind.field()]
}

impl TypeView {
    fn of(info: &TypeInfo) -> Self {
        let credential = |field: &slipway_api::integration::CredentialField| CredentialField {
            name: field.name,
            required: field.required,
            description: field.description,
        };
        Self {
            kind: info.kind,
            label: info.label,
            description: info.description,
            config_fields: config_fields(info.kind),
            credential_fields: info.credentials.iter().map(credential).collect(),
            credential_choices: info.one_of.iter().map(|set| set.to_vec()).collect(),
            used_by: info.uses.iter().copied().map(Use::as_str).collect(),
        }
    }
}

fn config_fields(kind: IntegrationType) -> Vec<ConfigField> {
    let schema = schema(kind);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let field = |(name, field): (&String, &Value)| ConfigField {
        name: fields::snake(name),
        kind: text(&field["type"]),
        required: schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name)),
        description: text(&field["description"]),
        default: default(kind, name),
    };
    schema["properties"].as_object().into_iter().flatten().map(field).collect()
}

/// What counts where a field is left out.
fn default(kind: IntegrationType, field: &str) -> Option<String> {
    match field {
        // The server of one that names none.
        "endpoint" | "baseUrl" => {
            let empty = json!({"name": "", kind.field(): {}});
            serde_json::from_value::<IntegrationSpec>(empty).ok()?.server()
        }
        "region" => Some("us-east-1".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: IntegrationType) -> Value {
        serde_json::to_value(TypeView::of(kind.info())).unwrap()
    }

    #[test]
    fn every_type_says_what_it_takes() {
        assert_eq!(TYPES.len(), IntegrationType::ALL.len());
        for info in &TYPES {
            let view = shown(info.kind);
            assert_eq!(view["type"], info.kind.as_str());
            let fields = view["config_fields"].as_array().unwrap();
            assert!(!fields.is_empty(), "{view}");
            assert!(fields.iter().all(|field| field["type"] != "" && field["description"] != ""), "{view}");
            assert!(!view["used_by"].as_array().unwrap().is_empty(), "{view}");
        }
    }

    #[test]
    fn fields_are_spelled_for_callers_with_what_counts_without_them() {
        let field = |kind: IntegrationType, name: &str| {
            let view = shown(kind);
            let found = view["config_fields"].as_array().unwrap().iter().find(|field| field["name"] == name).cloned();
            found.unwrap_or_else(|| panic!("{view} should have {name}"))
        };
        for (kind, name, required, default) in [
            (IntegrationType::Confluence, "base_url", true, Value::Null),
            (IntegrationType::Openai, "base_url", false, json!("https://api.openai.com/v1")),
            (IntegrationType::GoogleDrive, "endpoint", false, json!("https://www.googleapis.com")),
            (IntegrationType::S3, "endpoint", false, json!("https://s3.us-east-1.amazonaws.com")),
            (IntegrationType::S3, "region", false, json!("us-east-1")),
            (IntegrationType::Databricks, "warehouse_id", false, Value::Null),
        ] {
            let field = field(kind, name);
            assert_eq!((&field["required"], &field["default"]), (&json!(required), &default), "{field}");
        }
        assert_eq!(shown(IntegrationType::Mlflow)["credential_choices"], json!([["token"], ["username", "password"], []]));
        assert_eq!(shown(IntegrationType::Webhook)["used_by"], json!(["alerts", "tools"]));
    }
}
