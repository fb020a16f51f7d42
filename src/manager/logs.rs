//! Logs to standard output, as text or JSON; to standard error for commands that print a result.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::arguments::{Arguments, LogFormat};

pub(crate) fn start(arguments: &Arguments) {
    let filter = EnvFilter::try_new(&arguments.log).unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_writer(writer(arguments));
    match arguments.log_format {
        LogFormat::Json => logs.json().flatten_event(true).init(),
        LogFormat::Human => logs.init(),
    }
}

fn writer(arguments: &Arguments) -> BoxMakeWriter {
    if arguments.command.is_some() { BoxMakeWriter::new(io::stderr) } else { BoxMakeWriter::new(io::stdout) }
}
