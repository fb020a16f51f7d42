//! What cannot be mutated as everything else is, by name and with the reason. An exception that is not needed any more fails
//! the test.

use std::collections::BTreeSet;

use super::bases::BASES;
use super::schema;

/// Kinds whose objects stay as they were made: their fields are tried in the making, and every change is refused.
pub(super) const MADE_ONCE: [&str; 3] = ["AgentRelease", "EvaluationRun", "Ingestion"];
/// Fields of such kinds that may change all the same, by rules that `e2e/tests/rules` tries.
pub(super) const MAY_CHANGE: [&str; 4] = [
    "EvaluationRun.spec.cancel",
    "EvaluationRun.spec.ttlSecondsAfterFinished",
    "Ingestion.spec.cancel",
    "Ingestion.spec.ttlSecondsAfterFinished",
];
/// Kinds without a controller, and so without a status that could speak.
pub(super) const UNSEEN: [&str; 0] = [];

/// Fields of which the API server accepts one value alone.
const ONE_VALUE: [(&str, &str); 4] = [
    ("Agent.spec.channel", "rest is the only channel there is"),
    ("Agent.spec.expose", "gateway is the only way to be exposed"),
    ("GuardrailPolicy.spec.rules[]", "a rule needs a type, an operator that is the type's and a value that is, which are tried one by one"),
    ("Tool.spec.type", "each type has a field that no other may have, but builtin, which has none that another needs"),
];

/// Of these a KnowledgeBase has the same, which may change there. An Ingestion's may not, and only its own kind of source fits.
const TRIED_ELSEWHERE: &str = "Ingestion.spec.source";

/// What is wrong with this list, and which fields should be on it.
pub(super) fn judge(fields: &BTreeSet<&str>, accepted: &BTreeSet<&str>) -> Vec<String> {
    let is_elsewhere = |field: &str| field.strip_prefix(TRIED_ELSEWHERE).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let excepted = |field: &str| is_elsewhere(field) || ONE_VALUE.iter().any(|(known, _)| *known == field);
    let none = fields.difference(accepted).filter(|field| !excepted(field));
    let mut faults: Vec<_> = none
        .map(|field| format!("{field} takes no value but its own: give a base in mutation/bases.rs one that may change, or say in mutation/exceptions.rs why not"))
        .collect();
    for (field, reason) in ONE_VALUE {
        if !fields.contains(field) {
            faults.push(format!("mutation/exceptions.rs speaks of {field}, which is no field"));
        } else if accepted.contains(field) {
            faults.push(format!("{field} takes another value than its own, and mutation/exceptions.rs says that {reason}"));
        }
    }
    for kind in schema::kinds() {
        let status = &kind.schema["properties"]["status"];
        if UNSEEN.contains(&kind.name.as_str()) == status.is_object() {
            faults.push(format!("{} has a status, or has none: mutation/exceptions.rs says otherwise", kind.name));
        }
        let rules = kind.schema["properties"]["spec"]["x-kubernetes-validations"].as_array();
        let fixed =
            rules.into_iter().flatten().any(|rule| rule["message"].as_str().is_some_and(|message| message.contains("does not change")));
        if MADE_ONCE.contains(&kind.name.as_str()) != fixed {
            faults.push(format!("{} may change, or may not: mutation/exceptions.rs says otherwise", kind.name));
        }
    }
    let gone = MAY_CHANGE.iter().filter(|field| !fields.contains(**field));
    faults.extend(gone.map(|field| format!("mutation/exceptions.rs speaks of {field}, which is no field")));
    let unknown = MADE_ONCE.iter().chain(&UNSEEN).filter(|name| BASES.iter().all(|base| base.kind != **name));
    faults.extend(unknown.map(|name| format!("mutation/exceptions.rs speaks of {name}, which is no kind")));
    faults
}
