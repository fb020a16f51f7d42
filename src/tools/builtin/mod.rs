//! What comes with the runtime: a Tool of type builtin is found by its name. The runtime brings further ones of its own.

mod calculator;
mod datetime;
mod fetch;
mod html;
mod search;

use std::time::Duration;

use serde_json::Value;
use slipway_api::contract::ToolConfig;
use slipway_api::contract::tools::builtin_names;

use crate::outcome::{Builtin, Context, Outcome, Spec};
use crate::refusal::Refusal;
use crate::settings::Settings;
use slipway_egress::Egress;

/// For builtins that the runtime brings and no Tool configures.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) enum BuiltinTool {
    Calculator,
    Datetime,
    Fetch(fetch::Fetch),
    Search(search::Search),
    Foreign(Box<dyn Builtin>),
}

impl BuiltinTool {
    pub(crate) fn open(config: &ToolConfig, egress: &Egress, settings: &Settings, foreign: &[String]) -> Result<Self, Refusal> {
        match config.name.as_str() {
            "calculator" => Ok(Self::Calculator),
            "datetime" => Ok(Self::Datetime),
            "http_fetch" => Ok(Self::Fetch(fetch::Fetch::new(egress, settings.output_limit))),
            "search" => search::Search::open(settings).map(Self::Search).map_err(|fault| Refusal::new(&config.name, "name", fault)),
            other => {
                let known: Vec<&str> =
                    builtin_names().into_iter().chain(foreign.iter().map(String::as_str)).filter(|known| *known != other).collect();
                Err(Refusal::new(other, "name", format!("no builtin has this name; there are: {}", known.join(", "))))
            }
        }
    }

    pub(crate) fn spec(&self) -> Spec {
        match self {
            Self::Calculator => calculator::spec(),
            Self::Datetime => datetime::spec(),
            Self::Fetch(_) => fetch::spec(),
            Self::Search(_) => search::spec(),
            Self::Foreign(builtin) => builtin.spec(),
        }
    }

    /// `arguments` are an object that has passed the schema.
    pub(crate) async fn call(&self, arguments: Value, context: &Context) -> Outcome {
        match self {
            Self::Calculator => calculator::call(&arguments),
            Self::Datetime => datetime::call(&arguments, jiff::Timestamp::now()),
            Self::Fetch(fetch) => fetch.call(&arguments, context).await,
            Self::Search(search) => search.call(&arguments, context).await,
            Self::Foreign(builtin) => builtin.call(arguments).await,
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

    /// The runtime's own tests hold the rest of the list against the binary.
    #[test]
    fn what_the_contract_lists_is_what_is_opened() {
        let settings = Settings { search: Url::parse("http://search.example/search").ok(), ..Settings::default() };
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
