//! The settings of the operator.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use slipway_api::agent::{PodTemplate, Resources};
use slipway_api::team::AllowedPodSettings;
use slipway_database::Retention;
use slipway_http::callback::CallbackKey;
use slipway_mlflow::Login;

use crate::database::DatabaseUrl;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The namespace of the platform itself; bare host names are looked up in it.
    pub platform_namespace: String,
    /// The ServiceAccount that the manager runs as, in the platform's namespace.
    pub service_account: String,
    /// The ServiceAccount that REST runs as, where it may write the logins of integrations.
    pub rest_account: Option<String>,
    pub cluster_domain: String,
    /// Only these namespaces are looked at; empty means all.
    pub watch_namespaces: Vec<String>,
    /// The image of agents that name none.
    pub runtime_image: String,
    pub agent_defaults: AgentDefaults,
    pub team_network: TeamNetwork,
    pub worker: WorkerSettings,
    /// What agents of every team may ask for in podTemplate.
    pub allowed_pod_settings: AllowedPodSettings,
    /// What a team may have unless it says otherwise, as in a ResourceQuota.
    pub team_quota: BTreeMap<String, Quantity>,
    pub database: Option<DatabaseUrl>,
    /// For how many days feedback is kept.
    pub feedback_days: u32,
    /// How often an integration is tested by itself, besides after each change of it.
    pub integration_test_interval: Option<Duration>,
    /// For how many days usage, violations, readiness and alerts are kept.
    pub retention: RetentionDays,
    pub ollama_base_url: Option<String>,
    pub platform: PlatformInfo,
    /// The platform's own login at the MLflow server that it was installed with. Agents are not told it.
    pub mlflow_login: Option<Login>,
    pub max_concurrent_reconciles: usize,
    /// How many agents change their pods at once because the platform changed.
    pub max_concurrent_rollouts: usize,
    /// Whether a comparison of words, without a model that judges, passes an evaluation gate.
    pub allow_heuristic_gate: bool,
    /// Keys the hash over Secrets, so that nobody can try values against it.
    pub secrets_hash_key: Vec<u8>,
    /// Signs the tokens with which runtimes report the end of an evaluation, and the credentials of quality gates. Nobody is called
    /// back without it, and no gate opens.
    pub callback_key: Option<CallbackKey>,
    /// The Gateway that agents may opt in to.
    pub gateway: Option<Gateway>,
}

/// A Gateway of the Gateway API, and the hostname that an agent has there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    pub name: String,
    pub namespace: String,
    /// One of its listeners. Empty: all that take the route.
    pub section_name: String,
    /// With `{agent}` and `{team}` in it.
    pub hostname: String,
}

/// The same, where there may be none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "GatewayFields")]
pub struct GatewaySettings(pub Option<Gateway>);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct GatewayFields {
    name: String,
    namespace: String,
    section_name: String,
    hostname: String,
}

impl TryFrom<GatewayFields> for GatewaySettings {
    type Error = String;

    /// Two agents never have one hostname: names may hold hyphens and no dots, so that a dot keeps agent and team apart.
    fn try_from(GatewayFields { name, namespace, section_name, hostname }: GatewayFields) -> Result<Self, String> {
        if name.is_empty() {
            return Ok(Self(None));
        }
        if namespace.is_empty() {
            return Err("namespace: is required, the Gateway's own".to_owned());
        }
        let once = |word: &str| hostname.find(word).filter(|at| hostname.rfind(word) == Some(*at));
        match (once("{agent}"), once("{team}")) {
            (Some(agent), Some(team)) if hostname[agent.min(team)..agent.max(team)].contains('.') => {
                Ok(Self(Some(Gateway { name, namespace, section_name, hostname })))
            }
            _ => Err("hostname: must have {agent} and {team} in it, once each and with a dot between them".to_owned()),
        }
    }
}

/// What every agent is told of the platform around it. What is not set is not told.
#[derive(Debug, Clone, Default)]
pub struct PlatformInfo {
    /// Where the platform's own API is reached; agents call back there and nowhere else.
    pub url: Option<String>,
    /// The public half of the key that signs the platform's orders to agents, Ed25519 in base 64.
    pub control_public_key: Option<String>,
    /// The same of the key that signs what the platform's API passes on to agents.
    pub access_public_key: Option<String>,
    /// The model that turns text into vectors, of agents that run the platform's own image.
    pub embedding_model: Option<String>,
    /// Networks and hosts that tools may reach although they are not public.
    pub egress_allow: Vec<String>,
    /// An HTTP proxy through which tools go.
    pub egress_proxy: Option<String>,
    /// The search page that the builtin `search` asks.
    pub search_url: Option<String>,
    /// How many answers of an agent are scored in a day at most, of those that it samples.
    pub eval_samples_per_day: u32,
    /// Where traces go.
    pub otlp_endpoint: Option<String>,
    pub mlflow_uri: Option<String>,
    /// Whether the platform's database keeps statements that are prepared under a name.
    pub prepared_statements: bool,
}

/// What an agent gets that asks for nothing else.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentDefaults {
    pub resources: Resources,
    pub pod_template: PodTemplate,
}

/// What searches and fills knowledge bases, in the namespace of each team that has one.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WorkerSettings {
    pub image: String,
    /// Of the worker. Requests and limits of cpu and memory are always set, for the sake of quotas.
    pub resources: Resources,
    pub ingestion: IngestionSettings,
    /// What all knowledge bases of a team may have.
    pub quota: QuotaSettings,
    /// Where workers and ingestions may connect to, beyond name servers and the platform's namespace.
    pub egress: Vec<NetworkPolicyEgressRule>,
}

/// Of all knowledge bases of a team.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct QuotaSettings {
    pub documents: u64,
    pub chunks: u64,
}

/// The Jobs that carry ingestions out.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IngestionSettings {
    pub resources: Resources,
    /// The most bytes of files that a pod writes for a while.
    pub scratch: Quantity,
    /// How long one may take, in seconds, all attempts together.
    pub deadline_seconds: u32,
    /// How many of a team run at once.
    pub concurrency: u32,
    /// How many that have ended are kept of a knowledge base.
    pub history: u32,
    /// For how many seconds one that has ended is kept.
    pub ttl_seconds: u32,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            image: concat!("slipway.dev/slipway-worker:", env!("CARGO_PKG_VERSION")).to_owned(),
            resources: resources(["50m", "128Mi"], ["1", "512Mi"]),
            ingestion: IngestionSettings::default(),
            quota: QuotaSettings::default(),
            egress: Vec::new(),
        }
    }
}

impl Default for QuotaSettings {
    fn default() -> Self {
        Self { documents: 100_000, chunks: 1_000_000 }
    }
}

impl Default for IngestionSettings {
    fn default() -> Self {
        Self {
            resources: resources(["250m", "256Mi"], ["1", "1Gi"]),
            scratch: Quantity("1Gi".to_owned()),
            deadline_seconds: 6 * 3600,
            concurrency: 4,
            history: 20,
            ttl_seconds: 7 * 24 * 3600,
        }
    }
}

/// For how many days usage, violations, readiness and alerts are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Days")]
pub struct RetentionDays(pub Retention);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Days {
    usage_minutes: u32,
    usage_hours: u32,
    violations: u32,
    alerts: u32,
}

impl Default for Days {
    fn default() -> Self {
        let Retention { usage_minutes, usage_hours, violations, alerts } = Retention::default();
        Self { usage_minutes, usage_hours, violations, alerts }
    }
}

impl TryFrom<Days> for RetentionDays {
    type Error = String;

    /// The last day is read by scorecards and the radar, and stays.
    fn try_from(Days { usage_minutes, usage_hours, violations, alerts }: Days) -> Result<Self, String> {
        for (name, days, least) in
            [("usageMinutes", usage_minutes, 2), ("usageHours", usage_hours, 2), ("violations", violations, 2), ("alerts", alerts, 1)]
        {
            if !(least..=3650).contains(&days) {
                return Err(format!("{name}: must be from {least} to 3650 days"));
            }
        }
        Ok(Self(Retention { usage_minutes, usage_hours, violations, alerts }))
    }
}

/// Of cpu and memory.
fn resources(requests: [&str; 2], limits: [&str; 2]) -> Resources {
    let amounts = |[cpu, memory]: [&str; 2]| {
        [("cpu", cpu), ("memory", memory)].map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).into()
    };
    Resources { requests: amounts(requests), limits: amounts(limits) }
}

/// What the network policies of every team allow beyond what agents always need.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TeamNetwork {
    pub enabled: bool,
    /// Where the cluster's name servers are. Nobody: agents look up no names.
    pub dns: Vec<NetworkPolicyPeer>,
    pub egress: Vec<NetworkPolicyEgressRule>,
    pub ingress: Vec<NetworkPolicyIngressRule>,
}

impl Settings {
    /// The model of knowledge bases that name none: one of the platform's own server, if it has one, else the one that comes
    /// with the images.
    pub(crate) fn embedding_model(&self) -> &'static str {
        if self.ollama_base_url.is_some() { "nomic-embed-text" } else { "builtin:all-minilm-l6-v2" }
    }

    /// What completes the name of a Service in the platform's namespace.
    pub(crate) fn platform_suffix(&self) -> String {
        format!("{}.svc.{}", self.platform_namespace, self.cluster_domain)
    }
}

impl Default for TeamNetwork {
    fn default() -> Self {
        Self { enabled: true, dns: vec![name_servers()], egress: Vec::new(), ingress: Vec::new() }
    }
}

/// CoreDNS and its like, as most clusters have them.
fn name_servers() -> NetworkPolicyPeer {
    let labelled = |key: &str, value: &str| {
        let labels = [(key.to_owned(), value.to_owned())].into();
        Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() })
    };
    NetworkPolicyPeer {
        namespace_selector: labelled("kubernetes.io/metadata.name", "kube-system"),
        pod_selector: labelled("k8s-app", "kube-dns"),
        ip_block: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::settings;

    #[test]
    fn knowledge_bases_have_the_local_runtimes_model_if_there_is_one() {
        for (local, expected) in
            [(Some("http://ollama.models.svc.cluster.local:11434"), "nomic-embed-text"), (None, "builtin:all-minilm-l6-v2")]
        {
            let settings = Settings { ollama_base_url: local.map(str::to_owned), ..settings(None) };
            assert_eq!(settings.embedding_model(), expected);
        }
    }

    #[test]
    fn a_gateway_has_a_hostname_that_no_two_agents_share() {
        let read = |text: &str| serde_json::from_str::<GatewaySettings>(text).map_err(|error| error.to_string());
        let with = |hostname: &str| read(&format!(r#"{{"name": "public", "namespace": "gateways", "hostname": "{hostname}"}}"#));
        assert_eq!(read("{}"), Ok(GatewaySettings(None)));
        assert_eq!(read(r#"{"namespace": "gateways", "hostname": "anything"}"#), Ok(GatewaySettings(None)), "a Gateway has a name");
        for hostname in ["{agent}.{team}.example.com", "a-{agent}.teams.{team}", "{team}.{agent}"] {
            assert_eq!(with(hostname).unwrap().0.unwrap().hostname, hostname);
        }
        for hostname in
            ["", "{agent}.example.com", "{team}.example.com", "{agent}-{team}.example.com", "{agent}.{agent}.{team}", "{agent}{team}.com"]
        {
            assert!(with(hostname).unwrap_err().contains("with a dot between them"), "{hostname}");
        }
        assert!(read(r#"{"name": "public", "hostname": "{agent}.{team}"}"#).unwrap_err().contains("namespace"));
        assert!(read(r#"{"class": "traefik"}"#).is_err());
    }
}
