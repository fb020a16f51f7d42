//! Log lines on stderr, as JSON for machines or as text for people. Nothing that a caller or a model
//! said is ever logged, no text of a document, and no variable that may hold a secret.

use std::io;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Human,
}

pub fn start(level: LevelFilter, format: Format) {
    // Other crates tell at `info` what servers have sent; of them only warnings are let through.
    let targets = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("slipway", level);
    let lines = fmt::layer().with_writer(io::stderr).with_target(false);
    let lines: Box<dyn Layer<_> + Send + Sync> = match format {
        Format::Json => Box::new(lines.json().flatten_event(true)),
        Format::Human => Box::new(lines.with_ansi(false)),
    };
    tracing_subscriber::registry().with(lines.with_filter(targets)).init();
}
