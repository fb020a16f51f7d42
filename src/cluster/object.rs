//! An object of any kind, as JSON. kube's `DynamicObject` is the same but decodes its flattened fields twice.

use std::borrow::Cow;
use std::fmt;

use kube::Resource;
use kube::api::{ApiResource, ObjectMeta, TypeMeta};
use kube::core::DynamicResourceScope;
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Object {
    /// Items of a list come without it.
    #[serde(flatten)]
    pub types: Option<TypeMeta>,
    pub metadata: ObjectMeta,
    /// All other fields.
    #[serde(flatten)]
    pub data: Value,
}

impl Resource for Object {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn api_version(of: &ApiResource) -> Cow<'_, str> {
        of.api_version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Object;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of Kubernetes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Object, A::Error> {
        let (mut api_version, mut kind, mut metadata, mut data) = (None, None, ObjectMeta::default(), Map::new());
        while let Some(name) = fields.next_key::<String>()? {
            match name.as_str() {
                "apiVersion" => api_version = Some(fields.next_value()?),
                "kind" => kind = Some(fields.next_value()?),
                "metadata" => metadata = fields.next_value()?,
                _ => drop(data.insert(name, fields.next_value()?)),
            }
        }
        let types = api_version.zip(kind).map(|(api_version, kind)| TypeMeta { api_version, kind });
        Ok(Object { types, metadata, data: Value::Object(data) })
    }
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::json;

    use super::*;

    #[test]
    fn it_has_what_a_dynamic_object_has() {
        let body = json!({"metadata": {"name": "a", "labels": {"b": "c"}}, "data": {"d": "e"}, "immutable": true});
        let mut typed = body.clone();
        typed["apiVersion"] = json!("v1");
        typed["kind"] = json!("ConfigMap");
        for body in [body, typed, json!({"metadata": {}}), json!({})] {
            let theirs: DynamicObject = serde_json::from_value(body.clone()).unwrap();
            let Object { types, metadata, data } = serde_json::from_str(&body.to_string()).unwrap();
            assert_eq!((types, metadata, data), (theirs.types, theirs.metadata, theirs.data), "{body}");
        }
        assert!(serde_json::from_str::<Object>("[]").unwrap_err().to_string().contains("an object of Kubernetes"));
    }
}
