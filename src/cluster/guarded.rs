//! An object that may not parse, so that it keeps no other from being read. kube's `DeserializeGuard` is the same but
//! goes by way of a larger tree of values, and of a copy of it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::error_boundary::InvalidObject;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

/// A resource of ours, or the reason why the API server's JSON does not parse as one.
#[derive(Debug, Clone)]
pub struct Guarded<K>(pub Result<K, InvalidObject>);

impl<'de, K: Resource + DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

struct Fields<K>(PhantomData<K>);

impl<'de, K: Resource + DeserializeOwned> Visitor<'de> for Fields<K> {
    type Value = Guarded<K>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of Kubernetes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Guarded<K>, A::Error> {
        // Metadata, of which managed fields are many parts, is decoded once, right into its place. There is a field of that name for
        // kinds that want one.
        let (mut metadata, mut others) = (ObjectMeta::default(), Map::from_iter([("metadata".to_owned(), Value::Object(Map::new()))]));
        while let Some(name) = fields.next_key::<String>()? {
            if name == "metadata" {
                metadata = fields.next_value()?;
            } else {
                others.insert(name, fields.next_value()?);
            }
        }
        Ok(Guarded(match K::deserialize(others) {
            Ok(mut object) => {
                *object.meta_mut() = metadata;
                Ok(object)
            }
            Err(error) => Err(InvalidObject { error: error.to_string(), metadata }),
        }))
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|invalid| &invalid.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|invalid| &mut invalid.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use kube::api::{ObjectList, WatchEvent};
    use serde_json::json;
    use slipway_api::Tool;

    use super::*;

    #[test]
    fn one_that_does_not_parse_keeps_no_other_from_being_read() {
        let book = json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]);
        let tool = |name: &str, kind: Value| {
            let metadata = json!({"labels": {"a": "b"}, "managedFields": book, "name": name});
            json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Tool", "metadata": metadata, "spec": {"name": name, "type": kind}})
        };
        let list =
            json!({"apiVersion": "v1", "kind": "ToolList", "metadata": {}, "items": [tool("a", json!(7)), tool("b", json!("builtin"))]});
        let list: ObjectList<Guarded<Tool>> = serde_json::from_str(&list.to_string()).unwrap();
        let [a, b] = list.items.try_into().unwrap();
        assert_eq!((a.name_any(), b.name_any()), ("a".to_owned(), "b".to_owned()));
        let invalid = a.0.unwrap_err();
        assert!(invalid.error.starts_with("invalid type: integer `7`") && !invalid.error.contains("line"), "{}", invalid.error);
        let b = b.0.unwrap();
        assert_eq!((b.spec.name.as_str(), &b.labels()["a"], b.managed_fields().len()), ("b", &"b".to_owned(), 1));

        // The API server names the type first; this has it last, and is buffered.
        let event = json!({"object": tool("c", json!([])), "type": "ADDED"});
        let Ok(WatchEvent::Added(c)) = serde_json::from_str::<WatchEvent<Guarded<Tool>>>(&event.to_string()) else { panic!("no event") };
        assert_eq!((c.name_any(), c.0.is_err()), ("c".to_owned(), true));
    }
}
