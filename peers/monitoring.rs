//! What `config/monitoring` holds, and which metrics its rules and dashboards, and REST's radar, ask for.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::repository;

/// Whose metrics have a prefix of their own; all others are the manager's.
const PARTS: [&str; 3] = ["slipway_runtime_", "slipway_rest_", "slipway_worker_"];
/// What Grafana puts in the place of its variables.
const VARIABLES: [(&str, &str); 5] =
    [("$__rate_interval", "5m"), ("$__range", "1d"), ("$__interval", "1m"), ("$namespace", ".*"), ("$agent", ".*")];

/// The folder of rules and dashboards.
pub fn monitoring() -> PathBuf {
    repository().join("config/monitoring")
}

/// An expression of a dashboard, as Grafana sends it.
pub struct Panel {
    /// The dashboard's file and the panel's title.
    pub place: String,
    pub expression: String,
}

/// The dashboards by the names of their files.
pub fn dashboards() -> Vec<(String, Value)> {
    let folder = monitoring().join("dashboards");
    let mut files: Vec<_> = fs::read_dir(&folder).expect("a folder of dashboards").flatten().map(|file| file.path()).collect();
    files.sort();
    let read = |file: PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).expect("a dashboard can be read");
        let dashboard = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, dashboard)
    };
    files.into_iter().map(read).collect()
}

/// Every expression of every dashboard.
pub fn panels() -> Vec<Panel> {
    let mut found = Vec::new();
    for (file, dashboard) in dashboards() {
        for panel in dashboard["panels"].as_array().into_iter().flatten() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().expect("a target has an expression");
                // With all of a kind where one is chosen.
                let expression = expression.replace("=\"$", "=~\"$");
                let expression = VARIABLES.iter().fold(expression, |text, (variable, value)| text.replace(variable, value));
                let place = format!("{file}, {}", panel["title"].as_str().unwrap_or_default());
                found.push(Panel { place, expression });
            }
        }
    }
    found
}

/// The metrics whose names begin with `prefix` that are asked for somewhere; with `slipway_` those of no other part.
fn metric_names(prefix: &str) -> BTreeSet<String> {
    let mut places = vec![monitoring().join("rules.yaml"), repository().join("src/rest/radar/prometheus.rs")];
    places.extend(dashboards().into_iter().map(|(file, _)| monitoring().join("dashboards").join(file)));
    let texts = places.iter().map(|place| fs::read_to_string(place).unwrap_or_else(|error| panic!("{}: {error}", place.display())));
    let names: BTreeSet<String> = texts.flat_map(|text| names(&text)).collect();
    let of_a_part = |name: &str| PARTS.into_iter().find(|part| name.starts_with(part)).unwrap_or("slipway_") == prefix;
    let found: BTreeSet<String> = names.into_iter().filter(|name| of_a_part(name)).collect();
    assert!(!found.is_empty(), "nothing asks for metrics that begin with {prefix}");
    found
}

/// Fails for each name that is asked for and has no sample on this page.
pub fn has_metrics(prefix: &str, page: &str) {
    let missing: Vec<String> = metric_names(prefix)
        .into_iter()
        .filter(|name| !page.lines().any(|line| line.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(['{', ' ']))))
        .collect();
    assert!(missing.is_empty(), "rules, dashboards or the radar ask for {missing:?}, which are not on the page:\n{page}");
}

/// Words that are names of metrics and no rule's: these have colons.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !(character.is_ascii_alphanumeric() || character == '_' || character == ':'));
    words.filter(|word| word.starts_with("slipway_") && !word.contains(':')).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_metrics_are_told_from_those_of_rules() {
        let text = r#"sum by (agent) (rate(slipway_runtime_turns_total{outcome="error"}[5m])) / namespace_agent:slipway_x:rate5m"#;
        assert_eq!(names(text), BTreeSet::from(["slipway_runtime_turns_total".to_owned()]));
    }

    #[test]
    #[should_panic(expected = "slipway_runtime_turns_total")]
    fn a_metric_that_is_renamed_is_missed() {
        has_metrics("slipway_runtime_", "slipway_runtime_turns_ended_total 1\n");
    }
}
