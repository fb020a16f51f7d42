//! The tools of an agent: HTTP endpoints, programs, MCP servers, and builtins of the runtime.
//!
//! The runtime opens one [`Toolbox`] from `RUNTIME_TOOLS`, shows its [`Spec`]s to the model, and passes the model's calls to
//! it. A call never returns an error to the runtime: a failure is a [`ToolOutcome`] with a message for the model.

mod arguments;
mod builtin;
mod cli;
mod clip;
mod config_error;
mod http;
mod mcp;
mod outcome;
mod settings;
mod toolbox;

pub use config_error::ConfigError;
pub use mcp::{McpFault, ToolListChanges, count_tools};
pub use outcome::{Builtin, Builtins, Context, Spec, ToolOutcome, TraceContext};
pub use settings::{OUTPUT_LIMIT, ToolSettings};
pub use slipway_egress::Allowed;
pub use toolbox::{Program, Toolbox};
