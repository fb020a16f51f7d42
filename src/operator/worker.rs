//! The common part of the pods of workers, of ingestions and of tests of files: the image, the database, the platform's
//! addresses, and the `restricted` pod security standard. The Team controller makes workers, the others Jobs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, EnvFromSource, EnvVar, EnvVarSource, PersistentVolumeClaimVolumeSource,
    PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile, SecretEnvSource, SecretKeySelector, SecurityContext, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use slipway_api::agent::{AGENT_ENV, RUNTIME_SECRET, Resources};
use slipway_api::{contract, ids, labels};

use crate::database::{DatabaseUrl, qualified_url};
use crate::quantity::canonical;
use crate::settings::Settings;

/// The name of a team's worker: of its Deployment, its Service and its network policy.
pub(crate) use slipway_api::worker::NAME;
/// What the pods of ingestions are called in their labels.
pub(crate) const INGESTION_NAME: &str = "slipway-ingestion";
/// The network policy of ingestions.
pub(crate) const INGESTIONS: &str = "slipway-ingestions";
/// What the pods that evaluate agents are called in their labels, and their network policy.
pub(crate) const EVALUATOR_NAME: &str = "slipway-evaluator";
pub(crate) const EVALUATORS: &str = "slipway-evaluators";
/// What the pods that test an integration's files are called in their labels. No network policy opens them.
pub(crate) const PROBE_NAME: &str = "slipway-probe";
/// Values of [`labels::COMPONENT`].
pub(crate) const EVALUATION: &str = "evaluation";
pub(crate) const WORKER: &str = "worker";
pub(crate) const INGESTION: &str = "ingestion";
pub(crate) const PROBE: &str = "probe";
const TEMPORARY: &str = "tmp";
const LOCAL: &str = "local";

/// What a pod is told besides what is common to all.
pub(crate) struct Pod<'a> {
    /// The team, by slug.
    pub team: &'a str,
    pub container: &'static str,
    /// What the image's program is to do.
    pub command: &'static str,
    pub resources: &'a Resources,
    pub scratch: &'a Quantity,
    /// Whether it has the team's login of the database, where there is one, and what the team gives its agents.
    pub has_secrets: bool,
    pub env: Vec<EnvVar>,
    pub volumes: Vec<(Volume, VolumeMount)>,
}

/// A pod of the worker's image.
pub(crate) fn pod(settings: &Settings, of: Pod) -> PodSpec {
    let database = settings.database.clone().filter(|_| of.has_secrets).map(|url| url.qualified(&settings.platform_suffix()));
    let given = EnvFromSource {
        secret_ref: Some(SecretEnvSource { name: AGENT_ENV.to_owned(), optional: Some(true) }),
        ..EnvFromSource::default()
    };
    let template = settings.agent_defaults.pod_template.clone();
    let image = &settings.worker.image;
    let scratch = Volume {
        name: TEMPORARY.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource { size_limit: Some(of.scratch.clone()), medium: None }),
        ..Volume::default()
    };
    let (volumes, mounts): (Vec<_>, Vec<_>) = [(scratch, mount(TEMPORARY, "/tmp", false))].into_iter().chain(of.volumes).unzip();
    let container = Container {
        name: of.container.to_owned(),
        image: Some(image.clone()),
        // As of agents: an image without a slash was put on the node by hand.
        image_pull_policy: Some(if image.contains('/') { "IfNotPresent" } else { "Never" }.to_owned()),
        args: Some(vec![of.command.to_owned()]),
        env_from: of.has_secrets.then(|| vec![given]),
        env: Some(env(settings, database.as_ref(), of.team).into_iter().chain(of.env).collect()),
        resources: Some(requirements(of.resources)),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(mounts),
        // Of a process that was killed, the last lines of its log.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    };
    PodSpec {
        containers: vec![container],
        volumes: Some(volumes),
        service_account_name: Some("default".to_owned()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
            ..PodSecurityContext::default()
        }),
        termination_grace_period_seconds: Some(30),
        node_selector: Some(template.node_selector).filter(|map| !map.is_empty()),
        tolerations: Some(template.tolerations).filter(|list| !list.is_empty()),
        affinity: template.affinity,
        priority_class_name: template.priority_class_name,
        image_pull_secrets: Some(template.image_pull_secrets).filter(|list| !list.is_empty()),
        runtime_class_name: template.runtime_class_name,
        ..PodSpec::default()
    }
}

/// All of it stands in the container itself, so that no key of a Secret can take its place.
fn env(settings: &Settings, database: Option<&DatabaseUrl>, team: &str) -> Vec<EnvVar> {
    let platform = &settings.platform;
    let url = |url: Option<&String>| url.map(|url| qualified_url(url, &settings.platform_suffix())).unwrap_or_default();
    let mut env = Vec::new();
    if let Some(database) = database {
        env.extend([contract::DATABASE_USER, contract::DATABASE_PASSWORD].map(|name| secret(name, RUNTIME_SECRET)));
        env.push(plain(contract::KNOWLEDGE_URL, &knowledge_url(database)));
        env.extend(database.sslmode().map(|mode| plain(contract::PGSSLMODE, &escaped(&mode))));
    }
    env.push(plain(contract::TEAM, &ids::team(team)));
    env.push(plain(contract::EGRESS_ALLOW, &escaped(&platform.egress_allow.join(","))));
    env.push(plain(contract::EGRESS_PROXY, &escaped(&url(platform.egress_proxy.as_ref()))));
    env.extend(platform.access_public_key.iter().map(|key| plain(contract::ACCESS_PUBLIC_KEY, key)));
    env.extend(platform.control_public_key.iter().map(|key| plain(contract::CONTROL_PUBLIC_KEY, key)));
    // A team may have a server of its own, which its Secret names.
    env.extend(settings.ollama_base_url.iter().map(|base| plain(contract::OLLAMA_BASE_URL, &escaped(&url(Some(base))))));
    env.extend(platform.prepared_statements.then(|| plain(contract::DATABASE_PREPARED_STATEMENTS, "true")));
    env
}

/// The team's files, of which `claim` has the volume.
pub(crate) fn local(claim: &str) -> (Volume, VolumeMount) {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claim.to_owned(), read_only: Some(true) };
    let volume = Volume { name: LOCAL.to_owned(), persistent_volume_claim: Some(source), ..Volume::default() };
    (volume, mount(LOCAL, contract::LOCAL_FOLDER, true))
}

/// The database of chunks by the team's login, which the kubelet puts in.
pub(crate) fn knowledge_url(database: &DatabaseUrl) -> String {
    let login = format!("://$({}):$({})@", contract::DATABASE_USER, contract::DATABASE_PASSWORD);
    escaped(&database.knowledge()).replacen("://", &login, 1)
}

/// In a variable's value the kubelet replaces `$(NAME)`; `$$` is a plain dollar.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

/// The API server leaves an empty value out; the variable is set all the same.
pub(crate) fn plain(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()).filter(|value| !value.is_empty()), value_from: None }
}

fn secret(name: &str, secret: &str) -> EnvVar {
    let selector = SecretKeySelector { name: secret.to_owned(), key: name.to_owned(), optional: None };
    let source = EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

pub(crate) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), read_only: read_only.then_some(true), ..VolumeMount::default() }
}

fn requirements(resources: &Resources) -> ResourceRequirements {
    let map = |amounts: &BTreeMap<String, Quantity>| Some(canonical(amounts)).filter(|map| !map.is_empty());
    ResourceRequirements { requests: map(&resources.requests), limits: map(&resources.limits), claims: None }
}

/// The labels that tell a component's pods from agents', and one name's from another's.
pub(crate) fn component_labels(name: &str, component: &str) -> BTreeMap<String, String> {
    [(labels::NAME, name), (labels::COMPONENT, component)].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}
