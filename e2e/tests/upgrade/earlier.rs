//! The chart as an earlier commit has it, read out of the repository's own history.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use slipway_e2e::ROOT;
use slipway_peers::skip;

/// The last commit before there were releases. Since then came a kind, a part of the platform, policies and fields of
/// Agents, so that an upgrade from here changes something of every sort.
const COMMIT: &str = "61220b067bc36f49f855caf20fe0a58c5b3e46c6";

/// Lays the chart out in a folder of its own. Images are not built from the commit: its chart is given the present ones.
/// None in a clone that has no history and cannot get it.
#[track_caller]
pub(crate) fn chart() -> Option<tempfile::TempDir> {
    let git =
        |arguments: &[&str]| Command::new("git").args(["-C", ROOT]).args(arguments).output().is_ok_and(|output| output.status.success());
    let known = || git(&["cat-file", "-e", &format!("{COMMIT}^{{commit}}")]);
    if !known() {
        git(&["fetch", "--quiet", "--unshallow"]);
    }
    if !known() {
        skip(&format!("commit {COMMIT}, whose chart is upgraded from, is not here; in a shallow clone, git fetch --unshallow gets it"));
        return None;
    }
    let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("no folder for a chart: {e}"));
    let script =
        "set -o pipefail; git -C \"$0\" archive \"$1\" Chart.yaml values.yaml values.schema.json templates crds | tar -x -C \"$2\"";
    let unpacked = Command::new("bash").args(["-c", script, ROOT, COMMIT]).arg(folder.path()).output();
    assert!(unpacked.as_ref().is_ok_and(|output| output.status.success()), "the chart of {COMMIT} cannot be laid out: {unpacked:?}");
    Some(folder)
}

/// What its schema knows of these values: it refuses what speaks of parts that it does not have yet.
#[track_caller]
pub(crate) fn known(chart: &Path, values: &Value) -> Value {
    let path = chart.join("values.schema.json");
    let schema = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let schema: Value = serde_json::from_str(&schema).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    pick(values, &schema)
}

fn pick(values: &Value, schema: &Value) -> Value {
    let (Some(values), Some(properties)) = (values.as_object(), schema["properties"].as_object()) else { return values.clone() };
    let known = |(name, value): (&String, &Value)| properties.get(name).map(|schema| (name.clone(), pick(value, schema)));
    Value::Object(values.iter().filter_map(known).collect())
}
