//! Log lines on stderr, as JSON for machines or as text for people. Nothing that a caller or a model
//! said is ever logged, and no variable that may hold a secret.

use std::io;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Human,
}

pub(crate) fn start(level: LevelFilter, format: Format) {
    let lines = fmt().with_max_level(level).with_writer(io::stderr);
    match format {
        Format::Json => lines.json().flatten_event(true).with_target(false).init(),
        Format::Human => lines.with_ansi(false).with_target(false).init(),
    }
}
