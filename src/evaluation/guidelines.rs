//! The rules that an answer has to keep: the run's, else the dataset's, else the case's own.

use serde_json::Value;

use crate::wire::RunCase;

/// What holds for a case. `guidelines` are the run's, or the dataset's if the run has none.
pub(crate) fn rules<'a>(case: &'a RunCase, guidelines: &'a [String]) -> Vec<&'a str> {
    let shared = filled(guidelines.iter().map(String::as_str));
    if shared.is_empty() { of_case(case) } else { shared }
}

/// The case's own `metadata.guidelines`: a list of rules, or one.
pub(crate) fn of_case(case: &RunCase) -> Vec<&str> {
    match case.metadata.as_ref().and_then(|metadata| metadata.get("guidelines")) {
        Some(Value::String(rule)) => filled([rule.as_str()]),
        Some(Value::Array(rules)) => filled(rules.iter().filter_map(Value::as_str)),
        _ => Vec::new(),
    }
}

fn filled<'a>(rules: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    rules.into_iter().map(str::trim).filter(|rule| !rule.is_empty()).collect()
}
