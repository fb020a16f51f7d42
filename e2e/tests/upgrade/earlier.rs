//! Slipway as an earlier commit has it, chart and images: hack/lib/earlier.sh says which commit, and makes them.

use std::path::{Path, PathBuf};

use serde_json::Value;
use slipway_e2e::ROOT;
use slipway_peers::skip;

pub(crate) struct Earlier {
    pub chart: PathBuf,
    images: Value,
}

impl Earlier {
    /// None in a clone that has no history and cannot get it.
    #[track_caller]
    pub(crate) fn found() -> Option<Self> {
        let folder = Path::new(ROOT).join(".local/earlier");
        if !folder.exists() {
            skip(
                "the commit that is upgraded from is not here; hack/test makes .local/earlier of it, in a shallow clone after git fetch --unshallow",
            );
            return None;
        }
        Some(Self { chart: folder.join("chart"), images: read(&folder.join("values.json")) })
    }

    /// What its schema knows of these values, as it refuses what speaks of parts that it does not have yet; and its own images.
    #[track_caller]
    pub(crate) fn values(&self, values: &Value) -> Value {
        let mut known = pick(values, &read(&self.chart.join("values.schema.json")));
        merge(&mut known, &self.images);
        known
    }
}

#[track_caller]
fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn pick(values: &Value, schema: &Value) -> Value {
    let (Some(values), Some(properties)) = (values.as_object(), schema["properties"].as_object()) else { return values.clone() };
    let known = |(name, value): (&String, &Value)| properties.get(name).map(|schema| (name.clone(), pick(value, schema)));
    Value::Object(values.iter().filter_map(known).collect())
}

fn merge(into: &mut Value, from: &Value) {
    match from.as_object() {
        Some(fields) => fields.iter().for_each(|(name, value)| merge(&mut into[name], value)),
        None => *into = from.clone(),
    }
}
