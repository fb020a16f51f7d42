//! Settings from flags and environment variables; `--help` lists all of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use slipway_api::agent::RiskProfile;
use slipway_api::team::AllowedPodSettings;
use slipway_api::{ids, platform};
use slipway_egress::Allowed;
use slipway_http::Network;
use slipway_mlflow::Login;
use slipway_operator::database::{DatabaseUrl, DatabaseUrlError};
use slipway_operator::settings::{AgentDefaults, GatewaySettings, RetentionDays, TeamNetwork, WorkerSettings};
use slipway_operator::tenancy::Wanted;
use slipway_rest::{RateLimits, ScaffoldSettings};

/// Runs Slipway's controllers, REST API and release history.
#[derive(Debug, Parser)]
#[command(version)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The roles of this process, separated by commas: operator runs the controllers, rest serves the API, state keeps the
    /// release history. One process only can have the folder of the history open.
    #[arg(long = "role", env = "SLIPWAY_ROLES", value_enum, value_delimiter = ',', default_value = "operator,rest")]
    pub roles: Vec<ProcessRole>,

    /// The address on which the API is served.
    #[arg(long, env = "SLIPWAY_API_LISTEN", default_value = "[::]:8090")]
    pub api_listen: SocketAddr,

    /// Whether callers of the API must authenticate.
    #[arg(long, env = "AUTH_ENABLED", default_value_t = true, action = clap::ArgAction::Set)]
    pub auth_enabled: bool,

    /// Allows AUTH_ENABLED=false within a cluster, where every client that reaches the API may then do everything.
    #[arg(long, env = "SLIPWAY_ALLOW_UNAUTHENTICATED")]
    pub allow_unauthenticated: bool,

    /// The OpenID Connect issuer whose tokens the API accepts besides those of the cluster. It should equal the --oidc-…
    /// flags of the API server, if that has them. SSL_CERT_FILE names further certificate authorities to trust.
    #[arg(long, env = "SLIPWAY_OIDC_ISSUER")]
    pub oidc_issuer: Option<String>,

    /// The audience that the issuer's tokens must have: the client ID.
    #[arg(long, env = "SLIPWAY_OIDC_AUDIENCE")]
    pub oidc_audience: Option<String>,

    /// The claim with the name of a caller.
    #[arg(long, env = "SLIPWAY_OIDC_USERNAME_CLAIM", default_value = "sub")]
    pub oidc_username_claim: String,

    /// The prefix of callers' names. The default is the issuer and #, except for e-mail addresses; - means no prefix.
    #[arg(long, env = "SLIPWAY_OIDC_USERNAME_PREFIX", allow_hyphen_values = true)]
    pub oidc_username_prefix: Option<String>,

    /// The claim with the groups of a caller.
    #[arg(long, env = "SLIPWAY_OIDC_GROUPS_CLAIM")]
    pub oidc_groups_claim: Option<String>,

    /// The prefix of groups.
    #[arg(long, env = "SLIPWAY_OIDC_GROUPS_PREFIX", default_value = "")]
    pub oidc_groups_prefix: String,

    /// The namespace of the team for which unauthenticated callers act, with AUTH_ENABLED=false.
    #[arg(long, env = "SLIPWAY_DEFAULT_NAMESPACE", default_value = "team-default")]
    pub default_namespace: String,

    /// The URL at which the API reaches agents, with {name} and {namespace} in it. Empty means the DNS names of their Services
    /// within a cluster, and through the API server elsewhere.
    #[arg(long, env = "SLIPWAY_AGENT_ADDRESS")]
    pub agent_address: Option<String>,

    /// The timeout for an agent's answer to a chat to begin, in seconds. It must exceed the runtime's timeout of a turn.
    #[arg(long, env = "SLIPWAY_CHAT_SECONDS", default_value_t = 330)]
    pub chat_seconds: u64,

    /// Networks, separated by commas, whose X-Forwarded-For is trusted: those of the proxies in front of the API. Without any,
    /// all callers behind a proxy have the proxy's address.
    #[arg(long, env = "SLIPWAY_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<String>,

    /// The rate limits of calls to agents in each replica of the API, as JSON: {"team": {"atOnce": 1024, "perSecond": 400,
    /// "burst": 800}, "agent": {"atOnce": 256, "perSecond": 100, "burst": 200}, "listeners": 4096}. 0 means no limit.
    #[arg(long, env = "SLIPWAY_LIMITS", default_value = "{}", value_parser = json::<RateLimits>)]
    pub limits: RateLimits,

    /// Whether the API impersonates its callers in writes instead of writing as itself. This takes the right to impersonate
    /// every user.
    #[arg(long, env = "SLIPWAY_IMPERSONATE", default_value_t = false, action = clap::ArgAction::Set)]
    pub impersonate: bool,

    /// The URL of the state role, which keeps the releases. Empty means this process if it has that role, else its Service
    /// within a cluster; elsewhere there are no releases.
    #[arg(long, env = "SLIPWAY_STATE_URL")]
    pub state_url: Option<String>,

    /// The file with the token for the state role: of this process' ServiceAccount, with the audience slipway-state, from a
    /// projected volume.
    #[arg(long, env = "SLIPWAY_STATE_TOKEN_FILE", default_value = "/var/run/secrets/slipway-state/token")]
    pub state_token_file: PathBuf,

    /// The file with the key that signs REST's calls to agents. The chart mounts Secret slipway-relay there.
    #[arg(long, env = "SLIPWAY_RELAY_KEY_FILE", default_value = "/var/run/slipway/relay/key")]
    pub relay_key_file: PathBuf,

    /// The file with the key that verifies callbacks of evaluations. The chart mounts an entry of Secret slipway-keys there.
    #[arg(long, env = "SLIPWAY_CALLBACK_KEY_FILE", default_value = "/var/run/slipway/callback/key")]
    pub callback_key_file: PathBuf,

    /// The address on which /healthz, /readyz and /metrics are served.
    #[arg(long, env = "SLIPWAY_LISTEN", default_value = "[::]:8080")]
    pub listen: SocketAddr,

    /// The log level: error, warn, info, debug, trace, or a filter such as info,kube=debug.
    #[arg(long, env = "SLIPWAY_LOG", default_value = "info")]
    pub log: String,

    /// The log format.
    #[arg(long, env = "SLIPWAY_LOG_FORMAT", value_enum, default_value = "human")]
    pub log_format: LogFormat,

    /// The namespace of the platform itself; host names without a dot are resolved in it.
    #[arg(long, env = "SLIPWAY_PLATFORM_NAMESPACE", default_value = "slipway-system")]
    pub platform_namespace: String,

    /// The ServiceAccount of this process, which is bound to the role for the Secrets of teams.
    #[arg(long, env = "SLIPWAY_SERVICE_ACCOUNT", default_value = "slipway-manager")]
    pub service_account: String,

    /// The ServiceAccount that REST runs as, which is given the right to write Secrets of integrations in the namespaces of teams.
    #[arg(long, env = "SLIPWAY_REST_ACCOUNT")]
    pub rest_account: Option<String>,

    /// The name of this process among its replicas.
    #[arg(long, env = "POD_NAME", default_value = "slipway-manager")]
    pub name: String,

    /// The namespaces that are watched, separated by commas. Empty means all.
    #[arg(long, env = "SLIPWAY_WATCH_NAMESPACES", value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,

    /// The default image of agents.
    #[arg(long, env = "SLIPWAY_RUNTIME_IMAGE", default_value = concat!("slipway.dev/slipway-runtime:", env!("CARGO_PKG_VERSION")))]
    pub runtime_image: String,

    /// The defaults of agents, as JSON: {"resources": ..., "podTemplate": ...}.
    #[arg(long, env = "SLIPWAY_AGENT_DEFAULTS", default_value = "{}", value_parser = json::<AgentDefaults>)]
    pub agent_defaults: AgentDefaults,

    /// The network policies of teams, beyond the connections that every agent needs, as JSON: {"enabled": true, "dns": [...], "egress": [], "ingress": []}.
    #[arg(long, env = "SLIPWAY_TEAM_NETWORK", default_value = "{}", value_parser = json::<TeamNetwork>)]
    pub team_network: TeamNetwork,

    /// The Gateway of the Gateway API that agents may opt in to, as JSON: {"name": ..., "namespace": ..., "sectionName": ...,
    /// "hostname": "{agent}.{team}.agents.example.com"}. Without a name there is none.
    #[arg(long, env = "SLIPWAY_GATEWAY", default_value = "{}", value_parser = json::<GatewaySettings>)]
    pub gateway: GatewaySettings,

    /// What searches and fills knowledge bases, as JSON: {"image": ..., "resources": ..., "ingestion": {...}, "egress": []}.
    #[arg(long, env = "SLIPWAY_WORKER", default_value = "{}", value_parser = json::<WorkerSettings>)]
    pub worker: WorkerSettings,

    /// The podTemplate settings that agents of every team may use, as JSON: {"priorityClassNames": [], "annotations": [], ...}.
    #[arg(long, env = "SLIPWAY_ALLOWED_POD_SETTINGS", default_value = "{}", value_parser = json::<AllowedPodSettings>)]
    pub allowed_pod_settings: AllowedPodSettings,

    /// The default quota of teams, as the spec.hard of a ResourceQuota: {"count/agents.agents.slipway.dev": "50"}.
    #[arg(long, env = "SLIPWAY_TEAM_QUOTA", default_value = "{}", value_parser = json::<BTreeMap<String, Quantity>>)]
    pub team_quota: BTreeMap<String, Quantity>,

    /// The URL of the platform's PostgreSQL database. Without one, agents keep conversations and memories in memory.
    #[arg(long, env = "SLIPWAY_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,

    /// The local model server that agents of modelType ollama use.
    #[arg(long, env = "OLLAMA_BASE_URL")]
    pub ollama_base_url: Option<String>,

    /// The isolation of teams in the database: rolePerTeam gives each team a login of its own, shared gives all of them the
    /// platform's login.
    #[arg(long, env = "SLIPWAY_DATABASE_ISOLATION", default_value = "rolePerTeam")]
    pub database_isolation: Wanted,

    /// Whether the database server, and any pooler before it, supports named prepared statements.
    #[arg(long, env = "SLIPWAY_DATABASE_PREPARED_STATEMENTS", default_value_t = false, action = clap::ArgAction::Set)]
    pub database_prepared_statements: bool,

    /// For how many days feedback is kept, unless its conversation is deleted before.
    #[arg(long, env = "SLIPWAY_FEEDBACK_DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub feedback_days: u32,

    /// Every how many minutes an integration is tested by itself, besides after each change of it. 0 is never.
    #[arg(long, env = "SLIPWAY_INTEGRATION_TEST_MINUTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_080))]
    pub integration_test_minutes: u32,

    /// For how many days usage, violations of policies, readiness and alerts are kept, as JSON: {"usageMinutes": 32, "usageHours": 400,
    /// "violations": 32, "alerts": 90}.
    #[arg(long, env = "SLIPWAY_RETENTION_DAYS", default_value = "{}", value_parser = json::<RetentionDays>)]
    pub retention_days: RetentionDays,

    /// The embedding model of agents that run the platform's own image.
    #[arg(long, env = "SLIPWAY_EMBEDDING_MODEL")]
    pub embedding_model: Option<String>,

    /// Networks, and hosts with a port, that agents' tools may reach although they are not public, separated by commas.
    #[arg(long, env = "SLIPWAY_EGRESS_ALLOW", value_delimiter = ',')]
    pub egress_allow: Vec<String>,

    /// The HTTP proxy for agents' tools. It resolves names itself and has to enforce its own egress rules.
    #[arg(long, env = "SLIPWAY_EGRESS_PROXY", hide_env_values = true)]
    pub egress_proxy: Option<String>,

    /// The search page of a SearXNG-compatible server, for agents' builtin search.
    #[arg(long, env = "SLIPWAY_SEARCH_URL", hide_env_values = true)]
    pub search_url: Option<String>,

    /// The most answers of an agent that are scored in a day, of those that its evalSampleRate samples.
    #[arg(long, env = "SLIPWAY_EVAL_SAMPLES_PER_DAY", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub eval_samples_per_day: u32,

    /// Networks, and hosts with a port, that skills may be imported from although they are not public, separated by commas.
    #[arg(long, env = "SLIPWAY_IMPORT_ALLOW", value_delimiter = ',')]
    pub import_allow: Vec<String>,

    /// The folder of the release history, for the role state. One process at a time has it open; others wait.
    #[arg(long, env = "SLIPWAY_STATE_FOLDER")]
    pub state_folder: Option<PathBuf>,

    /// The address on which the role state serves other parts of Slipway.
    #[arg(long, env = "SLIPWAY_STATE_LISTEN", default_value = "[::]:8091")]
    pub state_listen: SocketAddr,

    /// The users that may call the role state, separated by commas: system:serviceaccount:<namespace>:<name>.
    #[arg(long, env = "SLIPWAY_STATE_CALLERS", value_delimiter = ',')]
    pub state_callers: Vec<String>,

    /// Lets a release or a canary pass its evaluation gate by a comparison of words, without a model that judges. For the roles
    /// state and operator.
    #[arg(long, env = "SLIPWAY_ALLOW_HEURISTIC_GATE", default_value_t = false, action = clap::ArgAction::Set)]
    pub allow_heuristic_gate: bool,

    /// The risk profiles, separated by commas (low, standard, high), whose quality gate (/webhooks/canary-gate) stays shut while neither
    /// the cluster nor MLflow can be read. Others open.
    #[arg(long, env = "SLIPWAY_CANARY_GATE_FAIL_CLOSED", value_delimiter = ',', value_parser = risk_profile)]
    pub gate_fail_closed: Vec<RiskProfile>,

    /// What images of projects of POST /scaffold are called and built on, as JSON: {"registry": ..., "baseImage": ...}.
    #[arg(long, env = "SLIPWAY_SCAFFOLD", default_value = "{}", value_parser = json::<ScaffoldSettings>)]
    pub scaffold: ScaffoldSettings,

    /// Networks, and hosts with a port, that releases may be mirrored to besides public and private ones, separated by commas.
    #[arg(long, env = "SLIPWAY_MIRROR_ALLOW", value_delimiter = ',')]
    pub mirror_allow: Vec<String>,

    /// The folder for remotes with a file:// URL. Without it such remotes are refused.
    #[arg(long, env = "SLIPWAY_MIRROR_FILES")]
    pub mirror_files: Option<PathBuf>,

    /// The URL of the platform's API; agents call back to it and to no other.
    #[arg(long, env = "SLIPWAY_PLATFORM_URL")]
    pub platform_url: Option<String>,

    /// The OTLP endpoint for agents' traces, over HTTP.
    #[arg(long, env = "SLIPWAY_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,

    /// The MLflow server for agents' traces.
    #[arg(long, env = "SLIPWAY_MLFLOW_URI")]
    pub mlflow_uri: Option<String>,

    /// The platform's own login at that server, by which it sends results of evaluations and feedback. Agents have theirs.
    #[arg(long, env = "MLFLOW_TRACKING_USERNAME", hide_env_values = true)]
    pub mlflow_username: Option<String>,
    #[arg(long, env = "MLFLOW_TRACKING_PASSWORD", hide_env_values = true)]
    pub mlflow_password: Option<String>,
    /// A token in place of user and password.
    #[arg(long, env = "MLFLOW_TRACKING_TOKEN", hide_env_values = true)]
    pub mlflow_token: Option<String>,

    /// The Prometheus server that scrapes agents, from which REST reads what they did, where there is no database.
    #[arg(long, env = "SLIPWAY_PROMETHEUS_URL")]
    pub prometheus_url: Option<String>,

    /// The cluster's DNS domain.
    #[arg(long, env = "SLIPWAY_CLUSTER_DOMAIN", default_value = "cluster.local")]
    pub cluster_domain: String,

    /// Whether replicas elect a leader. Switch it off only with a single replica.
    #[arg(long, env = "SLIPWAY_LEADER_ELECTION", default_value_t = true, action = clap::ArgAction::Set)]
    pub leader_election: bool,

    /// The agents reconciled at once.
    #[arg(long, env = "SLIPWAY_MAX_CONCURRENT_RECONCILES", default_value_t = 16)]
    pub max_concurrent_reconciles: usize,

    /// The agents whose pods roll out at once after a change of the platform.
    #[arg(long, env = "SLIPWAY_MAX_CONCURRENT_ROLLOUTS", default_value_t = 20)]
    pub max_concurrent_rollouts: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Prints the CRDs, or applies them to the cluster.
    Crds {
        #[command(subcommand)]
        action: Option<CrdAction>,
    },
    /// Runs an import from a Git repository with a memory limit, and prints the skill or an error as JSON.
    #[command(hide = true)]
    Skill {
        /// <https://github.com/owner/repository//path/to/skill?ref=v1>
        source: String,
    },
    /// Runs an import of a zip archive with a memory limit, and prints the skill or an error as JSON. The archive is a part of
    /// the file on standard input.
    #[command(hide = true)]
    Archive {
        /// The offset of the archive in the file.
        start: u64,
        /// The length of the archive in bytes.
        length: u64,
        /// The skill's folder; empty for the only one.
        path: String,
    },
    /// Prints a token for one agent's control port, valid for a minute.
    Token {
        /// The agent: its id, or namespace/name.
        agent: AgentId,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum CrdAction {
    /// Applies the CRDs and waits until the API server serves them.
    Apply,
}

/// An agent's id, given as such or as namespace/name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentId(pub String);

impl FromStr for AgentId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(Self(ids::agent(namespace, name))),
            None if text.starts_with("ag_") => Ok(Self(text.to_owned())),
            _ => Err("an agent is named by its id (ag_...) or as namespace/name".to_owned()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProcessRole {
    Operator,
    Rest,
    State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Json,
    Human,
}

fn json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    serde_json::from_str(text).map_err(|error| format!("this JSON cannot be used: {error}"))
}

fn risk_profile(text: &str) -> Result<RiskProfile, &'static str> {
    RiskProfile::ALL.iter().copied().find(|profile| profile.as_str() == text.trim()).ok_or("must be low, standard or high")
}

/// The items of a list, each as text and parsed.
fn allowed<'a>(name: &'static str, items: &'a [String]) -> anyhow::Result<Vec<(&'a str, Allowed)>> {
    let items = items.iter().map(|item| item.trim()).filter(|item| !item.is_empty());
    items.map(|item| Ok((item, item.parse().map_err(anyhow::Error::msg).context(name)?))).collect()
}

impl Arguments {
    /// A URL without credentials, for agents' ConfigMaps. The error does not contain the URL, which may hold a password.
    pub(crate) fn public_url(given: Option<&String>) -> Result<Option<String>, &'static str> {
        let Some(text) = given.filter(|text| !text.trim().is_empty()) else { return Ok(None) };
        match platform::public_url_fault(text) {
            Some(fault) => Err(fault),
            None => Ok(Some(text.clone())),
        }
    }

    pub(crate) fn trusted_proxies(&self) -> anyhow::Result<Vec<Network>> {
        let given = self.trusted_proxies.iter().map(|network| network.trim()).filter(|network| !network.is_empty());
        given.map(|network| network.parse().map_err(anyhow::Error::msg).context("SLIPWAY_TRUSTED_PROXIES")).collect()
    }

    pub(crate) fn import_allow(&self) -> anyhow::Result<Vec<Allowed>> {
        Ok(allowed("SLIPWAY_IMPORT_ALLOW", &self.import_allow)?.into_iter().map(|(_, allowed)| allowed).collect())
    }

    pub(crate) fn mirror_allow(&self) -> anyhow::Result<Vec<Allowed>> {
        Ok(allowed("SLIPWAY_MIRROR_ALLOW", &self.mirror_allow)?.into_iter().map(|(_, allowed)| allowed).collect())
    }

    /// The exceptions as they are passed to agents. An invalid one is refused here, because no agent would start with it.
    pub(crate) fn egress_allow(&self) -> anyhow::Result<Vec<String>> {
        Ok(allowed("SLIPWAY_EGRESS_ALLOW", &self.egress_allow)?.into_iter().map(|(item, _)| item.to_owned()).collect())
    }

    pub(crate) fn mlflow_login(&self) -> anyhow::Result<Option<Login>> {
        let [user, password, token] = [&self.mlflow_username, &self.mlflow_password, &self.mlflow_token]
            .map(|given| given.as_deref().map(str::trim).filter(|given| !given.is_empty()));
        Login::new(user, password, token).map_err(anyhow::Error::msg)
    }

    /// The database URL. Not parsed by clap, whose errors would show the password.
    pub(crate) fn database(&self) -> Result<Option<DatabaseUrl>, DatabaseUrlError> {
        let given = self.database_url.as_deref().filter(|url| !url.trim().is_empty());
        given.map(DatabaseUrl::parse).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_used_are_refused_with_a_reason() {
        let parse = |flag: &str| Arguments::try_parse_from(["slipway-manager", flag]).map_err(|error| error.to_string());
        assert!(parse("--log-format=json").is_ok());
        for (flag, says) in [
            ("--agent-defaults={\"resource\":{}}", "resource"),
            ("--team-network=[", "JSON"),
            ("--team-quota={\"pods\": []}", "JSON"),
            ("--leader-election=perhaps", "leader-election"),
            ("--auth-enabled=perhaps", "auth-enabled"),
            ("--feedback-days=0", "1..=3650"),
            ("--feedback-days=3651", "1..=3650"),
            ("--retention-days={\"usageMinutes\": 1}", "usageMinutes: must be from 2 to 3650"),
            ("--retention-days={\"usage\": 5}", "usage"),
            ("--gateway={\"name\": \"public\", \"namespace\": \"gateways\", \"hostname\": \"{agent}\"}", "hostname: must have"),
            ("--gate-fail-closed=high,highest", "must be low, standard or high"),
        ] {
            let error = parse(flag).unwrap_err();
            assert!(error.contains(says), "{flag}: {error}");
        }
    }

    #[test]
    fn a_refused_database_url_does_not_show_its_password() {
        let arguments = Arguments::try_parse_from(["slipway-manager", "--database-url=mysql://u:hunter2@h/d"]).unwrap();
        let error = arguments.database().unwrap_err().to_string();
        assert!(error.contains("postgresql://") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn urls_for_agents_hold_no_password() {
        let read = |text: &str| Arguments::public_url(Some(&text.to_owned()));
        assert_eq!(read("https://mlflow.example.com"), Ok(Some("https://mlflow.example.com".to_owned())));
        assert_eq!((read(""), Arguments::public_url(None)), (Ok(None), Ok(None)));
        for (wrong, says) in
            [("https://me:hunter2@mlflow", "Secret"), ("ftp://x", "http://"), ("mlflow", "no URL"), ("otel:4318", "http://")]
        {
            assert!(read(wrong).unwrap_err().contains(says), "{wrong}");
        }
    }

    #[test]
    fn an_invalid_egress_exception_is_refused() {
        let read = |list: &str| {
            let arguments = Arguments::try_parse_from(["slipway-manager", "--egress-allow", list]).unwrap();
            arguments.egress_allow().map_err(|error| format!("{error:#}"))
        };
        assert_eq!(read("10.0.0.0/8, wiki.internal:443,"), Ok(vec!["10.0.0.0/8".to_owned(), "wiki.internal:443".to_owned()]));
        for wrong in ["10.0.0.0/33", "wiki.internal", "wiki.internal:99999"] {
            let error = read(wrong).unwrap_err();
            assert!(error.starts_with("SLIPWAY_EGRESS_ALLOW: ") && error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn an_agent_is_named_by_id_or_by_namespace_and_name() {
        let read = |text: &str| text.parse::<AgentId>().map(|agent| agent.0);
        assert_eq!(read("ag_0123"), Ok("ag_0123".to_owned()));
        assert_eq!(read("team-a/helper"), Ok(ids::agent("team-a", "helper")));
        for wrong in ["helper", "/helper", "team-a/", ""] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
