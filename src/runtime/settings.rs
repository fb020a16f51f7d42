//! The environment, read once and checked as a whole. What this runtime cannot do is refused at
//! start, every fault in one message, so that nobody talks to an agent that is less than it was
//! asked to be. Values that may hold secrets are never quoted.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use serde_json::Value;
use tracing::{info, warn};
use tracing_subscriber::filter::LevelFilter;

use crate::log::Format;

/// Variables of the contract whose effect would be missed if they were passed over.
const NOT_YET: [&str; 5] = ["RUNTIME_SKILLS", "RUNTIME_GUARDS", "RUNTIME_POLICIES", "RUNTIME_EVAL_SAMPLE_RATE", "RUNTIME_JUDGE_MODEL"];

/// A message quotes no more of a value than this.
const LONGEST_QUOTE: usize = 80;

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) port: u16,
    pub(crate) log_level: LevelFilter,
    pub(crate) log_format: Format,
    /// Who this is, for the log: variable names without their prefix, in lower case.
    identity: BTreeMap<&'static str, String>,
    tools: usize,
    knowledge_bases: usize,
    suggestions: usize,
}

/// Everything that is wrong, one line each.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal(Vec<String>);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "slipway-runtime cannot run this agent:")?;
        self.0.iter().try_for_each(|fault| writeln!(f, "- {fault}"))
    }
}

impl Settings {
    pub(crate) fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, Refusal> {
        let mut form = Form { lookup, faults: Vec::new() };
        form.choice("RUNTIME_CHANNEL", &["rest"]);
        form.choice("RUNTIME_STRATEGY", &["simple"]);
        // The id means nothing under a type that is refused already.
        if form.choice("RUNTIME_MODEL_TYPE", &["stub"]) == "stub" {
            form.choice("RUNTIME_MODEL_ID", &["stub-echo"]);
        }
        form.choice("RUNTIME_BACKGROUND_MODEL", &["stub:stub-echo"]);
        form.choice("RUNTIME_STORAGE", &["memory"]);
        form.choice("RUNTIME_SUGGESTIONS_PROVIDER", &["static"]);
        form.choice("RUNTIME_TRACK", &["stable", "canary", "candidate"]);
        for name in NOT_YET {
            if form.value(name).is_some() {
                form.faults.push(format!("{name} is set: not supported yet"));
            }
        }
        let log_format = match form.choice("RUNTIME_LOG_FORMAT", &["json", "human"]).as_str() {
            "human" => Format::Human,
            _ => Format::Json,
        };
        let log_level = form.choice("RUNTIME_LOG_LEVEL", &["info", "error", "warn", "debug", "trace"]);
        let settings = Self {
            port: form.port("RUNTIME_PORT", 8000),
            log_level: log_level.parse().unwrap_or(LevelFilter::INFO),
            log_format,
            identity: form.identity(),
            tools: form.array("RUNTIME_TOOLS", "objects", Value::is_object),
            knowledge_bases: form.array("RUNTIME_KNOWLEDGE_BASES", "objects", Value::is_object),
            suggestions: form.array("RUNTIME_SUGGESTIONS", "strings", Value::is_string),
        };
        if form.faults.is_empty() { Ok(settings) } else { Err(Refusal(form.faults)) }
    }

    /// Says in the log who this is and what it was given but does not use.
    pub(crate) fn announce(&self) {
        info!(version = env!("CARGO_PKG_VERSION"), model = "stub:stub-echo", identity = ?self.identity, "starting");
        for (what, count) in [("tools", self.tools), ("knowledge bases", self.knowledge_bases), ("suggestions", self.suggestions)] {
            if count > 0 {
                warn!(count, "{what} are configured, but the stub model does not use them");
            }
        }
    }
}

struct Form<L> {
    lookup: L,
    faults: Vec<String>,
}

impl<L: Fn(&str) -> Option<OsString>> Form<L> {
    /// The value, if it is there and not empty.
    fn value(&mut self, name: &str) -> Option<String> {
        match (self.lookup)(name)?.into_string() {
            Ok(value) if value.is_empty() => None,
            Ok(value) => Some(value),
            Err(_) => {
                self.faults.push(format!("{name} is not valid UTF-8"));
                None
            }
        }
    }

    /// One of `supported`; the first is the default.
    fn choice(&mut self, name: &str, supported: &[&str]) -> String {
        let value = self.value(name).unwrap_or_else(|| supported[0].to_owned());
        if !supported.contains(&value.as_str()) {
            self.faults.push(format!("{name} is {}; supported: {}", quoted(&value), supported.join(", ")));
        }
        value
    }

    fn port(&mut self, name: &str, default: u16) -> u16 {
        let Some(value) = self.value(name) else { return default };
        value.parse().unwrap_or_else(|_| {
            self.faults.push(format!("{name} is {}; expected a port number, 0 to 65535", quoted(&value)));
            default
        })
    }

    /// How many elements a JSON array has.
    fn array(&mut self, name: &str, kind: &str, fits: impl Fn(&Value) -> bool) -> usize {
        let Some(value) = self.value(name) else { return 0 };
        match serde_json::from_str::<Vec<Value>>(&value) {
            Ok(elements) if elements.iter().all(fits) => return elements.len(),
            Ok(_) => self.faults.push(format!("{name} must be a JSON array of {kind}")),
            // The error's own words may quote the value.
            Err(error) => self.faults.push(format!(
                "{name} must be a JSON array of {kind}; it goes wrong at line {} column {}",
                error.line(),
                error.column()
            )),
        }
        0
    }

    fn identity(&mut self) -> BTreeMap<&'static str, String> {
        [
            ("agent_id", "RUNTIME_AGENT_ID"),
            ("agent_name", "RUNTIME_AGENT_NAME"),
            ("agent_version", "RUNTIME_AGENT_VERSION"),
            ("team", "RUNTIME_TEAM"),
            ("track", "RUNTIME_TRACK"),
        ]
        .into_iter()
        .filter_map(|(key, name)| Some((key, self.value(name)?)))
        .collect()
    }
}

fn quoted(value: &str) -> String {
    let start = &value[..value.floor_char_boundary(LONGEST_QUOTE)];
    let more = if start.len() < value.len() { "…" } else { "" };
    format!("{start:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)]) -> Result<Settings, Refusal> {
        Settings::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn nothing_is_required_and_empty_means_unset() {
        for variables in [&[][..], &[("RUNTIME_MODEL_TYPE", ""), ("RUNTIME_PORT", ""), ("RUNTIME_TOOLS", "")]] {
            let settings = check(variables).unwrap();
            assert_eq!((settings.port, settings.log_level, settings.log_format), (8000, LevelFilter::INFO, Format::Json));
        }
    }

    #[test]
    fn what_is_given_is_read() {
        let settings = check(&[
            ("RUNTIME_PORT", "9000"),
            ("RUNTIME_LOG_LEVEL", "debug"),
            ("RUNTIME_LOG_FORMAT", "human"),
            ("RUNTIME_TOOLS", r#"[{"name": "a"}, {"name": "b"}]"#),
            ("RUNTIME_KNOWLEDGE_BASES", "[{}]"),
            ("RUNTIME_SUGGESTIONS", r#"["Hello"]"#),
            ("RUNTIME_TRACK", "canary"),
        ])
        .unwrap();
        assert_eq!((settings.port, settings.log_level, settings.log_format), (9000, LevelFilter::DEBUG, Format::Human));
        assert_eq!((settings.tools, settings.knowledge_bases, settings.suggestions), (2, 1, 1));
        assert_eq!(settings.identity.into_iter().collect::<Vec<_>>(), [("track", "canary".to_owned())]);
    }

    #[test]
    fn a_refusal_names_the_variable_the_value_and_what_would_do() {
        for (name, value, fault) in [
            ("RUNTIME_CHANNEL", "mail", r#"RUNTIME_CHANNEL is "mail"; supported: rest"#),
            ("RUNTIME_STRATEGY", "agent-react", r#"RUNTIME_STRATEGY is "agent-react"; supported: simple"#),
            ("RUNTIME_MODEL_ID", "stub-x", r#"RUNTIME_MODEL_ID is "stub-x"; supported: stub-echo"#),
            ("RUNTIME_STORAGE", "postgresql", r#"RUNTIME_STORAGE is "postgresql"; supported: memory"#),
            ("RUNTIME_PORT", "tcp://10.0.0.1:80", r#"RUNTIME_PORT is "tcp://10.0.0.1:80"; expected a port number, 0 to 65535"#),
            ("RUNTIME_GUARDS", "[]", "RUNTIME_GUARDS is set: not supported yet"),
            ("RUNTIME_TOOLS", "[1]", "RUNTIME_TOOLS must be a JSON array of objects"),
            ("RUNTIME_TOOLS", "{}", "RUNTIME_TOOLS must be a JSON array of objects; it goes wrong at line 1 column 0"),
            ("RUNTIME_SUGGESTIONS", "[\n\"a\",", "RUNTIME_SUGGESTIONS must be a JSON array of strings; it goes wrong at line 2 column 4"),
        ] {
            assert_eq!(check(&[(name, value)]).unwrap_err(), Refusal(vec![fault.into()]));
        }
    }

    #[test]
    fn all_faults_are_told_at_once_and_secrets_are_not() {
        let refusal = check(&[
            ("RUNTIME_MODEL_TYPE", "hosted"),
            ("RUNTIME_MODEL_ID", "large"),
            ("RUNTIME_KNOWLEDGE_BASES", r#""postgresql://u:hunter2@db/kb""#),
            ("RUNTIME_STRATEGY", &"x".repeat(1000)),
        ])
        .unwrap_err();
        assert_eq!(refusal.0.len(), 3, "{refusal}");
        assert!(!refusal.to_string().contains("hunter2"), "{refusal}");
        assert!(refusal.to_string().len() < 500, "{refusal}");
    }
}
