//! The description of the API, derived from the route table: an OpenAPI 3.1 document, and an HTML page.
//!
//! `operation` describes one route, `parts` shared components, `examples` example bodies, `page` the HTML page.

mod examples;
mod operation;
mod page;
mod parts;

use std::collections::HashSet;

use bytes::Bytes;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use slipway_http::{Error, HeaderName, HeaderValue, Reply};

use crate::BASE;
use crate::answer::Answer;
use crate::call::Call;
use crate::route::Route;

/// Both forms, serialized.
#[derive(Default)]
pub(crate) struct Description {
    json: Bytes,
    page: Bytes,
}

impl Description {
    pub(crate) fn of(routes: &[Route]) -> Self {
        let document = document(routes);
        Self { json: document.to_string().into(), page: page::page(&document).into() }
    }
}

pub(crate) struct Document(Bytes);

impl Answer for Document {
    fn form(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object"})
    }

    fn reply(self) -> Result<Reply, Error> {
        Ok(Reply::shared(Self::MEDIA, self.0))
    }
}

pub(crate) struct Page(Bytes);

impl Answer for Page {
    const MEDIA: &'static str = "text/html; charset=utf-8";

    fn form(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }

    fn reply(self) -> Result<Reply, Error> {
        let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
        Ok(Reply::shared(Self::MEDIA, self.0).with_header(HeaderName::from_static("content-security-policy"), policy))
    }
}

pub(crate) async fn json(call: Call) -> Result<Document, Error> {
    Ok(Document(call.context.description.json.clone()))
}

pub(crate) async fn docs(call: Call) -> Result<Page, Error> {
    Ok(Page(call.context.description.page.clone()))
}

const ABOUT: &str = "Agents, their evaluations, tools, skills and teams on Kubernetes. Every endpoint is one read or write of a resource that \
    kubectl reaches too.\n\nField names are in snake_case; camelCase is understood as well. A HEAD is a GET without its body. \
    Besides what each operation names, any of them may answer 405 (another method is meant; Allow says which), 414 and 431 \
    (the URL or the headers are too long), always as {error, message, path}. Every answer has an X-Request-Id, which is that \
    of the request if it had one.";

/// The OpenAPI document of the routes.
pub(crate) fn document(routes: &[Route]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in routes {
        let operation = operation::of(route, routes, &mut generator);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation;
    }
    let mut schemas = generator.take_definitions(true);
    for name in bodies(&paths) {
        schemas.get_mut(&name).into_iter().for_each(closed);
    }
    schemas.insert("Error".to_owned(), parts::error());
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Slipway",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": BASE}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token of the OIDC issuer, or one that the cluster accepts."},
                "callback": {"type": "http", "scheme": "bearer", "description": "The token that the platform gives a runtime with an evaluation, for one call."},
            },
            "schemas": schemas,
            "parameters": parts::parameters(),
            "headers": parts::headers(),
            "responses": parts::refusals(),
        },
    });
    dated(&mut document);
    document
}

/// The schema names of request bodies.
fn bodies(paths: &Map<String, Value>) -> HashSet<String> {
    let operations = paths.values().filter_map(Value::as_object).flat_map(Map::values);
    let contents = operations.filter_map(|operation| operation["requestBody"]["content"].as_object()).flat_map(Map::values);
    contents.filter_map(|content| content["schema"]["$ref"].as_str()?.rsplit('/').next().map(str::to_owned)).collect()
}

/// Forbids additional properties, as requests with unknown fields are refused.
pub(crate) fn closed(schema: &mut Value) {
    // What takes further fields says so itself.
    if schema.get("properties").is_some() && schema.get("additionalProperties") != Some(&json!(true)) {
        schema["additionalProperties"] = json!(false);
    }
    for inner in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        closed(inner);
    }
    schema.get_mut("items").into_iter().for_each(closed);
    schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten().for_each(closed);
}

/// Adds the format `date-time` to times.
fn dated(node: &mut Value) {
    match node {
        Value::Object(object) => {
            for (name, value) in object {
                let text = value["type"] == "string" || value["type"] == json!(["string", "null"]);
                if text && (name.ends_with("_at") || name == "timestamp") {
                    value["format"] = json!("date-time");
                }
                dated(value);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(dated),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use super::*;
    use crate::routes;

    #[test]
    fn the_committed_document_is_the_table() {
        let generated = serde_json::to_string_pretty(&document(&routes::all())).unwrap() + "\n";
        let path = Path::new("../../docs/openapi.json");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &generated).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(committed == generated, "docs/openapi.json is stale; run the tests once with UPDATE_GOLDEN=1");
    }

    #[test]
    fn every_operation_has_an_id_of_its_own_and_a_sentence() {
        let mut ids = HashSet::new();
        for route in routes::all() {
            assert!(ids.insert(operation::id(&route)), "{} {}", route.method, route.path);
            assert!(route.about.ends_with('.'), "{} {}: {}", route.method, route.path, route.about);
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn visit(document: &Value, node: &Value) {
            if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
                assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
            }
            match node {
                Value::Object(object) => object.values().for_each(|value| visit(document, value)),
                Value::Array(list) => list.iter().for_each(|value| visit(document, value)),
                _ => {}
            }
        }
        let document = document(&routes::all());
        visit(&document, &document);
    }

    #[test]
    fn every_example_is_of_an_operation_with_a_body() {
        let document = document(&routes::all());
        let operations: Vec<&Value> =
            document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values()).collect();
        for (id, _) in examples::all() {
            let operation = operations.iter().find(|operation| operation["operationId"] == id);
            assert!(operation.is_some_and(|operation| operation.get("requestBody").is_some()), "{id}");
        }
    }

    #[test]
    fn what_is_made_leads_to_what_can_be_done_with_it() {
        let document = document(&routes::all());
        let links = &document["paths"]["/agents"]["post"]["responses"]["201"]["links"];
        for (id, expected) in [("getAgentsId", "$response.body#/data/id"), ("deleteAgentsId", "$response.body#/data/id")] {
            assert_eq!(links[id]["parameters"]["id"], expected, "{id}: {links}");
        }
        assert!(links.get("getAgentsIdConversationsCid").is_none(), "{links}");
    }

    #[test]
    fn a_canary_is_made_and_changes_its_agent() {
        let document = document(&routes::all());
        let canary = &document["paths"]["/agents/{id}/canary"];
        let takes = |operation: &Value, header: &str| {
            let wanted = parts::parameter(header);
            operation["parameters"].as_array().unwrap().contains(&wanted)
        };
        assert!(takes(&canary["post"], "IdempotencyKey") && takes(&canary["post"], "IfMatch"));
        assert!(takes(&canary["patch"], "IfMatch") && !takes(&canary["patch"], "IdempotencyKey"));
        for end in ["promote", "rollback"] {
            let operation = &document["paths"][format!("/agents/{{id}}/canary/{end}")]["post"];
            assert!(takes(operation, "IfMatch") && operation.get("requestBody").is_none(), "{end}");
        }
        let config = &document["components"]["schemas"]["CanaryStart"]["properties"]["config"];
        assert_eq!((&config["required"], &config["additionalProperties"]), (&json!(["weight"]), &json!(false)));
        let fields = config["properties"].as_object().unwrap();
        assert!(fields.contains_key("system_prompt") && fields.contains_key("governance") && fields.contains_key("analysis"));
        assert!(["slug", "suspend", "canary", "expose", "overrides", "enabled"].iter().all(|none| !fields.contains_key(*none)));
        let told = &document["components"]["schemas"]["Canary"]["properties"]["config"];
        let kinds = |config: &Value| config["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(
            (kinds(told), &told["required"]),
            (kinds(config), &Value::Null),
            "what was asked for is told, and nothing without a canary"
        );
    }

    #[test]
    fn a_refusal_is_told_where_it_can_come() {
        let document = document(&routes::all());
        let statuses = |path: &str, method: &str| {
            let responses = document["paths"][path][method]["responses"].as_object().unwrap();
            responses.keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(statuses("/docs", "get"), "200 400 500");
        assert_eq!(statuses("/health", "get"), "200 400 401 500 503");
        assert_eq!(statuses("/agents", "get"), "200 400 401 403 404 500 503");
        assert_eq!(statuses("/agents", "post"), "201 400 401 403 404 408 409 413 415 500 503");
        assert_eq!(statuses("/agents/{id}/canary", "get"), "200 400 401 403 404 500 503");
        assert_eq!(statuses("/agents/{id}/canary", "post"), "201 400 401 403 404 408 409 413 415 500 503");
        assert_eq!(statuses("/agents/{id}/canary", "patch"), "200 400 401 403 404 408 409 413 415 500 503");
        assert_eq!(statuses("/agents/{id}/canary/promote", "post"), "200 400 401 403 404 409 500 503");
        assert_eq!(statuses("/agents/{id}/canary/rollback", "post"), "200 400 401 403 404 409 500 503");
        assert_eq!(statuses("/webhooks/canary-gate/{credential}", "post"), "200 412");
        assert_eq!(statuses("/integrations/types", "get"), "200 400 401 500 503");
        assert_eq!(statuses("/integrations/{id}", "put"), "200 400 401 403 404 408 409 413 415 500 503");
        assert_eq!(statuses("/integrations/{id}/test", "post"), "200 400 401 403 404 409 429 500 503 504");
        assert_eq!(statuses("/agents/{id}/chat", "post"), "200 400 401 403 404 408 409 413 415 429 500 502 503 504");
    }
}
