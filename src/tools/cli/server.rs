//! A cli tool whose program is an MCP server on standard input and output, started with fixed arguments.

use std::path::PathBuf;

use slipway_api::contract::{ToolConfig, command};

use super::executable;
use crate::config_error::ConfigError;

/// The program and its arguments: those of the single allowed command, or none.
pub(crate) fn server(config: &ToolConfig) -> Result<(PathBuf, Vec<String>), Vec<ConfigError>> {
    let mut errors = Vec::new();
    let mut refuse = |field, message: String| errors.push(ConfigError::new(&config.name, field, message));
    let binary = PathBuf::from(config.binary.as_deref().unwrap_or_default());
    if let Err(fault) = executable(&binary) {
        refuse("binary", fault);
    }
    let program = binary.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let arguments = command::fixed(config.allowed_commands.as_deref().unwrap_or_default(), program, &config.parameters);
    let arguments = arguments.unwrap_or_else(|wrong| {
        for (field, message) in wrong {
            refuse(field, message);
        }
        Vec::new()
    });
    if errors.is_empty() { Ok((binary, arguments)) } else { Err(errors) }
}
