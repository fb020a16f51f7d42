//! The body that describes a dataset.

use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use slipway_api::dataset::CASES_BYTES_MAX;
use slipway_api::{DatasetSpec, names};
use slipway_http::Error;

use crate::fields::{self, DATASET};

/// The fields that callers set.
const FIELDS: [&str; 4] = ["description", "guidelines", "protected", "cases"];
const NAME_MAX: usize = 63;

/// The schema of the body, in the spelling of the resource.
static BODY: LazyLock<Value> = LazyLock::new(|| {
    let properties = &DATASET["properties"];
    let mut body: Map<String, Value> = FIELDS.iter().map(|name| ((*name).to_owned(), properties[*name].clone())).collect();
    body["cases"]["description"] = json!("The cases, at most 2,000 and 512 KiB together.");
    body["cases"]["minItems"] = json!(1);
    let name = "The id and paths are made of it: in lower case, with hyphens.";
    body.insert("name".to_owned(), json!({"type": "string", "minLength": 1, "maxLength": 253, "description": name}));
    json!({"type": "object", "properties": body, "required": ["cases"]})
});

/// A dataset that is to be made.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct NewDataset(Map<String, Value>);

impl JsonSchema for NewDataset {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NewDataset".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut body = BODY.clone();
        body["required"] = json!(["name", "cases"]);
        Schema::try_from(fields::form(&body)).unwrap_or_default()
    }
}

/// What takes the place of a dataset. Its name stays.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Replacement(Map<String, Value>);

impl JsonSchema for Replacement {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DatasetFields".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut body = BODY.clone();
        if let Some(properties) = body["properties"].as_object_mut() {
            properties.remove("name");
        }
        Schema::try_from(fields::form(&body)).unwrap_or_default()
    }
}

impl NewDataset {
    /// The name of the resource, and its spec without the agent.
    pub(super) fn read(self) -> Result<(String, DatasetSpec), Error> {
        let (name, spec) = read(self.0)?;
        Ok((slug(&name.ok_or_else(|| Error::bad_request("name: is required"))?)?, spec))
    }
}

impl Replacement {
    /// The spec without the agent, of a dataset of this name. The name may be repeated.
    pub(super) fn read(self, name: &str) -> Result<DatasetSpec, Error> {
        match read(self.0)? {
            (Some(given), _) if slug(&given)? != name => {
                Err(Error::bad_request("name: cannot be changed, because the id and all paths derive from it"))
            }
            (_, spec) => Ok(spec),
        }
    }
}

fn read(given: Map<String, Value>) -> Result<(Option<String>, DatasetSpec), Error> {
    let Value::Object(mut fields) = fields::to_resource(&BODY, Value::Object(given))? else {
        return Err(Error::bad_request("the body must be an object"));
    };
    // Nulls within metadata are its author's.
    fields.retain(|_, value| !value.is_null());
    for case in fields.get_mut("cases").and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut) {
        case.retain(|_, value| !value.is_null());
    }
    let name = match fields.remove("name") {
        Some(Value::String(name)) => Some(name),
        Some(_) => return Err(Error::bad_request("name: must be a string")),
        None => None,
    };
    let spec: DatasetSpec =
        serde_json::from_value(Value::Object(fields)).map_err(|error| Error::bad_request(format!("the body does not fit: {error}")))?;
    if spec.cases.is_empty() {
        return Err(Error::bad_request("cases: is required, with at least one case"));
    }
    let bytes = serde_json::to_vec(&spec.cases).map_err(Error::internal)?.len();
    if bytes > CASES_BYTES_MAX {
        return Err(Error::bad_request(format!("cases: must have at most {CASES_BYTES_MAX} bytes as JSON together, and have {bytes}")));
    }
    Ok((name, spec))
}

fn slug(name: &str) -> Result<String, Error> {
    let slug = names::slugify(name).map_err(|error| Error::bad_request(format!("name: {error}")))?;
    if slug.len() > NAME_MAX {
        return Err(Error::bad_request(format!("name: {slug:?} is longer than {NAME_MAX} characters")));
    }
    Ok(slug)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(body: Value) -> Result<(String, DatasetSpec), String> {
        serde_json::from_value::<NewDataset>(body).unwrap().read().map_err(|error| error.message().to_owned())
    }

    #[test]
    fn both_spellings_are_read_and_metadata_stays_as_it_is() {
        for expected in ["expected_output", "expectedOutput"] {
            let case = json!({"input": "1 + 1?", expected: "2", "context": null, "metadata": {"my_key": null, "myKey": {"a_b": 1e30}}});
            let (name, spec) = read(json!({"name": "Hard Cases", "protected": true, "guidelines": null, "cases": [case]})).unwrap();
            assert_eq!((&*name, spec.protected, spec.agent), ("hard-cases", true, None));
            let read = serde_json::to_value(&spec.cases).unwrap();
            assert_eq!(read, json!([{"input": "1 + 1?", "expectedOutput": "2", "metadata": {"my_key": null, "myKey": {"a_b": 1e30}}}]));
        }
    }

    #[test]
    fn a_replacement_keeps_the_name() {
        let replace = |body: Value| serde_json::from_value::<Replacement>(body).unwrap().read("hard-cases");
        let cases = json!([{"input": "x"}]);
        assert!(replace(json!({"cases": cases})).is_ok() && replace(json!({"name": "Hard Cases", "cases": cases})).is_ok());
        assert!(replace(json!({"name": "other", "cases": cases})).unwrap_err().message().contains("cannot be changed"));
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let cases = json!([{"input": "x"}]);
        for (body, says) in [
            (json!({"cases": cases}), "name: is required"),
            (json!({"name": "!!", "cases": cases}), "name: "),
            (json!({"name": "\0", "cases": cases}), "name: "),
            (json!({"name": "", "cases": cases}), "name: "),
            (json!({"name": "a".repeat(64), "cases": cases}), "longer than 63"),
            (json!({"name": 5, "cases": cases}), "name: must be of type string"),
            (json!({"name": "a"}), "cases: is required"),
            (json!({"name": "a", "cases": []}), "cases: is required"),
            (json!({"name": "a", "cases": [{"output": "x"}]}), "`cases[0].output`"),
            (json!({"name": "a", "cases": [{"context": "x"}]}), "input"),
            (json!({"name": "a", "cases": [null]}), "the body does not fit"),
            (json!({"name": "a", "cases": [{"input": "x", "metadata": 5}]}), "cases[0].metadata: must be of type object"),
            (json!({"name": "a", "cases": [{"input": "x".repeat(40_000)}]}), "cases[0].input: must have at most 32768 characters"),
            (json!({"name": "a", "cases": vec![json!({"input": "x".repeat(30_000)}); 20]}), "at most 524288 bytes"),
            (json!({"name": "a", "cases": vec![json!({"input": "x"}); 2001]}), "cases: must have at most 2000 items"),
            (json!({"name": "a", "cases": cases, "agent": "other"}), "there is no field `agent`"),
            (json!({"name": "a", "cases": cases, "cases_from": {}}), "there is no field `cases_from`"),
        ] {
            let told = read(body.clone()).unwrap_err();
            assert!(told.contains(says), "{}: {told}", &body.to_string()[..body.to_string().len().min(200)]);
        }
    }

    proptest! {
        #[test]
        fn no_body_brings_it_down(name in "[a-zA-Z_]{0,12}|cases|guidelines", text in ".{0,12}", number: f64) {
            let _ = read(json!({ "name": text.clone(), name.clone(): text.clone() }));
            let _ = read(json!({ "name": text.clone(), "cases": [{ name: number }] }));
            let _ = read(json!({ "name": text.clone(), "cases": [{ "input": text, "metadata": { "a": number } }] }));
        }
    }
}
