//! The body that describes an integration: its server, its login, and which alerts go there.
//!
//! What holds a login has no `Debug`, and messages name its keys alone.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use slipway_api::integration::{IntegrationType, NAME_MAX, TYPES, TypeInfo, Use, secret_name};
use slipway_api::{IntegrationSpec, names};
use slipway_http::Error;
use url::Url;

use super::types::schema;
use crate::fields::{self, INTEGRATION, NAME};
use crate::random;

/// The size of one value of a login.
const CREDENTIAL_BYTES_MAX: usize = 16 * 1024;
/// The keys whose values have a form of their own.
const SIGNING_SECRET: &str = "signing_secret";
const WEBHOOK_URL: &str = "webhook_url";
/// How the secret of a webhook begins, before its bytes in base 64.
const SIGNING_PREFIX: &str = "whsec_";
const SIGNING_BYTES: RangeInclusive<usize> = 24..=64;

/// The schema of the body without the types' parts, in the spelling of the resource.
static BODY: LazyLock<Value> = LazyLock::new(|| {
    let mut body = INTEGRATION.clone();
    if let Some(properties) = body["properties"].as_object_mut() {
        properties.retain(|field, _| !IntegrationType::ALL.iter().any(|kind| kind.field() == field));
    }
    body
});

/// An integration that is to be made.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct NewIntegration(Map<String, Value>);

impl JsonSchema for NewIntegration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NewIntegration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let about = "What the id and paths are made of. Default: the name in lower case, with hyphens.";
        let slug = json!({"type": ["string", "null"], "maxLength": NAME_MAX, "pattern": NAME, "description": about});
        let alternatives: Vec<Value> = TYPES
            .iter()
            .map(|info| {
                let mut one = alternative(info);
                one["properties"]["slug"] = slug.clone();
                one
            })
            .collect();
        Schema::try_from(json!({"oneOf": alternatives})).unwrap_or_default()
    }
}

/// What takes the place of an integration's settings.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Replacement(Map<String, Value>);

impl JsonSchema for Replacement {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "IntegrationFields".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::try_from(json!({"oneOf": TYPES.iter().map(alternative).collect::<Vec<_>>()})).unwrap_or_default()
    }
}

/// The schema of the body for one type.
fn alternative(info: &TypeInfo) -> Value {
    let mut one = fields::form(&BODY);
    let mut config = fields::form(schema(info.kind));
    let needs_config = config["required"].as_array().is_some_and(|fields| !fields.is_empty());
    if !needs_config {
        config["type"] = json!(["object", "null"]);
    }
    if let Some(properties) = one["properties"].as_object_mut() {
        properties.insert("type".to_owned(), json!({"type": "string", "enum": [info.kind.as_str()]}));
        properties.insert("config".to_owned(), config);
        if info.credentials.is_empty() {
            properties.remove("credentials_secret");
        } else {
            properties.insert("credentials".to_owned(), credentials_form(info));
        }
        if !info.uses.contains(&Use::Alerts) {
            properties.remove("alerts");
        }
    }
    let required: Vec<&str> = ["name", "type"].into_iter().chain(needs_config.then_some("config")).collect();
    one["required"] = json!(required);
    one
}

fn credentials_form(info: &TypeInfo) -> Value {
    let key = |about: &str| json!({"type": ["string", "null"], "minLength": 1, "maxLength": CREDENTIAL_BYTES_MAX, "description": about});
    let keys: Map<String, Value> = info.credentials.iter().map(|field| (field.name.to_owned(), key(field.description))).collect();
    let about = "The login, which is written and never shown. What is left out of a change stays; {} is none. Null in a new integration: kubectl writes it.";
    json!({"type": ["object", "null"], "properties": keys, "description": about})
}

/// What a body asks for.
pub(super) struct WantedIntegration {
    pub kind: IntegrationType,
    pub spec: IntegrationSpec,
    /// None: it is left as it is.
    pub credentials: Option<Credentials>,
}

/// A login.
pub(super) struct Credentials {
    pub values: BTreeMap<String, String>,
    /// The webhook's secret, if it was made here.
    pub generated: Option<String>,
}

impl NewIntegration {
    /// The name of the resource, and what is asked for.
    pub(super) fn read(self) -> Result<(String, WantedIntegration), Error> {
        let mut given = self.0;
        let slug = given.remove("slug").filter(|slug| !slug.is_null());
        let (field, slug) = match (slug, given.get("name")) {
            (Some(Value::String(slug)), _) if slug.len() > NAME_MAX || names::is_name(&slug) => ("slug", slug),
            (Some(_), _) => {
                let message =
                    "slug: must begin with a lower-case letter, have lower-case letters, digits and hyphens alone, and end with no hyphen";
                return Err(Error::bad_request(message));
            }
            (None, Some(Value::String(name))) => {
                ("name", names::slugify(name).map_err(|error| Error::bad_request(format!("name: {error}")))?)
            }
            (None, Some(_)) => return Err(Error::bad_request("name: must be a string")),
            (None, None) => return Err(Error::bad_request("name: is required")),
        };
        if slug.len() > NAME_MAX {
            return Err(Error::bad_request(format!("{field}: {slug:?} is longer than {NAME_MAX} characters")));
        }
        let wanted = read(given, &slug, true)?;
        Ok((slug, wanted))
    }
}

impl Replacement {
    /// What is asked for of the integration of this name.
    pub(super) fn read(self, name: &str) -> Result<WantedIntegration, Error> {
        read(self.0, name, false)
    }
}

fn read(mut given: Map<String, Value>, name: &str, is_new: bool) -> Result<WantedIntegration, Error> {
    let kind = kind(given.remove("type"))?;
    let credentials = given.remove("credentials");
    if credentials.is_some() && kind.info().credentials.is_empty() {
        return Err(Error::bad_request(format!("there is no field `credentials`: {} has no login", kind.as_str())));
    }
    let config = config(kind, given.remove("config"))?;
    let mut spec = fields::without_nulls(fields::to_resource(&BODY, Value::Object(given))?);
    spec[kind.field()] = config;
    let spec: IntegrationSpec =
        serde_json::from_value(spec).map_err(|error| Error::bad_request(format!("the body does not fit: {error}")))?;
    let is_elsewhere = spec.credentials_secret.as_ref().is_some_and(|secret| *secret != secret_name(name));
    let credentials = match credentials {
        None | Some(Value::Null) if is_elsewhere => None,
        Some(_) if is_elsewhere => {
            return Err(Error::bad_request("credentials: cannot stand beside credentials_secret, which names a Secret of somebody else's"));
        }
        credentials => login(kind.info(), credentials, is_new)?,
    };
    Ok(WantedIntegration { kind, spec, credentials })
}

fn kind(given: Option<Value>) -> Result<IntegrationType, Error> {
    let known = || IntegrationType::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ");
    let Some(given) = given.filter(|given| !given.is_null()) else {
        return Err(Error::bad_request(format!("type: is required, one of {}", known())));
    };
    let found = IntegrationType::ALL.iter().copied().find(|kind| given == kind.as_str());
    found.ok_or_else(|| Error::bad_request(format!("type: must be one of {}", known())))
}

/// The part of the spec that is the type's own.
fn config(kind: IntegrationType, given: Option<Value>) -> Result<Value, Error> {
    let given = match given.unwrap_or_default() {
        Value::Null => json!({}),
        given @ Value::Object(_) => given,
        _ => return Err(Error::bad_request("config: must be an object")),
    };
    let schema = schema(kind);
    // Also a field that is null is to be one of the type's.
    let config = fields::without_nulls(fields::to_resource(schema, given).map_err(|error| fields::within("config", &error))?);
    let mut required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match required.find(|field| config.get(*field).is_none()) {
        Some(field) => Err(Error::bad_request(format!("config.{}: is required", fields::snake(field)))),
        None => Ok(config),
    }
}

/// The login of a body, complete. A webhook's secret that is not given is made.
fn login(info: &TypeInfo, given: Option<Value>, is_new: bool) -> Result<Option<Credentials>, Error> {
    let given = match given {
        Some(Value::Object(given)) => given,
        None if is_new && info.needs_login() => Map::new(),
        // It stays as it is, or kubectl writes it.
        None | Some(Value::Null) => return Ok(None),
        Some(_) => return Err(Error::bad_request("credentials: must be an object")),
    };
    let is_cleared = !is_new && given.is_empty();
    let mut values = BTreeMap::new();
    for (key, value) in given {
        if !info.credentials.iter().any(|field| field.name == key) {
            let key = &key[..key.floor_char_boundary(64)];
            let keys: Vec<&str> = info.credentials.iter().map(|field| field.name).collect();
            let message = format!("there is no field `credentials.{key}`; {} takes {}", info.kind.as_str(), keys.join(", "));
            return Err(Error::bad_request(message));
        }
        let value = match value {
            Value::Null => continue,
            Value::String(value) => value,
            _ => return Err(Error::bad_request(format!("credentials.{key}: must be a string"))),
        };
        if let Some(fault) = fault(&key, &value) {
            return Err(Error::bad_request(format!("credentials.{key}: {fault}")));
        }
        values.insert(key, value);
    }
    let needs_signing = info.credentials.iter().any(|field| field.name == SIGNING_SECRET) && !values.contains_key(SIGNING_SECRET);
    let generated = if needs_signing { Some(signing_secret()?) } else { None };
    values.extend(generated.clone().map(|secret| (SIGNING_SECRET.to_owned(), secret)));
    let there: Vec<String> = values.keys().cloned().collect();
    match info.missing(&there).filter(|_| !is_cleared) {
        None => Ok(Some(Credentials { values, generated })),
        Some(one) if info.one_of.is_empty() => Err(Error::bad_request(format!("credentials.{one}: is required"))),
        Some(choice) => Err(Error::bad_request(format!("credentials: must have {choice}"))),
    }
}

/// Why a value cannot be used, without the value.
fn fault(key: &str, value: &str) -> Option<String> {
    if value.is_empty() || value.len() > CREDENTIAL_BYTES_MAX {
        return Some(format!("must have 1 to {CREDENTIAL_BYTES_MAX} bytes"));
    }
    // A header has none of these. A file may have.
    if key != "service_account.json" && value.chars().any(char::is_control) {
        return Some("must have no line breaks and no other control characters".to_owned());
    }
    match key {
        SIGNING_SECRET if !is_signing_secret(value) => {
            let (least, most) = (SIGNING_BYTES.start(), SIGNING_BYTES.end());
            Some(format!("must be {SIGNING_PREFIX} and {least} to {most} bytes in base 64; left out, one is made"))
        }
        WEBHOOK_URL if !Url::parse(value).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) => {
            Some("must be the URL of an incoming webhook, with https://".to_owned())
        }
        _ => None,
    }
}

fn is_signing_secret(value: &str) -> bool {
    let bytes = value.strip_prefix(SIGNING_PREFIX).and_then(|encoded| STANDARD.decode(encoded).ok());
    bytes.is_some_and(|bytes| SIGNING_BYTES.contains(&bytes.len()))
}

fn signing_secret() -> Result<String, Error> {
    let bytes = [random::bits()?, random::bits()?].map(u128::to_ne_bytes).concat();
    Ok(format!("{SIGNING_PREFIX}{}", STANDARD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLANTED: &str = "hunter2";

    fn new(body: Value) -> Result<(String, WantedIntegration), String> {
        serde_json::from_value::<NewIntegration>(body).unwrap().read().map_err(|error| error.message().to_owned())
    }

    fn change(body: Value) -> Result<WantedIntegration, String> {
        serde_json::from_value::<Replacement>(body).unwrap().read("x").map_err(|error| error.message().to_owned())
    }

    fn said<T>(outcome: Result<T, String>) -> String {
        outcome.err().unwrap_or_else(|| "it was taken".to_owned())
    }

    fn with(mut body: Value, more: &Value) -> Value {
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    }

    fn jira() -> Value {
        json!({"name": "Our Jira", "type": "jira", "config": {"base_url": "https://jira.example.com"}})
    }

    #[test]
    fn a_body_becomes_a_resource_and_a_login() {
        let body = with(jira(), &json!({"description": null, "credentials": {"email": "a@b.c", "api_token": "t", "token": null}}));
        let (name, wanted) = new(body).unwrap();
        assert_eq!((&*name, &*wanted.spec.name, wanted.kind), ("our-jira", "Our Jira", IntegrationType::Jira));
        assert_eq!(wanted.spec.jira.unwrap().base_url, "https://jira.example.com");
        let login = wanted.credentials.unwrap();
        assert_eq!((login.values.len(), login.generated), (2, None));
        let camel = json!({"name": "Größe", "slug": "size", "type": "google-drive", "config": {"endpoint": "https://x.example"}, "credentials": null});
        let (name, wanted) = new(camel).unwrap();
        assert_eq!((&*name, wanted.spec.google_drive.is_some(), wanted.credentials.is_none()), ("size", true, true));
    }

    #[test]
    fn what_is_wrong_is_named_and_no_login_is() {
        let planted = |login: Value| with(jira(), &json!({"credentials": login}));
        let slack = |url: &str| json!({"name": "S", "type": "slack", "credentials": {"webhook_url": url}});
        let signed = |secret: &str| json!({"name": "W", "type": "webhook", "config": {"url": "https://x.example"}, "credentials": {"signing_secret": secret}});
        for (body, says) in [
            (json!({"type": "jira"}), "name: is required"),
            (json!({"name": "x"}), "type: is required, one of local, google-drive, s3"),
            (json!({"name": "x", "type": "ftp"}), "type: must be one of local"),
            (json!({"name": "x", "type": 7}), "type: must be one of local"),
            (json!({"name": "x".repeat(61), "type": "mlflow"}), "longer than 60"),
            (json!({"name": "x", "slug": "x".repeat(64), "type": "mlflow"}), "slug: "),
            (json!({"name": "x", "slug": "Our Jira", "type": "jira"}), "slug: must begin with a lower-case letter"),
            (json!({"name": "x", "slug": 7, "type": "jira"}), "slug: must begin with a lower-case letter"),
            (json!({"name": 7, "type": "jira"}), "name: must be a string"),
            (json!({"name": "x", "type": "jira", "config": "https://x"}), "config: must be an object"),
            (json!({"name": "x", "type": "jira", "config": {}}), "config.base_url: is required"),
            (json!({"name": "x", "type": "jira", "config": {"colour": 1}}), "there is no field `config.colour`"),
            (with(jira(), &json!({"config": {"base_url": "https://x", "colour": null}})), "there is no field `config.colour`"),
            (planted(json!({"token": PLANTED, "colour": null})), "there is no field `credentials.colour`"),
            (json!({"name": "x", "type": "jira", "config": {"base_url": 7}}), "config.base_url: must be of type string"),
            (with(jira(), &json!({"jira": {}})), "there is no field `jira`"),
            (jira(), "credentials: must have token, or email and api_token"),
            (planted(json!(PLANTED)), "credentials: must be an object"),
            (planted(json!({"token": [PLANTED]})), "credentials.token: must be a string"),
            (planted(json!({"token": ""})), "credentials.token: must have 1 to 16384 bytes"),
            (planted(json!({"token": PLANTED.repeat(3000)})), "credentials.token: must have 1 to 16384 bytes"),
            (planted(json!({"token": format!("{PLANTED}\n")})), "credentials.token: must have no line breaks"),
            (planted(json!({"api_token": PLANTED})), "credentials: must have token, or email and api_token"),
            (planted(json!({"password": PLANTED})), "there is no field `credentials.password`; jira takes token, email, api_token"),
            (with(planted(json!({"token": PLANTED})), &json!({"credentials_secret": "shared"})), "credentials: cannot stand beside"),
            (
                json!({"name": "x", "type": "local", "credentials": {"token": PLANTED}}),
                "there is no field `credentials`: local has no login",
            ),
            (json!({"name": "x", "type": "anthropic"}), "credentials.api_key: is required"),
            (slack(PLANTED), "credentials.webhook_url: must be the URL"),
            (slack("file:///hunter2"), "credentials.webhook_url: must be the URL"),
            (signed(PLANTED), "credentials.signing_secret: must be whsec_ and 24 to 64 bytes"),
            (signed("whsec_aHVudGVyMg=="), "credentials.signing_secret: must be whsec_ and 24 to 64 bytes"),
        ] {
            let fault = said(new(body.clone()));
            assert!(fault.contains(says) && !fault.contains(PLANTED), "{body}: {fault}");
        }
        let twice = with(jira(), &json!({"config": {"base_url": "https://a", "baseUrl": "https://b"}}));
        assert!(said(new(twice)).contains("the field `config."), "two spellings of one field");
    }

    #[test]
    fn a_webhooks_secret_is_made_where_none_is_given() {
        let webhook = |more: Value| with(json!({"name": "W", "type": "webhook", "config": {"url": "https://x.example"}}), &more);
        let made = |body: Value| new(body).unwrap().1.credentials.unwrap();
        let (one, two) = (made(webhook(json!({}))), made(webhook(json!({"credentials": {"token": "t"}}))));
        let secrets = [one.generated.unwrap(), two.generated.unwrap()];
        assert!(secrets.iter().all(|secret| is_signing_secret(secret)) && secrets[0] != secrets[1]);
        assert_eq!((&one.values["signing_secret"], two.values.len()), (&secrets[0], 2));
        let given = made(webhook(json!({"credentials": {"signing_secret": secrets[0]}})));
        assert_eq!((given.generated, &given.values["signing_secret"]), (None, &secrets[0]));
        assert!(new(webhook(json!({"credentials": null}))).unwrap().1.credentials.is_none());
        assert!(change(webhook(json!({}))).unwrap().credentials.is_none(), "it stays");
        assert!(change(webhook(json!({"credentials": {}}))).unwrap().credentials.unwrap().generated.is_some(), "it is made anew");
    }

    #[test]
    fn a_login_stays_is_replaced_whole_or_is_cleared() {
        let change = |login: Value| change(with(jira(), &json!({"credentials": login})));
        assert!(change(Value::Null).unwrap().credentials.is_none());
        assert!(change(json!({})).unwrap().credentials.unwrap().values.is_empty());
        assert_eq!(change(json!({"token": "t"})).unwrap().credentials.unwrap().values.len(), 1);
        assert!(said(change(json!({"email": "a@b.c"}))).contains("credentials: must have"));
        let open = json!({"name": "P", "type": "prometheus", "config": {"url": "https://x.example"}});
        assert!(new(open.clone()).unwrap().1.credentials.is_none(), "it needs none");
        assert!(new(with(open, &json!({"credentials": {}}))).unwrap().1.credentials.unwrap().values.is_empty());
    }

    #[test]
    fn the_document_has_each_type_with_its_own_fields() {
        let local = alternative(IntegrationType::Local.info());
        assert!(["credentials", "credentials_secret", "alerts"].iter().all(|none| local["properties"].get(*none).is_none()), "{local}");
        assert_eq!(local["required"], json!(["name", "type"]));
        let webhook = alternative(IntegrationType::Webhook.info());
        assert_eq!(webhook["required"], json!(["name", "type", "config"]));
        assert!(webhook["properties"]["alerts"]["properties"].get("severities").is_some(), "{webhook}");
        assert!(webhook["properties"]["credentials"]["properties"].get("signing_secret").is_some(), "{webhook}");
        assert!(webhook["properties"]["config"]["properties"].get("url").is_some(), "{webhook}");
    }

    proptest! {
        #[test]
        fn no_body_brings_it_down(kind in 0..13_usize, key in "[a-z_]{0,12}", text in "\\PC{0,12}", number: f64) {
            let kind = IntegrationType::ALL[kind].as_str();
            let _ = new(json!({"name": text.clone(), "type": kind, "config": {key.clone(): number}}));
            let _ = new(json!({"name": text.clone(), "type": kind, "credentials": {key.clone(): text.clone()}}));
            let _ = change(json!({"name": text.clone(), "type": kind, key: {text.clone(): text}}));
        }
    }
}
