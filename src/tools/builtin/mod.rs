//! Builtin tools: a Tool of type builtin is found by its name. The runtime adds further ones.

mod calculator;
mod datetime;
mod fetch;
mod html;
mod search;

use std::time::Duration;

use serde_json::Value;
use slipway_api::contract::ToolConfig;
use slipway_api::contract::tools::builtin_names;

use crate::config_error::ConfigError;
use crate::outcome::{Builtin, Context, Spec, ToolOutcome};
use crate::settings::ToolSettings;
use slipway_egress::Egress;

/// The timeout of builtins that no Tool configures.
pub(crate) const BUILTIN_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) enum BuiltinTool {
    Calculator,
    Datetime,
    Fetch(fetch::Fetch),
    Search(search::Search),
    External(Box<dyn Builtin>),
}

impl BuiltinTool {
    pub(crate) fn open(config: &ToolConfig, egress: &Egress, settings: &ToolSettings, external: &[String]) -> Result<Self, ConfigError> {
        match config.name.as_str() {
            "calculator" => Ok(Self::Calculator),
            "datetime" => Ok(Self::Datetime),
            "http_fetch" => Ok(Self::Fetch(fetch::Fetch::new(egress, settings.output_limit))),
            "search" => search::Search::open(settings).map(Self::Search).map_err(|fault| ConfigError::new(&config.name, "name", fault)),
            other => {
                let known: Vec<&str> =
                    builtin_names().into_iter().chain(external.iter().map(String::as_str)).filter(|known| *known != other).collect();
                Err(ConfigError::new(other, "name", format!("no builtin has this name; there are: {}", known.join(", "))))
            }
        }
    }

    pub(crate) fn spec(&self) -> Spec {
        match self {
            Self::Calculator => calculator::spec(),
            Self::Datetime => datetime::spec(),
            Self::Fetch(_) => fetch::spec(),
            Self::Search(_) => search::spec(),
            Self::External(builtin) => builtin.spec(),
        }
    }

    pub(crate) fn only_reads(&self) -> bool {
        match self {
            Self::Calculator | Self::Datetime | Self::Fetch(_) | Self::Search(_) => true,
            Self::External(builtin) => builtin.only_reads(),
        }
    }

    /// `arguments` are a validated object.
    pub(crate) async fn call(&self, arguments: Value, context: &Context) -> ToolOutcome {
        match self {
            Self::Calculator => calculator::call(&arguments),
            Self::Datetime => datetime::call(&arguments, jiff::Timestamp::now()),
            Self::Fetch(fetch) => fetch.call(&arguments, context).await,
            Self::Search(search) => search.call(&arguments, context).await,
            Self::External(builtin) => builtin.call(arguments).await,
        }
    }
}

fn text<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slipway_api::contract::tools::{BUILTINS, MEMORY, With};
    use url::Url;

    use super::*;

    /// The runtime's own tests compare the rest of the list with the binary.
    #[test]
    fn the_builtins_are_those_of_the_contract() {
        let settings = ToolSettings { search: Url::parse("http://search.example/search").ok(), ..ToolSettings::default() };
        let open = |name: &str| {
            let config = json!({"name": name, "type": "builtin", "category": "general", "timeout": 1});
            BuiltinTool::open(&serde_json::from_value(config).unwrap(), &settings.egress(), &settings, &[])
        };
        for (name, with) in BUILTINS {
            let here = name != MEMORY && matches!(with, With::Image | With::Search);
            assert_eq!(open(name).map(|builtin| builtin.spec().name).ok(), here.then(|| name.to_owned()), "{name}");
        }
        let refusal = open("clock").err().unwrap();
        assert_eq!(refusal.message, "no builtin has this name; there are: calculator, datetime, http_fetch, memory, search");
    }
}
