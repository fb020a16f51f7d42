//! A cli tool whose program is an MCP server: started with fixed arguments, and spoken to over its input and output.

use std::path::PathBuf;

use slipway_api::contract::ToolConfig;

use super::command::Command;
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
    if !config.parameters.is_empty() {
        refuse("parameters", "a program that speaks mcp names the parameters of its tools itself".to_owned());
    }
    let program = binary.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut arguments = Vec::new();
    match config.allowed_commands.as_deref().unwrap_or_default() {
        [] => {}
        [entry] => match Command::parse(entry, program).map(Command::fixed) {
            Ok(Some(fixed)) => arguments = fixed,
            Ok(None) => {
                refuse(
                    "allowedCommands",
                    format!("'{entry}': a program that speaks mcp is started with fixed arguments, without {{…}}, * and ..."),
                );
            }
            Err(fault) => refuse("allowedCommands", fault),
        },
        more => refuse("allowedCommands", format!("has {} entries; a program that speaks mcp is started once, with one", more.len())),
    }
    if refusals.is_empty() { Ok((binary, arguments)) } else { Err(refusals) }
}
