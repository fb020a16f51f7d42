//! A tool that runs a program (threat 13): one of the allowed commands, with an argument list and without a shell.

pub(crate) mod process;
mod server;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use serde_json::{Map, Value, json};
use slipway_api::contract::ToolConfig;
use slipway_api::contract::command::{self, ARGUMENTS, COMMAND, Command};
use slipway_api::contract::tools::SHELLS;
use tokio::time::Instant;

use crate::arguments;
use crate::clip::clip;
use crate::config_error::ConfigError;
use crate::outcome::{Context, ToolOutcome};
use process::{Finished, StopReason};
pub(crate) use server::server;

pub(crate) struct CliTool {
    binary: PathBuf,
    commands: Vec<Command>,
    limit: usize,
    pub(crate) schema: Value,
}

impl CliTool {
    pub(crate) fn open(config: &ToolConfig, limit: usize) -> Result<Self, Vec<ConfigError>> {
        let refuse = |field, message: String| ConfigError::new(&config.name, field, message);
        let mut errors = Vec::new();
        let binary = PathBuf::from(config.binary.as_deref().unwrap_or_default());
        if let Err(fault) = executable(&binary) {
            errors.push(refuse("binary", fault));
        }
        let program = binary.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let entries = config.allowed_commands.as_deref().unwrap_or_default();
        let commands = command::commands(entries, program, &config.parameters).unwrap_or_else(|wrong| {
            errors.extend(wrong.into_iter().map(|(field, message)| refuse(field, message)));
            Vec::new()
        });
        if errors.is_empty() { Ok(Self { schema: schema(config, &commands), binary, commands, limit }) } else { Err(errors) }
    }

    /// `arguments` are validated.
    pub(crate) async fn call(&self, arguments: &Map<String, Value>, until: Instant, context: &Context) -> ToolOutcome {
        let chosen = match arguments.get(COMMAND) {
            Some(name) => self.commands.iter().find(|command| command.name == *name),
            None => self.commands.first().filter(|_| self.commands.len() == 1),
        };
        let Some(chosen) = chosen else { return ToolOutcome::error("command: is not among the allowed commands") };
        let placeholders = chosen.placeholders();
        let stray = arguments.keys().find(|name| !matches!(name.as_str(), COMMAND | ARGUMENTS) && !placeholders.contains(name.as_str()));
        if let Some(stray) = stray {
            return ToolOutcome::error(format!("{stray}: is not part of the command '{}'", chosen.name));
        }
        let mut further = Vec::new();
        for argument in arguments.get(ARGUMENTS).and_then(Value::as_array).into_iter().flatten() {
            let Some(argument) = argument.as_str() else { return ToolOutcome::error("arguments: must be an array of strings") };
            further.push(argument.to_owned());
        }
        let filled = match chosen.fill(arguments, &further) {
            Ok(filled) => filled,
            Err(fault) => return ToolOutcome::error(fault),
        };
        let started = Instant::now();
        match process::run(&self.binary, &filled, self.limit, until, context).await {
            Ok(finished) => self.outcome(&finished, started),
            Err(error) => ToolOutcome::error(format!("{} could not be run: {error}", self.binary.display())),
        }
    }

    fn outcome(&self, finished: &Finished, started: Instant) -> ToolOutcome {
        let (stdout, stderr) = (String::from_utf8_lossy(&finished.stdout), String::from_utf8_lossy(&finished.stderr));
        let verdict = match (finished.stopped, finished.status) {
            (Some(StopReason::Time), _) => {
                format!("stopped after {:.1} s, its time limit; output until then:", started.elapsed().as_secs_f64())
            }
            (Some(StopReason::Output), _) => format!("stopped because it wrote more than {} bytes; they begin with:", self.limit),
            (Some(StopReason::Cancelled), _) => "cancelled; output until then:".to_owned(),
            (None, Some(status)) => verdict(status),
            (None, None) => "ended".to_owned(),
        };
        let well = finished.stopped.is_none() && finished.status.is_some_and(|status| status.success());
        let output = match (stdout.is_empty(), stderr.is_empty()) {
            (true, true) => "(no output)".to_owned(),
            (false, true) => stdout.into_owned(),
            (true, false) => format!("[stderr]\n{stderr}"),
            (false, false) => format!("{stdout}\n[stderr]\n{stderr}"),
        };
        let content = match well {
            true if finished.stdout.is_empty() && finished.stderr.is_empty() => format!("{verdict}, without output"),
            true => output,
            false => format!("{verdict}\n{output}"),
        };
        let outcome = clip(content, !well, self.limit);
        ToolOutcome { truncated: outcome.truncated || finished.stopped == Some(StopReason::Output), ..outcome }
    }
}

fn verdict(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Checks that a tool may run this program.
pub(crate) fn executable(binary: &Path) -> Result<(), String> {
    let shown = binary.display();
    if !binary.is_absolute() || binary.components().any(|part| part.as_os_str() == "..") {
        return Err(format!("'{shown}' must be an absolute path without .., as in /usr/bin/git"));
    }
    let resolved =
        binary.canonicalize().map_err(|error| format!("'{shown}' is not there: {error}; it has to be part of the agent's image"))?;
    for name in [binary, &resolved] {
        if name.file_name().and_then(|name| name.to_str()).is_some_and(|name| SHELLS.contains(&name)) {
            return Err(format!(
                "'{shown}' runs whatever it is told, which no list of commands can limit; name the program itself, or a script"
            ));
        }
    }
    let facts = fs::metadata(&resolved).map_err(|error| format!("'{shown}' cannot be looked at: {error}"))?;
    if !facts.is_file() || facts.permissions().mode() & 0o111 == 0 {
        return Err(format!("'{shown}' is not an executable file"));
    }
    Ok(())
}

fn schema(config: &ToolConfig, commands: &[Command]) -> Value {
    let everywhere = |name: &str| commands.iter().all(|command| command.placeholders().contains(name));
    let mut schema = arguments::schema(&config.parameters, |parameter| everywhere(&parameter.name));
    let names: Vec<&str> = commands.iter().map(|command| command.name.as_str()).collect();
    schema["properties"][COMMAND] = json!({
        "type": "string",
        "enum": names,
        "description": "What to run. {name} stands for the argument of that name; * for further arguments that do not begin with -; ... for any further arguments.",
    });
    if commands.len() > 1
        && let Some(required) = schema["required"].as_array_mut()
    {
        required.push(COMMAND.into());
    }
    if commands.iter().any(Command::takes_further) {
        schema["properties"][ARGUMENTS] = json!({
            "type": "array",
            "items": { "type": "string" },
            "description": "The further arguments of a command that ends in * or ..., one string each, without quoting.",
        });
    }
    schema
}
