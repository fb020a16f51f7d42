//! v1 is additive: what it accepted once, it goes on accepting. `testdata/accepted.txt` has a line for each field, with
//! what the field accepted when it first landed. `UPDATE_GOLDEN=1` adds lines for new fields and changes no other; what
//! accepts less than its line stands in [`NARROWED`], with the reason.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use serde_json::{Map, Value, json};

use crate::crd::all;

const FILE: &str = "testdata/accepted.txt";

/// Of each, the smaller value accepts less.
const UPPER: [&str; 5] = ["maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum"];
/// Of each, the larger value accepts less.
const LOWER: [&str; 5] = ["minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum"];
/// What is accepted without these may be refused with them, and with other values of them.
const CONDITIONS: [&str; 10] =
    ["type", "pattern", "format", "anyOf", "oneOf", "allOf", "not", "multipleOf", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"];
/// What is accepted with these may be refused without them.
const PERMISSIONS: [&str; 3] = ["nullable", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];

/// What was narrowed since it landed, and why; `…` stands for any text. Either the values could never run, or they are
/// secrets that every reader of the object could read. Objects that exist keep such values until these are changed: the
/// API server does not judge anew what a write leaves as it is.
const NARROWED: &[(&str, &str)] = &[
    (
        "Agent.spec.databaseUrl: a rule was added: !self.matches('^[^:]*://[^@]*(:|%3[Aa])[^@]*@')",
        "a password in disguise; one in plain words was refused from the beginning",
    ),
    ("Agent.spec.databaseUrl: a rule was added: !self.matches('[?&][^=&]*([Pp][Aa][Ss][Ss]|%)[^=&]*=')", "the same"),
    ("Agent.spec.podTemplate.affinity.…: maxLength 1024 → 317", "no label's key or value and no namespace's name is longer"),
    ("Agent.spec.podTemplate.imagePullSecrets[].name: maxLength 1024 → 317", "no Secret's name is longer"),
    ("Agent.spec.podTemplate.labels{}: maxLength 1024 → 63", "the API server refuses pods with longer ones"),
    ("Agent.spec.podTemplate.nodeSelector{}: maxLength 1024 → 63", "no node's label is longer"),
    ("Agent.spec.podTemplate.priorityClassName: pattern null → \"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$\"", "no PriorityClass has such a name"),
    ("Agent.spec.podTemplate.runtimeClassName: pattern null → \"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$\"", "no RuntimeClass has such a name"),
    ("Agent.spec.podTemplate.tolerations[].…: maxLength 1024 → 317", "no taint's key, value or effect is longer"),
    ("Agent.spec.resources.…: minimum null → 0.0", "the API server refuses pods with negative quantities"),
    ("Team.spec.containerLimits.…: minimum null → 0.0", "the API server refuses LimitRanges with negative quantities"),
    ("Team.spec.quota{}: minimum null → 0.0", "the API server refuses ResourceQuotas with negative quantities"),
    ("Agent.spec.systemPrompt: maxLength 262144 → 122880", "a variable holds 120 KiB; the agent was Stalled, ConfigTooLarge"),
    ("Agent.spec.systemPrompt: a rule was added: bytes(self).size() <= 122880", "the same, in bytes"),
    (
        "EvaluationRun.spec: a rule was added: self.agent == oldSelf.agent && … && has(self.content) == has(oldSelf.content) && (!has(self.content) || self.content == oldSelf.content)",
        "of the field content alone, which no run had before",
    ),
    (
        "Ingestion.spec.source: a rule was added: has(self.integration) || …",
        "they say what another rule and required said, where there is no integration",
    ),
    ("KnowledgeBase.spec.sources[]: a rule was added: has(self.integration) || …", "the same"),
    ("Skill.spec.files: a rule was added: self.map(p, bytes(self[p]).size()).sum() <= 262144", "the skill's phase was Error, FieldInvalid"),
    ("Skill.spec.instructions: a rule was added: bytes(self).size() <= 65536", "the skill's phase was Error, FieldInvalid"),
    (
        "Tool.spec: a rule was added: !has(self.endpoint) || sets.contains(has(self.parameters) ? self.parameters.map(q, '{' + q.name + '}') : [], self.endpoint.findAll('[{][^}]*[}]'))",
        "it says what another rule said, that placeholders are declared; that one costs too much for endpoints of 2048 characters",
    ),
    ("Tool.spec.endpoint: pattern …", "it takes paths besides, which an integration completes"),
    (
        "Tool.spec: a rule was added: !has(self.endpoint) || !self.endpoint.startsWith('/') || has(self.integration)",
        "no endpoint began with a slash before there were integrations",
    ),
    (
        "Tool.spec: a rule was added: self.type != 'mcp' || has(self.mcpEndpoint) || has(self.integration)",
        "it says what another rule said, where there is no integration",
    ),
    (
        "Tool.spec.allowedCommands: a rule was added: self.map(c, bytes(c).size()).sum() <= 122880",
        "all tools of an agent stand in one variable, of 120 KiB; every agent that named the tool was Stalled, ConfigTooLarge",
    ),
    ("Tool.spec.headers: a rule was added: self.map(k, bytes(self[k]).size()).sum() <= 122880", "the same"),
    (
        "Tool.spec.parameters: a rule was added: self.map(p, has(p.description) ? bytes(p.description).size() : 0).sum() <= 122880",
        "the same",
    ),
    (
        "Tool.spec.endpoint: a rule was added: self.matches('^[^{}]*([{][^{}]+[}][^{}]*)*$')",
        "a placeholder that only looks closed; the tool could not be called",
    ),
    (
        "Tool.spec.headers: a rule was added: self.all(k, !k.lowerAscii().matches('token|secret|(api|access|private|auth|subscription|functions)-?key|passw(or)?d|credential|(^|-)auth$'))",
        "a header of such a name holds a secret",
    ),
];

fn is(found: &str, known: &str) -> bool {
    known.split_once('…').map_or(found == known, |(begin, end)| found.starts_with(begin) && found.ends_with(end))
}

/// What fields accept, by their paths, which begin with the kind: `Tool.spec.parameters[].name`, `Tool.spec.headers{}`.
type Fields = BTreeMap<String, Value>;

#[test]
fn v1_is_not_narrowed() {
    let (mut accepted, now) = (read(&fs::read_to_string(FILE).unwrap()), fields());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        add(&mut accepted, &now);
        fs::write(FILE, write(&accepted)).unwrap();
    }
    let unknown: Vec<&String> = now.keys().filter(|path| !accepted.contains_key(*path)).collect();
    assert!(unknown.is_empty(), "fields without a line in src/api/{FILE}; run the tests once with UPDATE_GOLDEN=1: {unknown:#?}");
    let found = narrowings(&accepted, &now);
    let new: Vec<&String> = found.iter().filter(|found| !NARROWED.iter().any(|(known, _)| is(found, known))).collect();
    assert!(new.is_empty(), "v1 accepts less than it did: {new:#?}");
    let idle: Vec<_> = NARROWED.iter().filter(|(known, _)| !found.iter().any(|found| is(found, known))).collect();
    assert!(idle.is_empty(), "reasons for what is not narrowed: {idle:#?}");
}

fn read(text: &str) -> Fields {
    let line = |line: &str| {
        let (path, field) = line.split_once(' ').unwrap();
        (path.to_owned(), serde_json::from_str(field).unwrap())
    };
    text.lines().map(line).collect()
}

fn write(fields: &Fields) -> String {
    fields.iter().fold(String::new(), |mut text, (path, field)| {
        writeln!(text, "{path} {field}").unwrap();
        text
    })
}

fn fields() -> Fields {
    let mut fields = Fields::new();
    for crd in all() {
        let schema = crd.spec.versions[0].schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        flatten(crd.spec.names.kind, &serde_json::to_value(schema).unwrap(), &mut fields);
    }
    fields
}

fn flatten(path: String, schema: &Value, fields: &mut Fields) {
    let keywords = [&UPPER[..], &LOWER, &CONDITIONS, &PERMISSIONS, &["enum", "required"]].concat();
    let mut own: Map<String, Value> =
        keywords.into_iter().filter_map(|keyword| Some((keyword.to_owned(), schema.get(keyword)?.clone()))).collect();
    if let Some(rules) = schema.get("x-kubernetes-validations").and_then(Value::as_array) {
        own.insert("rules".to_owned(), rules.iter().map(|rule| rule["rule"].clone()).collect());
    }
    for (name, part) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        flatten(format!("{path}.{name}"), part, fields);
    }
    for (keyword, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(part) = schema.get(keyword) {
            flatten(format!("{path}{mark}"), part, fields);
        }
    }
    fields.insert(path, own.into());
}

/// Adds the fields that are new, and to the fields around them the rules that hold wherever a new field is missing: these
/// refuse nothing that was accepted before.
fn add(accepted: &mut Fields, now: &Fields) {
    let new: Vec<&String> = now.keys().filter(|path| !accepted.contains_key(*path)).collect();
    for path in &new {
        for (at, _) in path.match_indices('.') {
            let (around, within) = (&path[..at], &path[at + 1..]);
            let Some(field) = accepted.get_mut(around) else { continue };
            let missing = missing(within);
            let of_it = |rule: &Value| rule.as_str().is_some_and(|rule| rule.starts_with(&missing) && !rule.contains(" ? "));
            let mut rules = list(field, "rules");
            let new = list(&now[around], "rules").into_iter().filter(|rule| of_it(rule) && !rules.contains(rule));
            let new: Vec<Value> = new.collect();
            if !new.is_empty() {
                rules.extend(new);
                field["rules"] = rules.into();
            }
        }
    }
    for path in new {
        accepted.insert(path.clone(), now[path].clone());
    }
}

/// How a rule begins that holds wherever `limits.prices` is missing: `!has(self.limits) || !has(self.limits.prices) || `.
fn missing(field: &str) -> String {
    let ends = field.match_indices('.').map(|(at, _)| at).chain([field.len()]);
    ends.flat_map(|end| ["!has(self.", &field[..end], ") || "]).collect()
}

fn list(field: &Value, keyword: &str) -> Vec<Value> {
    field.get(keyword).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn narrowings(before: &Fields, now: &Fields) -> Vec<String> {
    let of = |(path, before): (&String, &Value)| {
        let found = now.get(path).map_or_else(|| vec!["the field is gone".to_owned()], |now| compare(before, now));
        found.into_iter().map(|found| format!("{path}: {found}")).collect::<Vec<_>>()
    };
    before.iter().flat_map(of).collect()
}

fn compare(before: &Value, now: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for keyword in UPPER.into_iter().chain(LOWER) {
        let (old, new) = (&before[keyword], &now[keyword]);
        let is_tighter = |new: f64, old: f64| if UPPER.contains(&keyword) { new < old } else { new > old };
        if new.as_f64().is_some_and(|new| old.as_f64().is_none_or(|old| is_tighter(new, old))) {
            found.push(format!("{keyword} {old} → {new}"));
        }
    }
    for keyword in CONDITIONS.into_iter().filter(|keyword| now.get(keyword).is_some() && now[keyword] != before[keyword]) {
        found.push(format!("{keyword} {} → {}", before[keyword], now[keyword]));
    }
    for keyword in PERMISSIONS.into_iter().filter(|keyword| before[keyword] == true && now[keyword] != true) {
        found.push(format!("{keyword} was taken away"));
    }
    if now.get("enum").is_some() {
        let words = list(now, "enum");
        let gone: Vec<Value> = list(before, "enum").into_iter().filter(|word| !words.contains(word)).collect();
        if before.get("enum").is_none() || !gone.is_empty() {
            found.push(format!("of the values only {} are left", json!(words)));
        }
    }
    let added = |keyword| list(now, keyword).into_iter().filter(move |item| !list(before, keyword).contains(item));
    found.extend(added("required").map(|field| format!("{field} became required")));
    found.extend(added("rules").map(|rule| format!("a rule was added: {}", rule.as_str().unwrap_or_default())));
    found
}

/// Fields of a schema that is no kind of ours.
fn of(schema: &Value) -> Fields {
    let mut fields = Fields::new();
    flatten("Kind".to_owned(), schema, &mut fields);
    fields
}

fn example() -> Value {
    json!({"type": "object", "required": ["a"], "properties": {
        "a": {"type": "string", "maxLength": 10, "enum": ["x", "y"], "nullable": true},
        "b": {"type": "array", "minItems": 1, "items": {"type": "integer"}},
        "c": {"type": "object", "properties": {"old": {"type": "string"}}},
    }})
}

#[test]
fn a_narrowing_is_noticed() {
    let before = example();
    assert_eq!(narrowings(&of(&before), &of(&before)), Vec::<String>::new());
    for (pointer, value, says) in [
        ("/properties/a/maxLength", json!(9), "Kind.a: maxLength 10 → 9"),
        ("/properties/a/enum", json!(["x"]), "Kind.a: of the values only [\"x\"] are left"),
        ("/properties/a/nullable", json!(false), "Kind.a: nullable was taken away"),
        ("/properties/a/pattern", json!("^x$"), "Kind.a: pattern null → \"^x$\""),
        ("/properties/b/minItems", json!(2), "Kind.b: minItems 1 → 2"),
        ("/properties/b/x-kubernetes-list-type", json!("set"), "Kind.b: x-kubernetes-list-type null → \"set\""),
        ("/properties/b/items/type", json!("string"), "Kind.b[]: type \"integer\" → \"string\""),
        ("/properties/b/items/enum", json!([1]), "Kind.b[]: of the values only [1] are left"),
        ("/properties/b/items/maximum", json!(5), "Kind.b[]: maximum null → 5"),
        ("/required", json!(["a", "b"]), "Kind: \"b\" became required"),
        ("/properties/c/properties", json!({}), "Kind.c.old: the field is gone"),
        ("/x-kubernetes-validations", json!([{"rule": "self.a == 'x'"}]), "Kind: a rule was added: self.a == 'x'"),
    ] {
        let mut now = before.clone();
        let (parent, keyword) = pointer.rsplit_once('/').unwrap();
        now.pointer_mut(parent).unwrap()[keyword] = value;
        assert_eq!(narrowings(&of(&before), &of(&now)), [says], "{pointer}");
    }
    for (pointer, value) in [
        ("/properties/a/maxLength", json!(11)),
        ("/properties/a/enum", json!(["x", "y", "z"])),
        ("/properties/b/minItems", json!(0)),
        ("/required", json!([])),
    ] {
        let mut now = before.clone();
        *now.pointer_mut(pointer).unwrap() = value;
        assert_eq!(narrowings(&of(&before), &of(&now)), Vec::<String>::new(), "{pointer}");
    }
}

#[test]
fn what_is_added_for_a_new_field_stays_as_it_landed() {
    for (rule, count) in [
        ("!has(self.new) || self.a == 'x'", 0),
        ("!has(self.c) || !has(self.c.new) || self.a == 'x'", 0),
        ("!has(self.b) || self.a == 'x'", 1),
        ("self.a == 'x' || !has(self.new)", 1),
        ("!has(self.new) || self.a == 'x' ? true : false", 1),
    ] {
        let mut now = example();
        now["properties"]["new"] = json!({"type": "string", "maxLength": 10});
        now["properties"]["c"]["properties"]["new"] = json!({"type": "string"});
        now["x-kubernetes-validations"] = json!([{"rule": rule}]);
        let mut accepted = of(&example());
        add(&mut accepted, &of(&now));
        assert_eq!(narrowings(&accepted, &of(&now)).len(), count, "{rule}");
        assert_eq!(read(&write(&accepted)), accepted);
        // What comes later narrows the new field.
        let before = accepted.clone();
        now["properties"]["new"]["maxLength"] = json!(9);
        add(&mut accepted, &of(&now));
        assert_eq!(accepted, before);
        assert!(narrowings(&accepted, &of(&now)).contains(&"Kind.new: maxLength 10 → 9".to_owned()));
    }
}
