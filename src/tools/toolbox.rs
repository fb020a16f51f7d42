//! All tools of one agent, by the names under which the model calls them.

use std::collections::BTreeMap;

use serde_json::Value;
use slipway_api::contract::ToolConfig;

use crate::outcome::{Builtin, Builtins, Context, Outcome, Spec};
use crate::refusal::Refusal;
use crate::settings::Settings;

pub struct Toolbox {
    builtin: BTreeMap<String, Box<dyn Builtin>>,
}

impl Toolbox {
    /// Checks every configuration; nothing is connected yet. `variables` is where `headersFrom` finds its secrets.
    pub fn open(
        configs: Vec<ToolConfig>,
        builtin: Builtins,
        settings: Settings,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<Refusal>> {
        let _ = (settings, variables);
        let refusals: Vec<Refusal> = configs
            .iter()
            .map(|config| Refusal::new(&config.name, "type", "is not supported yet; leave the tool out of the agent"))
            .collect();
        if refusals.is_empty() {
            Ok(Self { builtin: builtin.into_iter().map(|tool| (tool.spec().name, tool)).collect() })
        } else {
            Err(refusals)
        }
    }

    /// What the model is shown. Servers that are down show nothing and are asked again later.
    pub async fn specs(&self) -> Vec<Spec> {
        self.builtin.values().map(|tool| tool.spec()).collect()
    }

    /// For every mcp tool whose server has been reached, a digest of the tools that it offered then (threat 14).
    pub fn digests(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    pub async fn call(&self, call: &str, arguments: Value, context: &Context) -> Outcome {
        let Some(tool) = self.builtin.get(call) else {
            let known = self.builtin.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Outcome::error(format!("there is no tool '{call}'; there are: {known}"));
        };
        tokio::select! {
            outcome = tool.call(arguments) => outcome,
            () = tokio::time::sleep_until(context.deadline) => Outcome::error(format!("{call} took too long and was stopped")),
            () = context.cancellation() => Outcome::error(format!("{call} was cancelled")),
        }
    }
}
