//! A cli tool whose program is an MCP server: started with fixed arguments, and spoken to over its input and output.

use std::path::PathBuf;

use slipway_api::contract::{ToolConfig, command};

use super::executable;
use crate::refusal::Refusal;

/// The program, and what it is started with: the one allowed command, or nothing.
pub(crate) fn server(config: &ToolConfig) -> Result<(PathBuf, Vec<String>), Vec<Refusal>> {
    let mut refusals = Vec::new();
    let mut refuse = |field, message: String| refusals.push(Refusal::new(&config.name, field, message));
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
    if refusals.is_empty() { Ok((binary, arguments)) } else { Err(refusals) }
}
