//! `slipway-worker ingest` and the subprocess `extract`. The Job names its ingestion in `SLIPWAY_INGESTION`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::bail;

use crate::settings::Settings;

/// Reads one source into one knowledge base, and ends with 0 when all of it has been read.
#[expect(clippy::unused_async, reason = "roles are async")]
pub(crate) async fn main(_settings: Settings) -> anyhow::Result<()> {
    bail!("this build ingests nothing yet")
}

/// Reads the document that the arguments name, within limits that this process sets itself.
pub(crate) fn extract(arguments: &[OsString]) -> ExitCode {
    slipway_knowledge::subprocess::child_main(arguments.iter().cloned())
}
