//! The CRDs, generated from the types. `crds/` holds them; the tests here keep the two the same and
//! see to it that a later v1 accepts whatever an earlier one did.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, CustomResourceDefinitionVersion, JSON};
use kube::CustomResourceExt;
use serde_json::json;

/// Every CRD, in the order in which they are best installed.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        crate::Team::crd(),
        crate::Tool::crd(),
        crate::KnowledgeBase::crd(),
        crate::Skill::crd(),
        crate::Agent::crd(),
        crate::AgentRelease::crd(),
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
    use std::path::{Path, PathBuf};
    use std::process::Command;

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
        assert!(["Team", "Tool", "Skill", "Agent"].iter().all(|kind| of(kind) == Some((true, true))));
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

    /// What was narrowed although it was accepted, because it could never run, and why that is so. Objects that exist keep
    /// such values until these are changed: the API server does not judge anew what a write leaves as it is.
    const NEVER_RAN: &[(&str, &str, &str)] = &[
        ("Agent", ".spec.systemPrompt: maxLength became tighter", "a variable holds 120 KiB; the agent was Stalled, ConfigTooLarge"),
        ("Agent", ".spec.systemPrompt: a rule was added: \"bytes(self).size() <= 122880\"", "the same, in bytes"),
        (
            "Agent",
            ".spec.podTemplate",
            "the API server refuses pods with label keys over 317 characters, values over 63, or names over 253; no node's label has a longer value for an affinity to name",
        ),
        ("Skill", ".spec.instructions: a rule was added: \"bytes(self).size() <= 65536\"", "the skill's phase was Error, FieldInvalid"),
        (
            "Skill",
            ".spec.files: a rule was added: \"self.map(p, bytes(self[p]).size()).sum() <= 262144\"",
            "the skill's phase was Error, FieldInvalid",
        ),
        (
            "Tool",
            ".spec.headers: a rule was added: \"self.map(k, bytes(self[k]).size()).sum() <= 122880\"",
            "all tools of an agent stand in one variable, of 120 KiB; every agent that named the tool was Stalled, ConfigTooLarge",
        ),
        ("Tool", ".spec.allowedCommands: a rule was added: \"self.map(c, bytes(c).size()).sum() <= 122880\"", "the same"),
    ];

    fn could_run(kind: &str, narrowed: &str) -> bool {
        let exactly = |found: &str| narrowed == found || found == ".spec.podTemplate" && is_name_of_a_pod(narrowed);
        !NEVER_RAN.iter().any(|(of, found, _)| *of == kind && exactly(found))
    }

    fn is_name_of_a_pod(narrowed: &str) -> bool {
        narrowed.starts_with(".spec.podTemplate.") && !narrowed.contains("annotations") && narrowed.ends_with(": maxLength became tighter")
    }

    /// v1 is additive: what one commit accepted, the next one accepts.
    #[test]
    fn v1_is_not_narrowed() {
        for crd in all() {
            let path = file(&crd);
            let Some(before) = previous(&path) else { continue };
            let now = serde_json::to_value(&crd).unwrap();
            let mut narrowed = narrowings(schema(&before), schema(&now));
            narrowed.retain(|found| could_run(&crd.spec.names.kind, found));
            assert_eq!(narrowed, Vec::<String>::new(), "{} accepts less than it did", path.display());
        }
    }

    /// The file as the previous commit had it; none if there is no such commit or file.
    fn previous(path: &Path) -> Option<Value> {
        let shown = Command::new("git").arg("show").arg(format!("HEAD~1:{}", path.display())).current_dir(root()).output().ok()?;
        let text = String::from_utf8(shown.stdout).ok().filter(|_| shown.status.success())?;
        Some(serde_yaml::from_str(&text).unwrap())
    }

    /// Deliberate: what stands in a header of such a name is a secret that whoever may read Tools could read. Tools that have
    /// one keep it until their headers are changed.
    fn is_against_secrets(path: &str, rule: &Value) -> bool {
        path == ".spec.headers" && rule.as_str().is_some_and(|rule| rule.starts_with("self.all(k, !k.lowerAscii().matches('token|secret|"))
    }

    fn narrowings(before: &Value, now: &Value) -> Vec<String> {
        let mut found = Vec::new();
        compare(before, now, "", &mut found);
        found
    }

    fn compare(before: &Value, now: &Value, path: &str, found: &mut Vec<String>) {
        if before.get("type") != now.get("type") {
            found.push(format!("{path}: the type changed"));
        }
        for (keyword, tighter) in
            [("maxLength", -1), ("maxItems", -1), ("maxProperties", -1), ("maximum", -1), ("minLength", 1), ("minItems", 1), ("minimum", 1)]
        {
            let (old, new) = (before.get(keyword).and_then(Value::as_f64), now.get(keyword).and_then(Value::as_f64));
            let narrower = match (old, new) {
                (None, Some(_)) => true,
                (Some(old), Some(new)) => {
                    if tighter < 0 {
                        new < old
                    } else {
                        new > old
                    }
                }
                _ => false,
            };
            if narrower {
                found.push(format!("{path}: {keyword} became tighter"));
            }
        }
        if now.get("pattern").is_some() && now.get("pattern") != before.get("pattern") {
            found.push(format!("{path}: the pattern changed"));
        }
        let list = |value: &Value, keyword: &str| value.get(keyword).and_then(Value::as_array).cloned().unwrap_or_default();
        if now.get("enum").is_some() && list(before, "enum").iter().any(|word| !list(now, "enum").contains(word)) {
            found.push(format!("{path}: a word was taken out of the enumeration"));
        }
        for field in list(now, "required").iter().filter(|field| !list(before, "required").contains(field)) {
            found.push(format!("{path}: {field} became required"));
        }
        let rules = |value: &Value| list(value, "x-kubernetes-validations").iter().map(|rule| rule["rule"].clone()).collect::<Vec<_>>();
        // A rule that holds wherever a new field is missing refuses nothing that was accepted before.
        let fields = |value: &Value| value.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let new: Vec<String> = fields(now).into_iter().map(|(name, _)| name).filter(|name| !fields(before).contains_key(name)).collect();
        let of_new = |rule: &Value| {
            let text = rule.as_str().unwrap_or_default();
            !text.contains(" ? ") && new.iter().any(|name| text.starts_with(&format!("!has(self.{name}) || ")))
        };
        // The same of a new field within one that was there.
        let of_new_within = |rule: &Value| {
            let text = rule.as_str().unwrap_or_default();
            fields(now).iter().any(|(name, part)| {
                let (had, has) = (fields(&before["properties"][name]), fields(part));
                let begins = |inner: &String| text.starts_with(&format!("!has(self.{name}) || !has(self.{name}.{inner}) || "));
                !text.contains(" ? ") && has.keys().any(|inner| !had.contains_key(inner) && begins(inner))
            })
        };
        let is_added = |rule: &&Value| !rules(before).contains(rule) && !of_new(rule) && !of_new_within(rule);
        for rule in rules(now).iter().filter(is_added).filter(|rule| !is_against_secrets(path, rule)) {
            found.push(format!("{path}: a rule was added: {rule}"));
        }
        for (name, old) in before.get("properties").and_then(Value::as_object).into_iter().flatten() {
            match now["properties"].get(name) {
                Some(new) => compare(old, new, &format!("{path}.{name}"), found),
                None => found.push(format!("{path}.{name}: the field is gone")),
            }
        }
        for inner in ["items", "additionalProperties"] {
            if let (Some(old), Some(new)) = (before.get(inner), now.get(inner)) {
                compare(old, new, &format!("{path}[]"), found);
            }
        }
    }

    #[test]
    fn a_narrowing_is_noticed() {
        let before = serde_json::json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string", "maxLength": 10, "enum": ["x", "y"]},
            "b": {"type": "integer"},
        }});
        let cases = [
            ("/properties/a/maxLength", serde_json::json!(9)),
            ("/properties/a/enum", serde_json::json!(["x"])),
            ("/properties/b/type", serde_json::json!("string")),
            ("/required", serde_json::json!(["a", "b"])),
            ("/properties", serde_json::json!({"a": before["properties"]["a"]})),
        ];
        assert_eq!(narrowings(&before, &before), Vec::<String>::new());
        for (pointer, value) in cases {
            let mut now = before.clone();
            *now.pointer_mut(pointer).unwrap() = value;
            assert_eq!(narrowings(&before, &now).len(), 1, "{pointer}");
        }
        for (rule, count) in
            [("!has(self.c) || self.a == 'x'", 0), ("!has(self.b) || self.a == 'x'", 1), ("self.a == 'x' || !has(self.c)", 1)]
        {
            let mut now = before.clone();
            now["properties"]["c"] = serde_json::json!({"type": "string"});
            now["x-kubernetes-validations"] = serde_json::json!([{"rule": rule}]);
            assert_eq!(narrowings(&before, &now).len(), count, "{rule}");
        }
    }
}
