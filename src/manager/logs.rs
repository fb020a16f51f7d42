//! Logs to standard output, for people or for machines.

use tracing_subscriber::EnvFilter;

use crate::arguments::{Arguments, LogFormat};

pub(crate) fn start(arguments: &Arguments) {
    let filter = EnvFilter::try_new(&arguments.log).unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    match arguments.log_format {
        LogFormat::Json => logs.json().flatten_event(true).init(),
        LogFormat::Human => logs.init(),
    }
}
