//! Knowledge bases: documents read, cut and embedded, beside other people's programs; searches by how many chunks there are,
//! beside an exact scan and plain pgvector; an ingestion and a worker as processes, with their memory; and a search through REST
//! beside one of the worker itself.

mod documents;
mod embedding;
mod processes;
mod search;
mod tenant;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::table;
pub(crate) use processes::through_rest;

/// The built-in model.
const MODEL: &str = "builtin:all-minilm-l6-v2";

pub(crate) async fn measure(runs: u32, sizes: &[u32]) -> anyhow::Result<()> {
    documents::measure(runs).await?;
    let mut medians: BTreeMap<String, Vec<(u32, f64)>> = BTreeMap::new();
    for size in sizes {
        for (what, seconds) in search::measure(*size).await? {
            medians.entry(what).or_default().push((*size, seconds));
        }
    }
    if sizes.len() > 1 {
        table::part("Search: growth with the number of chunks");
        for (what, points) in &medians {
            table::growth(what, points);
        }
    }
    processes::measure().await
}

/// Debian's manuals, which are born digital.
struct Manuals {
    _folder: TempDir,
    files: Vec<PathBuf>,
}

impl Manuals {
    fn unpack() -> anyhow::Result<Self> {
        const MANUALS: [&str; 4] = [
            "debian-reference/debian-reference.en.pdf",
            "developers-reference/developers-reference.pdf",
            "doc/debian-policy/policy.pdf.gz",
            "doc/debian-policy/fhs/fhs-3.0.pdf.gz",
        ];
        let (folder, mut files) = (tempfile::tempdir()?, Vec::new());
        for (number, name) in MANUALS.iter().enumerate() {
            let from = slipway_peers::documents().join("debian/usr/share").join(name);
            let file = folder.path().join(format!("manual-{number}.pdf"));
            let bytes = if from.extension().is_some_and(|end| end == "gz") {
                let output = Command::new("gzip").arg("-dc").arg(&from).output()?;
                if !output.status.success() {
                    bail!("gzip does not unpack {}", from.display());
                }
                output.stdout
            } else {
                fs::read(&from).with_context(|| from.display().to_string())?
            };
            fs::write(&file, bytes)?;
            files.push(file);
        }
        Ok(Self { _folder: folder, files })
    }
}

/// Where the built-in model lies.
fn variables(name: &str) -> Option<String> {
    (name == "RUNTIME_EMBEDDING_DIR").then(|| slipway_peers::minilm().display().to_string())
}

/// The time that this process and its ended children have computed, in steps of 10 ms.
fn processor_time() -> anyhow::Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let times = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(4);
    Ok(Duration::from_millis(times.map(|ticks| ticks.parse::<u64>().unwrap_or_default() * 10).sum()))
}
