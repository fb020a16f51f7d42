//! The environment, read once and checked as a whole. What this runtime cannot do is refused at
//! start, every fault in one message, so that nobody talks to an agent that is less than it was
//! asked to be. Values that may hold secrets are never quoted.

mod form;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use slipway_api::agent::RiskProfile;
use slipway_api::contract::{KnowledgeBaseConfig, ToolConfig};
use slipway_http::log::Format;
use slipway_models::Provider;
use tracing::{info, warn};
use tracing_subscriber::filter::LevelFilter;

use crate::telemetry;
use form::{Form, quoted};

const STUB: &str = "stub-echo";

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) port: u16,
    pub(crate) control: Option<Control>,
    pub(crate) access: AccessSettings,
    pub(crate) platform_url: Option<Url>,
    pub(crate) log_level: LevelFilter,
    pub(crate) log_format: Format,
    pub(crate) identity: Identity,
    pub(crate) strategy: Strategy,
    pub(crate) model: ModelId,
    /// For work behind the scenes; the chat model where none is named.
    pub(crate) background_model: Option<ModelId>,
    pub(crate) embedding_model: Option<String>,
    pub(crate) system_prompt: Option<String>,
    pub(crate) storage: Storage,
    pub(crate) tools: Vec<ToolConfig>,
    pub(crate) skills: Vec<SkillConfig>,
    pub(crate) suggestions: Suggestions,
    pub(crate) guards: String,
    pub(crate) policies: String,
    pub(crate) policies_file: Option<PathBuf>,
    pub(crate) budget: Budget,
    /// None where no answers are sampled.
    pub(crate) sampling: Option<Sampling>,
    /// For what is under way at the end.
    pub(crate) grace: Duration,
    pub(crate) knowledge: KnowledgeBases,
    /// Where this is no agent, and evaluates one that has an image of its own.
    pub(crate) evaluator: Option<Evaluator>,
}

/// What an evaluator knows of the agent beforehand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Evaluator {
    /// By which its answers are priced.
    pub(crate) model: Option<ModelId>,
}

/// Who this is. An agent that was not told has a name of its own, so that it can run anywhere.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) agent_id: String,
    pub(crate) agent_name: String,
    pub(crate) version: Option<String>,
    pub(crate) team: String,
    pub(crate) track: Option<String>,
    /// Of all that this pod runs; a release has it in its status.
    pub(crate) run_hash: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// One answer, without tools.
    Simple,
    /// The model may call tools, round after round, until it answers.
    React,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelId {
    pub(crate) provider: Provider,
    pub(crate) id: String,
}

#[derive(Debug)]
pub(crate) enum Storage {
    Memory,
    Postgresql(Database),
}

pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) password: Option<String>,
    pub(crate) sslmode: Option<String>,
    pub(crate) migrate: bool,
    pub(crate) prepared_statements: bool,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("migrate", &self.migrate).finish_non_exhaustive()
    }
}

/// The knowledge bases, and how their database is reached beside their URLs.
#[derive(Default)]
pub(crate) struct KnowledgeBases {
    pub(crate) configs: Vec<KnowledgeBaseConfig>,
    /// For URLs without one.
    pub(crate) password: Option<String>,
    pub(crate) sslmode: Option<String>,
}

/// Without URLs, which hold passwords.
impl fmt::Debug for KnowledgeBases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.configs.iter().map(|config| &config.kb_id)).finish()
    }
}

/// One element of `RUNTIME_SKILLS`: the folder of a skill, and its name and description for the model.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SkillConfig {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) path: String,
    /// What the folder should hold; the platform compares.
    pub(crate) digest: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Suggestions {
    Static(Vec<String>),
    Model,
}

/// The port on which the platform gives orders, and the key by which it is known.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    pub(crate) port: u16,
    pub(crate) public_key: String,
}

/// Whom the agent's own port answers.
#[derive(Debug, Clone)]
pub(crate) struct AccessSettings {
    /// The key by which requests of the platform are known.
    pub(crate) public_key: Option<String>,
    /// Others are refused.
    pub(crate) platform_only: bool,
}

/// What one turn may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) rounds: u32,
    pub(crate) tokens: u64,
    pub(crate) time: Duration,
    pub(crate) output_tokens: Option<u32>,
}

/// Which answers are scored after they were given, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sampling {
    /// Percent.
    pub(crate) rate: u32,
    /// At most, by all pods of the agent together.
    pub(crate) per_day: u32,
    pub(crate) risk: RiskProfile,
    /// `provider:/model`; without one words are compared.
    pub(crate) judge: Option<String>,
}

/// Everything that is wrong, one line each. It is collected until all was looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) Vec<String>);

impl Refusal {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was read, or nothing and one more fault.
    pub(crate) fn keep<T>(&mut self, read: Result<T, String>) -> Option<T> {
        self.keep_all(read.map_err(|fault| vec![fault]))
    }

    pub(crate) fn keep_all<T>(&mut self, read: Result<T, Vec<String>>) -> Option<T> {
        read.map_err(|faults| self.0.extend(faults)).ok()
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "slipway-runtime cannot run this agent:")?;
        self.0.iter().try_for_each(|fault| writeln!(f, "- {fault}"))
    }
}

impl Identity {
    pub(crate) fn traced(&self) -> telemetry::Identity {
        let Self { agent_id, agent_name, version, team, track, run_hash } = self.clone();
        let [agent_version, track, run_hash] = [version, track, run_hash].map(Option::unwrap_or_default);
        telemetry::Identity { agent_id, agent_name, agent_version, team, track, run_hash }
    }
}

impl Settings {
    /// What is faulty has its default, so that the rest can be looked at, too.
    pub(crate) fn read(lookup: impl Fn(&str) -> Option<OsString>) -> (Self, Refusal) {
        let mut form = Form::new(lookup);
        form.choice("RUNTIME_CHANNEL", &["rest"]);
        let settings = Self {
            port: form.number("RUNTIME_PORT", 8000, 0..=u16::MAX),
            control: control(&mut form),
            access: access(&mut form),
            platform_url: platform_url(&mut form),
            log_format: if form.choice("RUNTIME_LOG_FORMAT", &["json", "human"]) == "human" { Format::Human } else { Format::Json },
            log_level: level(form.choice("RUNTIME_LOG_LEVEL", &["info", "error", "warn", "debug", "trace"])),
            identity: identity(&mut form),
            strategy: strategy(&mut form),
            model: model(&mut form),
            background_model: model_id(&mut form, "RUNTIME_BACKGROUND_MODEL"),
            embedding_model: form.value("RUNTIME_EMBEDDING_MODEL"),
            system_prompt: form.value("RUNTIME_SYSTEM_PROMPT"),
            storage: storage(&mut form),
            tools: form.array("RUNTIME_TOOLS", "tools"),
            skills: form.array("RUNTIME_SKILLS", "skills, each with name, description and path"),
            suggestions: suggestions(&mut form),
            guards: form.value("RUNTIME_GUARDS").unwrap_or_else(|| "[]".to_owned()),
            policies: form.value("RUNTIME_POLICIES").unwrap_or_else(|| "[]".to_owned()),
            policies_file: form.value("RUNTIME_POLICIES_FILE").map(PathBuf::from),
            budget: budget(&mut form),
            sampling: sampling(&mut form),
            grace: Duration::from_secs(form.number("RUNTIME_SHUTDOWN_SECONDS", 25, 1..=3600)),
            knowledge: knowledge(&mut form),
            evaluator: evaluator(&mut form),
        };
        (settings, Refusal(form.faults))
    }

    /// Says in the log who this is and what it was given but does not use.
    pub(crate) fn announce(&self) {
        let Identity { agent_id, agent_name, version, team, track, run_hash } = &self.identity;
        info!(
            runtime = env!("CARGO_PKG_VERSION"),
            model = %self.model,
            agent_id,
            agent_name,
            version = version.as_deref(),
            team,
            track = track.as_deref(),
            run_hash = run_hash.as_deref(),
            "starting"
        );
        if self.strategy == Strategy::Simple && !self.tools.is_empty() {
            warn!(count = self.tools.len(), "tools are configured, but only the strategy agent-react calls them");
        }
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider.as_str(), self.id)
    }
}

type Lookup<'a, L> = &'a mut Form<L>;

fn control<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>) -> Option<Control> {
    let port = form.number("RUNTIME_CONTROL_PORT", 8001, 0..=u16::MAX);
    form.value("RUNTIME_CONTROL_PUBLIC_KEY").map(|public_key| Control { port, public_key })
}

fn access<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>) -> AccessSettings {
    let platform_only = match form.value("RUNTIME_ACCESS").as_deref() {
        None => false,
        Some("platform") => true,
        Some(other) => {
            form.fault(format!("RUNTIME_ACCESS is {}; supported: platform", quoted(other)));
            true
        }
    };
    let public_key = form.value("RUNTIME_ACCESS_PUBLIC_KEY");
    if platform_only && public_key.is_none() {
        form.fault("RUNTIME_ACCESS_PUBLIC_KEY is missing; with RUNTIME_ACCESS=platform nobody could be let in");
    }
    AccessSettings { public_key, platform_only }
}

/// Whether a URL is nothing but scheme, host, port and path.
pub(crate) fn is_plain(url: &Url) -> bool {
    url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none()
}

fn platform_url<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>) -> Option<Url> {
    let url = Url::parse(&form.value("RUNTIME_PLATFORM_URL")?)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host() && is_plain(url));
    if url.is_none() {
        form.fault("RUNTIME_PLATFORM_URL must be http:// or https:// with a host, and without a password or query");
    }
    url
}

fn identity<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>) -> Identity {
    Identity {
        agent_id: form.value("RUNTIME_AGENT_ID").unwrap_or_else(|| "ag_local".to_owned()),
        agent_name: form.value("RUNTIME_AGENT_NAME").unwrap_or_else(|| "agent".to_owned()),
        version: form.value("RUNTIME_AGENT_VERSION"),
        team: form.value("RUNTIME_TEAM").unwrap_or_else(|| "default".to_owned()),
        track: form.value("RUNTIME_TRACK"),
        run_hash: form.value("RUNTIME_RUN_HASH"),
    }
}

fn strategy<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>) -> Strategy {
    match form.value("RUNTIME_STRATEGY").as_deref() {
        None | Some("simple") => Strategy::Simple,
        Some("agent-react") => Strategy::React,
        Some("custom") => {
            form.fault("RUNTIME_STRATEGY is \"custom\": the strategy is then the image's own; name that image in the agent's `image`");
            Strategy::Simple
        }
        Some(other) => {
            form.fault(format!("RUNTIME_STRATEGY is {}; supported: simple, agent-react", quoted(other)));
            Strategy::Simple
        }
    }
}

fn model<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>) -> ModelId {
    let faults = form.faults.len();
    let provider = form.choice("RUNTIME_MODEL_TYPE", &Provider::ALL.map(Provider::as_str));
    let provider = Provider::from_str(provider).unwrap_or(Provider::Stub);
    let id = form.value("RUNTIME_MODEL_ID").or_else(|| default_model(provider).map(str::to_owned));
    if id.is_none() {
        form.fault(format!("RUNTIME_MODEL_ID is missing; name a model of {}", provider.as_str()));
    }
    match id {
        Some(id) if form.faults.len() == faults => ModelId { provider, id },
        _ => ModelId { provider: Provider::Stub, id: STUB.to_owned() },
    }
}

/// Where nothing is billed, a default does no harm.
fn default_model(provider: Provider) -> Option<&'static str> {
    match provider {
        Provider::Stub => Some(STUB),
        Provider::Ollama => Some("llama3.2"),
        _ => None,
    }
}

fn evaluator<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>) -> Option<Evaluator> {
    let model = model_id(form, "RUNTIME_EVALUATED_MODEL");
    form.flag("RUNTIME_EVALUATOR").then_some(Evaluator { model })
}

fn model_id<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>, name: &str) -> Option<ModelId> {
    let uri = form.value(name)?;
    let parts = uri.split_once(':').filter(|(_, id)| !id.is_empty());
    let model = parts.and_then(|(provider, id)| Some(ModelId { provider: Provider::from_str(provider).ok()?, id: id.to_owned() }));
    if model.is_none() {
        form.fault(format!("{name} is {}; expected provider:model_id, as in openai:gpt-4o-mini", quoted(&uri)));
    }
    model
}

fn storage<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>) -> Storage {
    if form.choice("RUNTIME_STORAGE", &["memory", "postgresql"]) == "memory" {
        return Storage::Memory;
    }
    let migrate = form.flag("RUNTIME_DATABASE_MIGRATE");
    let prepared_statements = form.flag("RUNTIME_DATABASE_PREPARED_STATEMENTS");
    let Some(url) = form.value("RUNTIME_DATABASE_URL") else {
        form.fault("RUNTIME_DATABASE_URL is missing; RUNTIME_STORAGE=postgresql needs postgresql://user@host:5432/database");
        return Storage::Memory;
    };
    let (password, sslmode) = (form.value("RUNTIME_DATABASE_PASSWORD").or_else(|| form.value("PGPASSWORD")), form.value("PGSSLMODE"));
    Storage::Postgresql(Database { url, password, sslmode, migrate, prepared_statements })
}

fn knowledge<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>) -> KnowledgeBases {
    let configs = form.array("RUNTIME_KNOWLEDGE_BASES", "knowledge bases");
    if configs.is_empty() {
        return KnowledgeBases::default();
    }
    let (password, sslmode) = (form.value("RUNTIME_DATABASE_PASSWORD").or_else(|| form.value("PGPASSWORD")), form.value("PGSSLMODE"));
    KnowledgeBases { configs, password, sslmode }
}

fn suggestions<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>) -> Suggestions {
    let given = form.array("RUNTIME_SUGGESTIONS", "strings");
    match form.choice("RUNTIME_SUGGESTIONS_PROVIDER", &["static", "llm"]) {
        "llm" => Suggestions::Model,
        _ => Suggestions::Static(given),
    }
}

fn budget<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>) -> Budget {
    Budget {
        rounds: form.number("RUNTIME_MAX_ROUNDS", 10, 1..=100),
        tokens: form.number("RUNTIME_TURN_TOKENS", 200_000, 1..=100_000_000),
        time: Duration::from_secs(form.number("RUNTIME_TURN_SECONDS", 300, 1..=86_400)),
        output_tokens: Some(form.number("RUNTIME_MAX_OUTPUT_TOKENS", 0, 0..=1_000_000)).filter(|tokens| *tokens > 0),
    }
}

fn sampling<L: Fn(&str) -> Option<OsString>>(form: Lookup<L>) -> Option<Sampling> {
    let rate = form.number("RUNTIME_EVAL_SAMPLE_RATE", 0, 0..=100);
    let per_day = form.number("RUNTIME_EVAL_SAMPLES_PER_DAY", 500, 1..=100_000);
    let risk = match form.choice("RUNTIME_RISK_PROFILE", &["standard", "low", "high"]) {
        "low" => RiskProfile::Low,
        "high" => RiskProfile::High,
        _ => RiskProfile::Standard,
    };
    let judge = form.value("RUNTIME_JUDGE_MODEL");
    (rate > 0).then_some(Sampling { rate, per_day, risk, judge })
}

fn level(name: &str) -> LevelFilter {
    name.parse().unwrap_or(LevelFilter::INFO)
}

/// Settings from pairs instead of the environment, for tests.
#[cfg(test)]
pub(crate) fn read(variables: &[(&str, &str)]) -> Result<Settings, Refusal> {
    let (settings, refusal) = Settings::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()));
    if refusal.is_empty() { Ok(settings) } else { Err(refusal) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::prop;
    use proptest::{prop_assert, proptest};
    use slipway_api::ModelType;

    use super::*;

    #[test]
    fn nothing_is_required_and_empty_means_unset() {
        for variables in [&[][..], &[("RUNTIME_MODEL_TYPE", ""), ("RUNTIME_PORT", ""), ("RUNTIME_TOOLS", "")]] {
            let settings = read(variables).unwrap();
            assert_eq!((settings.port, settings.log_level, settings.log_format), (8000, LevelFilter::INFO, Format::Json));
            assert_eq!(settings.model, ModelId { provider: Provider::Stub, id: "stub-echo".into() });
            assert_eq!((settings.sampling, settings.evaluator), (None, None));
            assert!(settings.control.is_none() && matches!(settings.storage, Storage::Memory));
        }
    }

    #[test]
    fn providers_are_the_model_types_of_an_agent() {
        let types: Vec<_> = ModelType::ALL.iter().map(|type_| type_.as_str()).collect();
        assert_eq!(types, Provider::ALL.map(Provider::as_str));
    }

    #[test]
    fn what_is_given_is_read() {
        let settings = read(&[
            ("RUNTIME_PORT", "9000"),
            ("RUNTIME_LOG_LEVEL", "debug"),
            ("RUNTIME_LOG_FORMAT", "human"),
            ("RUNTIME_STRATEGY", "agent-react"),
            ("RUNTIME_MODEL_TYPE", "anthropic"),
            ("RUNTIME_MODEL_ID", "claude"),
            ("RUNTIME_BACKGROUND_MODEL", "ollama:llama3.2:1b"),
            ("RUNTIME_TOOLS", r#"[{"name": "a", "type": "builtin", "category": "general", "timeout": 30}]"#),
            ("RUNTIME_SKILLS", r#"[{"name": "s", "description": "d", "path": "/skills/s", "digest": "x"}]"#),
            ("RUNTIME_SUGGESTIONS", r#"["Hello"]"#),
            ("RUNTIME_STORAGE", "postgresql"),
            ("RUNTIME_DATABASE_URL", "postgresql://u@db/app"),
            ("RUNTIME_TRACK", "canary"),
            ("RUNTIME_MAX_ROUNDS", "3"),
            ("RUNTIME_EVAL_SAMPLE_RATE", "5"),
            ("RUNTIME_RISK_PROFILE", "high"),
            ("RUNTIME_EVALUATOR", "true"),
            ("RUNTIME_EVALUATED_MODEL", "openai:gpt-4o"),
        ])
        .unwrap();
        assert_eq!((settings.port, settings.log_level, settings.log_format), (9000, LevelFilter::DEBUG, Format::Human));
        assert_eq!((settings.tools.len(), settings.skills.len(), settings.budget.rounds), (1, 1, 3));
        assert_eq!(settings.suggestions, Suggestions::Static(vec!["Hello".into()]));
        assert_eq!(settings.background_model.unwrap().to_string(), "ollama:llama3.2:1b");
        assert_eq!((settings.strategy, settings.identity.track.as_deref()), (Strategy::React, Some("canary")));
        assert_eq!(settings.sampling, Some(Sampling { rate: 5, per_day: 500, risk: RiskProfile::High, judge: None }));
        assert!(matches!(settings.storage, Storage::Postgresql(Database { migrate: false, .. })));
        let evaluated = ModelId { provider: Provider::OpenAi, id: "gpt-4o".into() };
        assert_eq!(settings.evaluator, Some(Evaluator { model: Some(evaluated) }));
    }

    #[test]
    fn a_refusal_names_the_variable_the_value_and_what_would_do() {
        for (name, value, fault) in [
            ("RUNTIME_CHANNEL", "mail", r#"RUNTIME_CHANNEL is "mail"; supported: rest"#),
            ("RUNTIME_STRATEGY", "tree", r#"RUNTIME_STRATEGY is "tree"; supported: simple, agent-react"#),
            ("RUNTIME_MODEL_TYPE", "openai", "RUNTIME_MODEL_ID is missing; name a model of openai"),
            (
                "RUNTIME_BACKGROUND_MODEL",
                "small",
                r#"RUNTIME_BACKGROUND_MODEL is "small"; expected provider:model_id, as in openai:gpt-4o-mini"#,
            ),
            (
                "RUNTIME_STORAGE",
                "postgresql",
                "RUNTIME_DATABASE_URL is missing; RUNTIME_STORAGE=postgresql needs postgresql://user@host:5432/database",
            ),
            ("RUNTIME_STORAGE", "disk", r#"RUNTIME_STORAGE is "disk"; supported: memory, postgresql"#),
            ("RUNTIME_EVALUATOR", "yes", r#"RUNTIME_EVALUATOR is "yes"; supported: false, true"#),
            ("RUNTIME_PORT", "tcp://10.0.0.1:80", r#"RUNTIME_PORT is "tcp://10.0.0.1:80"; expected a number, 0 to 65535"#),
            ("RUNTIME_MAX_ROUNDS", "0", r#"RUNTIME_MAX_ROUNDS is "0"; expected a number, 1 to 100"#),
            ("RUNTIME_ACCESS", "platform", "RUNTIME_ACCESS_PUBLIC_KEY is missing; with RUNTIME_ACCESS=platform nobody could be let in"),
            ("RUNTIME_EVAL_SAMPLE_RATE", "101", r#"RUNTIME_EVAL_SAMPLE_RATE is "101"; expected a number, 0 to 100"#),
            ("RUNTIME_EVAL_SAMPLES_PER_DAY", "0", r#"RUNTIME_EVAL_SAMPLES_PER_DAY is "0"; expected a number, 1 to 100000"#),
            ("RUNTIME_RISK_PROFILE", "none", r#"RUNTIME_RISK_PROFILE is "none"; supported: standard, low, high"#),
            (
                "RUNTIME_PLATFORM_URL",
                "http://u:hunter2@rest",
                "RUNTIME_PLATFORM_URL must be http:// or https:// with a host, and without a password or query",
            ),
            ("RUNTIME_TOOLS", "{}", "RUNTIME_TOOLS must be a JSON array of tools; it goes wrong at line 1 column 0"),
            ("RUNTIME_SUGGESTIONS", "[\n\"a\",", "RUNTIME_SUGGESTIONS must be a JSON array of strings; it goes wrong at line 2 column 4"),
        ] {
            assert_eq!(read(&[(name, value)]).unwrap_err(), Refusal(vec![fault.into()]));
        }
    }

    #[test]
    fn all_faults_are_told_at_once_and_secrets_are_not() {
        let refusal = read(&[
            ("RUNTIME_MODEL_TYPE", "hosted"),
            ("RUNTIME_MODEL_ID", "large"),
            ("RUNTIME_KNOWLEDGE_BASES", r#""postgresql://u:hunter2@db/kb""#),
            ("RUNTIME_STRATEGY", &"x".repeat(1000)),
        ])
        .unwrap_err();
        assert_eq!(refusal.0.len(), 3, "{refusal}");
        assert!(!refusal.to_string().contains("hunter2"), "{refusal}");
        assert!(refusal.to_string().len() < 700, "{refusal}");
    }

    #[test]
    fn a_database_password_shows_nowhere() {
        let settings = read(&[
            ("RUNTIME_STORAGE", "postgresql"),
            ("RUNTIME_DATABASE_URL", "postgresql://u:hunter2@db/app"),
            ("RUNTIME_DATABASE_PASSWORD", "hunter2"),
            (
                "RUNTIME_KNOWLEDGE_BASES",
                r#"[{"kb_id": "kb_docs", "name": "Docs", "store": "pgvector", "connection_url": "postgresql://u:hunter2@db/app_knowledge",
                     "embedding": {"model": "builtin:all-minilm-l6-v2", "chunk_size": 512, "chunk_overlap": 50}}]"#,
            ),
        ])
        .unwrap();
        assert!(format!("{settings:?}").contains("kb_docs"));
        assert!(!format!("{settings:?}").contains("hunter2"));
    }

    const NAMES: &[&str] = &[
        "RUNTIME_CHANNEL",
        "RUNTIME_STRATEGY",
        "RUNTIME_MODEL_TYPE",
        "RUNTIME_MODEL_ID",
        "RUNTIME_BACKGROUND_MODEL",
        "RUNTIME_STORAGE",
        "RUNTIME_PORT",
        "RUNTIME_TOOLS",
        "RUNTIME_SKILLS",
        "RUNTIME_SUGGESTIONS",
        "RUNTIME_SUGGESTIONS_PROVIDER",
        "RUNTIME_MAX_ROUNDS",
        "RUNTIME_TURN_TOKENS",
        "RUNTIME_TURN_SECONDS",
        "RUNTIME_MAX_OUTPUT_TOKENS",
        "RUNTIME_SHUTDOWN_SECONDS",
        "RUNTIME_KNOWLEDGE_BASES",
        "RUNTIME_LOG_LEVEL",
        "RUNTIME_ACCESS",
    ];
    /// What may hold secrets.
    const SECRET: &[&str] = &[
        "RUNTIME_DATABASE_URL",
        "RUNTIME_DATABASE_PASSWORD",
        "RUNTIME_TOOLS",
        "RUNTIME_KNOWLEDGE_BASES",
        "RUNTIME_CONTROL_PUBLIC_KEY",
        "RUNTIME_ACCESS_PUBLIC_KEY",
    ];

    proptest! {
        #[test]
        fn any_environment_is_read_or_every_fault_names_its_variable(
            variables in prop::collection::btree_map(
                prop::sample::select(NAMES),
                "\\PC{0,100}|-?[0-9]{1,25}|postgresql|openai|openai:x|:|llm|custom|\\[\\{\"name\":\"a\",\"type\":\"http\",\"timeout\":[0-9]{1,12}\\}\\]|\\[{1,200}|é{60}",
                0..5,
            ),
            secrets in prop::collection::btree_map(prop::sample::select(SECRET), "[\\[{\"]{0,3}hunter2\\PC{0,5}", 0..3),
            invalid in prop::option::of(prop::sample::select(NAMES)),
        ) {
            let (settings, refusal) = Settings::read(|name| match (invalid == Some(name), secrets.get(name), variables.get(name)) {
                (true, ..) => Some(std::os::unix::ffi::OsStringExt::from_vec(vec![b'a', 0xff])),
                (_, Some(value), _) | (_, _, Some(value)) => Some(value.into()),
                _ => None,
            });
            prop_assert!(!format!("{refusal}").contains("hunter2"), "{}", refusal);
            for fault in &refusal.0 {
                prop_assert!(NAMES.iter().chain(SECRET).any(|name| fault.starts_with(name)) && fault.len() < 700, "{}", fault);
            }
            prop_assert!(!refusal.is_empty() || invalid.is_none());
            prop_assert!((1..=100).contains(&settings.budget.rounds) && settings.budget.output_tokens != Some(0));
            prop_assert!(settings.budget.time >= Duration::from_secs(1) && settings.grace >= Duration::from_secs(1));
        }
    }
}
