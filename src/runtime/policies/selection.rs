//! Which policies hold: those that `RUNTIME_POLICIES` has whole or names by their ids; where it names none, the file's defaults; and always those
//! that the team requires.

use std::path::PathBuf;

use serde_json::Value;
use slipway_guards::{Guards, Policy};

use super::file::PolicyFile;

/// The word for all that the file has as defaults.
const DEFAULT: &str = "default";

#[derive(Debug, Default)]
pub(super) struct Selection {
    /// `RUNTIME_GUARDS`.
    guards: String,
    whole: Vec<Policy>,
    ids: Vec<String>,
    pub(super) file: Option<PathBuf>,
}

/// What is to be in force, and the ids that lead nowhere.
#[derive(Debug)]
pub(super) struct Selected {
    pub(super) guards: Guards,
    pub(super) missing: Vec<String>,
}

impl Selection {
    pub(super) fn read(guards: &str, policies: &str, file: Option<PathBuf>) -> Result<Self, Vec<String>> {
        let named: Vec<Value> =
            serde_json::from_str(policies).map_err(|error| vec![format!("RUNTIME_POLICIES is not a JSON array: {error}")])?;
        let (mut whole, mut ids, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for (at, value) in named.into_iter().enumerate() {
            match value {
                Value::String(id) if file.is_none() => {
                    let id = &id[..id.floor_char_boundary(128)];
                    faults.push(format!("RUNTIME_POLICIES names the policy `{id}`, and RUNTIME_POLICIES_FILE is not set; without a file policies stand in it whole"));
                }
                Value::String(id) => ids.push(id),
                other => match Policy::read(other) {
                    Ok(policy) => whole.push(policy),
                    Err(fault) => faults.push(format!("RUNTIME_POLICIES, entry {}: {fault}", at + 1)),
                },
            }
        }
        if faults.is_empty() { Ok(Self { guards: guards.to_owned(), whole, ids, file }) } else { Err(faults) }
    }

    /// What holds before the file has been read.
    pub(super) fn own(&self) -> Result<Guards, Vec<String>> {
        let named = |fault: String| if fault.starts_with("policy ") { format!("RUNTIME_POLICIES: {fault}") } else { fault };
        Guards::compile(&self.guards, &self.whole).map_err(|faults| faults.into_iter().map(named).collect())
    }

    /// Without `may_lack`, every policy that is named must be there: the file may be older than the agent. One that was there and is gone was
    /// deleted, and holds no longer.
    pub(super) fn select(&self, file: PolicyFile, may_lack: bool) -> Result<Selected, String> {
        let PolicyFile { policies, default, required } = file;
        let names_none = self.ids.is_empty() && self.whole.is_empty();
        let mut wanted: Vec<&String> = Vec::new();
        let named = self.ids.iter().filter(|id| *id != DEFAULT);
        let defaults = default.iter().filter(|_| names_none || self.ids.iter().any(|id| id == DEFAULT));
        for id in named.chain(defaults).chain(&required) {
            if !wanted.contains(&id) {
                wanted.push(id);
            }
        }
        let (mut chosen, mut missing, mut faults) = (self.whole.clone(), Vec::new(), Vec::new());
        for id in wanted {
            match policies.iter().find(|policy| policy.get("id").and_then(Value::as_str) == Some(id)) {
                Some(policy) => match Policy::read(policy.clone()) {
                    Ok(policy) => chosen.push(policy),
                    Err(fault) => faults.push(format!("policy `{}`: {fault}", &id[..id.floor_char_boundary(128)])),
                },
                None if !may_lack && self.ids.contains(id) => {
                    faults.push(format!("it has no policy `{}`", &id[..id.floor_char_boundary(128)]));
                }
                None => missing.push(id[..id.floor_char_boundary(128)].to_owned()),
            }
        }
        if faults.is_empty() {
            match Guards::compile(&self.guards, &chosen) {
                Ok(guards) => return Ok(Selected { guards, missing }),
                Err(found) => faults = found,
            }
        }
        // A file may have many, and the log and an answer have room for few.
        let more = faults.len().saturating_sub(3);
        faults.truncate(3);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Err(format!("RUNTIME_POLICIES_FILE: {}{more}", faults.join("; ")))
    }
}
