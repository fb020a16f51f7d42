//! The CRDs, generated from the types. `crds/` holds them; the tests here keep the two the same, and those of `tests/accepted.rs`
//! see to it that a later v1 accepts whatever an earlier one did.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, CustomResourceDefinitionVersion, JSON};
use kube::CustomResourceExt;
use serde_json::json;

/// Every CRD, in the order in which they are best installed.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        crate::Team::crd(),
        crate::Integration::crd(),
        crate::Tool::crd(),
        crate::KnowledgeBase::crd(),
        crate::Ingestion::crd(),
        crate::Skill::crd(),
        crate::Agent::crd(),
        crate::AgentRelease::crd(),
        crate::Dataset::crd(),
        crate::EvaluationRun::crd(),
        crate::GuardrailPolicy::crd(),
    ];
    for crd in &mut all {
        // With the chart gone, agents and teams must not go with it.
        let annotations = crd.metadata.annotations.get_or_insert_default();
        annotations.insert("helm.sh/resource-policy".to_owned(), "keep".to_owned());
        crd.spec.versions.iter_mut().for_each(unseen);
    }
    all
}

/// What nobody has looked at yet says so. To those who wait by kstatus, an object without a status has nothing to wait for,
/// and is ready.
fn unseen(version: &mut CustomResourceDefinitionVersion) {
    let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
    let Some(status) = schema.and_then(|schema| schema.properties.as_mut()?.get_mut("status")) else { return };
    if status.properties.as_ref().is_some_and(|fields| fields.contains_key("observedGeneration")) {
        status.default = Some(JSON(json!({"observedGeneration": -1})));
    }
}

#[cfg(test)]
mod tests {
    mod accepted;

    use std::path::{Path, PathBuf};

    use serde_json::{Map, Value};

    use super::*;
    use crate::schema::type_name;

    fn file(crd: &CustomResourceDefinition) -> PathBuf {
        Path::new("crds").join(format!("{}.yaml", crd.spec.names.plural))
    }

    // Tests run in the folder of their crate.
    fn root() -> PathBuf {
        PathBuf::from("../..")
    }

    fn schema(crd: &Value) -> &Value {
        &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    }

    #[test]
    fn the_committed_crds_are_the_types() {
        for crd in all() {
            let generated = serde_yaml::to_string(&crd).unwrap();
            let path = root().join(file(&crd));
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &generated).unwrap();
            }
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(committed == generated, "{} is stale; run the tests once with UPDATE_GOLDEN=1", path.display());
        }
    }

    /// Else it would count as ready until somebody looks.
    #[test]
    fn an_object_whose_status_has_a_generation_begins_as_unseen() {
        let begins = |crd: &CustomResourceDefinition| {
            let crd = serde_json::to_value(crd).unwrap();
            let status = &schema(&crd)["properties"]["status"];
            (status["properties"]["observedGeneration"].is_object(), status["default"] == json!({"observedGeneration": -1}))
        };
        let all = all();
        assert!(all.iter().map(begins).all(|(has, says)| has == says));
        let of = |kind: &str| all.iter().find(|crd| crd.spec.names.kind == kind).map(begins);
        assert!(["Team", "Tool", "Skill", "Agent", "Integration"].iter().all(|kind| of(kind) == Some((true, true))));
    }

    #[test]
    fn every_string_list_and_map_has_a_limit() {
        let mut unbounded = Vec::new();
        for crd in all() {
            let crd = serde_json::to_value(crd).unwrap();
            let spec = &schema(&crd)["properties"]["spec"];
            visit(spec, &mut "spec".to_owned(), &mut |path, node| {
                let free = match node.get("type").map(type_name) {
                    Some("string") => !["enum", "maxLength", "format"].iter().any(|k| node.contains_key(*k)),
                    Some("array") => !node.contains_key("maxItems"),
                    Some("object") => node.contains_key("additionalProperties") && !node.contains_key("maxProperties"),
                    _ => false,
                };
                // Quantities are strings or integers, and say so in `anyOf`; the length stands above that.
                if free && !path.contains("anyOf") {
                    unbounded.push(format!("{}: {path}", crd["spec"]["names"]["kind"]));
                }
            });
        }
        assert_eq!(unbounded, Vec::<String>::new());
    }

    #[test]
    fn every_field_is_documented() {
        let mut silent = Vec::new();
        for crd in all() {
            let crd = serde_json::to_value(crd).unwrap();
            visit(schema(&crd), &mut String::new(), &mut |path, node| {
                for (name, field) in node.get("properties").and_then(Value::as_object).into_iter().flatten() {
                    if field.get("description").is_none() && !matches!(name.as_str(), "metadata" | "apiVersion" | "kind") {
                        silent.push(format!("{}{path}.{name}", crd["spec"]["names"]["kind"].as_str().unwrap()));
                    }
                }
            });
        }
        silent.retain(|path| !path.contains("podTemplate."));
        assert_eq!(silent, Vec::<String>::new());
    }

    fn visit(node: &Value, path: &mut String, f: &mut impl FnMut(&str, &Map<String, Value>)) {
        match node {
            Value::Object(object) => {
                f(path, object);
                for (key, value) in object.iter().filter(|(key, _)| !key.starts_with("x-kubernetes-validations")) {
                    let length = path.len();
                    path.push('.');
                    path.push_str(key);
                    visit(value, path, f);
                    path.truncate(length);
                }
            }
            Value::Array(list) => list.iter().for_each(|value| visit(value, path, f)),
            _ => {}
        }
    }
}
