//! The file of a team's policies: which one it is, its text within a bound, and what stands in it.

use std::fs::{File, metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use serde::Deserialize;
use serde_json::Value;

/// As much as the platform writes.
pub(super) const MAX_BYTES: u64 = 512 * 1024;

/// A file as it was when it was looked at. kubelet puts another file in its place; others may write into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

/// What stands in the file. Policies are read once it is known which are wanted.
#[derive(Debug, Deserialize)]
pub(super) struct PolicyFile {
    pub(super) policies: Vec<Value>,
    /// The ids of those that hold for agents that name none.
    #[serde(default)]
    pub(super) default: Vec<String>,
    /// The ids of those that hold for every agent.
    #[serde(default)]
    pub(super) required: Vec<String>,
}

impl FileIdentity {
    pub(super) fn of(path: &Path) -> Result<Self, String> {
        let found = metadata(path).map_err(|error| fault(path, &error.to_string()))?;
        // Opening a pipe would wait for its writer.
        if !found.is_file() {
            return Err(fault(path, "it is not a file"));
        }
        if found.len() > MAX_BYTES {
            return Err(fault(path, &format!("it has {} bytes; {MAX_BYTES} are read", found.len())));
        }
        Ok(Self { device: found.dev(), inode: found.ino(), bytes: found.len(), modified: found.modified().ok() })
    }
}

pub(super) fn read(path: &Path) -> Result<String, String> {
    let mut text = Vec::new();
    let file = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut text));
    file.map_err(|error| fault(path, &error.to_string()))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(fault(path, &format!("it has more than {MAX_BYTES} bytes")));
    }
    String::from_utf8(text).map_err(|_| fault(path, "it is not UTF-8"))
}

impl PolicyFile {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("RUNTIME_POLICIES_FILE must hold an object with `policies`; it goes wrong at line {line} column {column}")
        })
    }
}

fn fault(path: &Path, what: &str) -> String {
    format!("RUNTIME_POLICIES_FILE, {}: {what}", path.display())
}
