//! What an agent may call: HTTP endpoints, programs, MCP servers, and what comes with the runtime.
//!
//! The runtime opens one [`Toolbox`] from `RUNTIME_TOOLS`, shows the model its [`Spec`]s and hands it the model's calls.
//! A call never fails towards the runtime: whatever goes wrong is an [`Outcome`] in words that the model can act upon.

mod arguments;
mod builtin;
mod cli;
mod clip;
mod http;
mod mcp;
mod outcome;
mod refusal;
mod settings;
mod toolbox;

pub use mcp::Changes;
pub use outcome::{Builtin, Builtins, Context, Outcome, Spec, Trace};
pub use refusal::Refusal;
pub use settings::{OUTPUT_LIMIT, Settings};
pub use slipway_egress::Allowed;
pub use toolbox::{Program, Toolbox};
