//! The body that describes a knowledge base.

use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use slipway_api::{KnowledgeBaseSpec, names};
use slipway_http::Error;

use super::source::{self, NAMED};
use crate::fields::{self, KNOWLEDGE_BASE, NAME};

const NAME_MAX: usize = 63;
const SOURCES: &str = "sources";

/// The schema of the body without the sources, in the spelling of the resource.
static BODY: LazyLock<Value> = LazyLock::new(|| {
    let mut body = KNOWLEDGE_BASE.clone();
    if let Some(properties) = body["properties"].as_object_mut() {
        properties.remove(SOURCES);
    }
    body
});

fn form() -> Value {
    let mut form = fields::form(&BODY);
    let about = &KNOWLEDGE_BASE["properties"][SOURCES];
    form["properties"][SOURCES] = json!({
        "type": ["array", "null"], "maxItems": about["maxItems"], "description": about["description"], "items": source::form(&NAMED),
    });
    form
}

/// A knowledge base that is to be made.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct NewKnowledgeBase(Map<String, Value>);

impl JsonSchema for NewKnowledgeBase {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NewKnowledgeBase".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut form = form();
        let about = "What the id and paths are made of. Default: the name in lower case, with hyphens.";
        form["properties"]["slug"] = json!({"type": ["string", "null"], "maxLength": NAME_MAX, "pattern": NAME, "description": about});
        Schema::try_from(form).unwrap_or_default()
    }
}

/// What takes the place of a knowledge base's settings.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Replacement(Map<String, Value>);

impl JsonSchema for Replacement {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KnowledgeBaseFields".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::try_from(form()).unwrap_or_default()
    }
}

impl NewKnowledgeBase {
    /// The name of the resource, and its spec.
    pub(super) fn read(self) -> Result<(String, KnowledgeBaseSpec), Error> {
        let mut given = self.0;
        given.retain(|_, value| !value.is_null());
        let (field, name) = match (given.remove("slug"), given.get("name")) {
            (Some(slug), _) => ("slug", slug),
            (None, Some(name)) => ("name", name.clone()),
            (None, None) => return Err(Error::bad_request("name: is required")),
        };
        let Value::String(name) = name else { return Err(Error::bad_request(format!("{field}: must be a string"))) };
        let slug = names::slugify(&name).map_err(|error| Error::bad_request(format!("{field}: {error}")))?;
        if slug.len() > NAME_MAX {
            return Err(Error::bad_request(format!("{field}: {slug:?} is longer than {NAME_MAX} characters")));
        }
        Ok((slug, read(given)?))
    }
}

impl Replacement {
    pub(super) fn read(self) -> Result<KnowledgeBaseSpec, Error> {
        read(self.0)
    }
}

fn read(mut given: Map<String, Value>) -> Result<KnowledgeBaseSpec, Error> {
    let sources = match given.remove(SOURCES) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(sources)) => sources,
        Some(_) => return Err(Error::bad_request("sources: must be a list")),
    };
    let most = KNOWLEDGE_BASE["properties"][SOURCES]["maxItems"].as_u64().and_then(|most| usize::try_from(most).ok());
    if most.is_some_and(|most| sources.len() > most) {
        return Err(Error::bad_request(format!("sources: must have at most {} items", most.unwrap_or_default())));
    }
    let sources = sources.into_iter().enumerate();
    let sources: Vec<Value> =
        sources.map(|(at, given)| source::to_resource(&NAMED, &format!("sources[{at}]"), given)).collect::<Result<_, _>>()?;
    let mut spec = fields::without_nulls(fields::to_resource(&BODY, Value::Object(given))?);
    if !sources.is_empty() {
        spec[SOURCES] = Value::Array(sources);
    }
    serde_json::from_value(spec).map_err(|error| Error::bad_request(format!("the body does not fit: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(body: Value) -> Result<(String, KnowledgeBaseSpec), String> {
        serde_json::from_value::<NewKnowledgeBase>(body).unwrap().read().map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_body_becomes_a_resource() {
        let source = json!({"name": "wiki", "type": "local", "path": "handbook"});
        let body = json!({"name": "Product Docs", "description": null, "chunk_size": 256, "chunkOverlap": 20, "sources": [source]});
        let (name, spec) = new(body).unwrap();
        assert_eq!((&*name, &*spec.name, spec.chunk_size, spec.chunk_overlap), ("product-docs", "Product Docs", 256, 20));
        assert_eq!((spec.sources.len(), spec.embedding_model), (1, None));
        assert_eq!(new(json!({"name": "Größe", "slug": "size"})).unwrap().0, "size");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, says) in [
            (json!({}), "name: is required"),
            (json!({"name": 7}), "name: must be a string"),
            (json!({"name": "x", "colour": 1}), "`colour`"),
            (json!({"name": "x", "sources": {}}), "sources: must be a list"),
            (json!({"name": "x", "sources": [{"name": "a", "type": "ftp"}]}), "sources[0].type"),
            (json!({"name": "x", "sources": [{"type": "local", "path": "x"}]}), "missing field `name`"),
            (json!({"name": "x", "chunk_size": "big"}), "chunk_size: must be of type integer"),
            (json!({"name": "x".repeat(64)}), "longer than 63"),
        ] {
            let fault = new(body.clone()).unwrap_err();
            assert!(fault.contains(says), "{body}: {fault}");
        }
    }
}
