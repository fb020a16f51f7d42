//! An object that may not parse, so that it keeps no other from being read. kube's `DeserializeGuard` is the same but
//! goes by way of a larger tree of values, and of a copy of it.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::PartialObjectMeta;
use kube::core::error_boundary::InvalidObject;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde_json::Value;

/// A resource of ours, or the reason why the API server's JSON does not parse as one.
#[derive(Debug, Clone)]
pub struct Guarded<K>(pub Result<K, InvalidObject>);

impl<'de, K: Resource + DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let read = K::deserialize(&object).map(Ok).or_else(|error| {
            let PartialObjectMeta { metadata, .. } = PartialObjectMeta::<K>::deserialize(&object)?;
            Ok(Err(InvalidObject { error: error.to_string(), metadata }))
        });
        read.map(Self).map_err(|error: serde_json::Error| D::Error::custom(error))
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
        let tool = |name: &str, kind: Value| json!({"metadata": {"name": name}, "spec": {"name": name, "type": kind}});
        let list =
            json!({"apiVersion": "v1", "kind": "ToolList", "metadata": {}, "items": [tool("a", json!(7)), tool("b", json!("builtin"))]});
        let list: ObjectList<Guarded<Tool>> = serde_json::from_str(&list.to_string()).unwrap();
        let [a, b] = list.items.try_into().unwrap();
        assert_eq!((a.name_any(), b.name_any()), ("a".to_owned(), "b".to_owned()));
        let invalid = a.0.unwrap_err();
        assert!(invalid.error.starts_with("invalid type: integer `7`") && !invalid.error.contains("line"), "{}", invalid.error);
        assert_eq!(b.0.unwrap().spec.name, "b");

        // The API server names the type first; this has it last, and is buffered.
        let event = json!({"object": tool("c", json!([])), "type": "ADDED"});
        let Ok(WatchEvent::Added(c)) = serde_json::from_str::<WatchEvent<Guarded<Tool>>>(&event.to_string()) else { panic!("no event") };
        assert_eq!((c.name_any(), c.0.is_err()), ("c".to_owned(), true));
    }
}
