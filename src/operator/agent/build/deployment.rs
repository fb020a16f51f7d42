//! The Deployment. Its pods fit the `restricted` pod security standard.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMap, ConfigMapEnvSource, ConfigMapKeySelector, ConfigMapProjection, ConfigMapVolumeSource, Container,
    ContainerPort, EmptyDirVolumeSource, EnvFromSource, EnvVar, EnvVarSource, HTTPGetAction, KeyToPath, Lifecycle, LifecycleHandler,
    ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ProjectedVolumeSource, ResourceRequirements, SeccompProfile,
    SecretEnvSource, SecretKeySelector, SecretVolumeSource, SecurityContext, SleepAction, TopologySpreadConstraint, Volume, VolumeMount,
    VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;
use sha2::{Digest, Sha256};
use slipway_api::agent::CONTAINER;
use slipway_api::agent::{AGENT_ENV, Access};
use slipway_api::{contract, labels};

use super::{all_labels, config_map, config_map_name, meta, selector, tool_digests_name};
use crate::agent::resolve::{Folder, Plan, Variable};
use crate::quantity::canonical;

const TEMPORARY: &str = "tmp";
const CREDENTIALS: &str = "credentials";
const SKILLS: &str = "skills";
const POLICIES: &str = "policies";
const HTTP: &str = "http";
/// How often a program of the agent's own is asked before it counts as one that does not start, once in five seconds: three minutes.
const STARTUP_PROBES: i32 = 36;

pub(super) fn build(plan: &Plan, config: &ConfigMap) -> Deployment {
    Deployment {
        metadata: meta(plan, plan.workload()),
        spec: Some(DeploymentSpec {
            replicas: replicas(plan),
            selector: LabelSelector { match_labels: Some(selector(&plan.name, plan.track)), ..LabelSelector::default() },
            // The old pod serves until the new one is ready.
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(1)),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            revision_history_limit: Some(3),
            progress_deadline_seconds: Some(300),
            template: PodTemplateSpec { metadata: Some(pod_meta(plan, config)), spec: Some(pod(plan)) },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// None where they are somebody else's. Stopping an agent is not.
fn replicas(plan: &Plan) -> Option<i32> {
    let replicas = if plan.suspended { 0 } else { plan.replicas };
    (replicas == 0 || !plan.replicas_elsewhere).then_some(replicas)
}

fn pod_meta(plan: &Plan, config: &ConfigMap) -> ObjectMeta {
    let mut labels = plan.pod.labels.clone();
    labels.extend(all_labels(plan));
    labels.insert(labels::POD_VERSION.to_owned(), plan.track.as_str().to_owned());
    if plan.closed {
        labels.insert(labels::ACCESS.to_owned(), Access::Platform.as_str().to_owned());
    }
    let mut annotations = plan.pod.annotations.clone();
    let config = config_map::hash(config);
    annotations.insert(labels::RUN_HASH.to_owned(), run_hash(plan, &config));
    annotations.insert(labels::CONFIG_HASH.to_owned(), config);
    annotations.extend(plan.restarted_at.clone().map(|restarted| (labels::RESTARTED_AT.to_owned(), restarted)));
    annotations.extend(plan.secrets_hash.clone().map(|hash| (labels::SECRETS_HASH.to_owned(), hash)));
    ObjectMeta { labels: Some(labels), annotations: Some(annotations), ..ObjectMeta::default() }
}

/// What a release comes down to in a pod, and nothing of how this version of the operator writes pods. Tools and skills are in
/// the configuration, skills with their digests.
pub(super) fn run_hash(plan: &Plan, config: &str) -> String {
    let Plan { image, pod, resources, env_secrets, credential_secret, gcp_service_account, .. } = plan;
    let resources = [canonical(&resources.requests), canonical(&resources.limits)];
    let all = json!({
        "config": config, "image": image, "pod": pod, "resources": resources, "envSecrets": env_secrets,
        "credentialSecret": credential_secret, "gcpServiceAccount": gcp_service_account,
    });
    hex::encode(Sha256::digest(all.to_string()))
}

pub(super) fn pod(plan: &Plan) -> PodSpec {
    let settings = plan.pod.clone();
    PodSpec {
        containers: vec![container(plan)],
        volumes: Some(volumes(plan)),
        // Said even where it is the default: a name left out would be filled in from its deprecated twin.
        service_account_name: Some(if plan.gcp_service_account.is_some() { plan.workload() } else { "default".to_owned() }),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
            ..PodSecurityContext::default()
        }),
        termination_grace_period_seconds: Some(30),
        // Always there, though it matters only with several replicas: adding it with the second one would
        // roll the first.
        topology_spread_constraints: Some(vec![TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "kubernetes.io/hostname".to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(LabelSelector { match_labels: Some(selector(&plan.name, plan.track)), ..LabelSelector::default() }),
            ..TopologySpreadConstraint::default()
        }]),
        node_selector: some(settings.node_selector),
        tolerations: (!settings.tolerations.is_empty()).then_some(settings.tolerations),
        affinity: settings.affinity,
        priority_class_name: settings.priority_class_name,
        image_pull_secrets: (!settings.image_pull_secrets.is_empty()).then_some(settings.image_pull_secrets),
        runtime_class_name: settings.runtime_class_name,
        ..PodSpec::default()
    }
}

fn some<V>(map: BTreeMap<String, V>) -> Option<BTreeMap<String, V>> {
    (!map.is_empty()).then_some(map)
}

fn container(plan: &Plan) -> Container {
    // An image without a slash was put on the node by hand; there is nowhere to pull it from.
    let pull = if plan.image.contains('/') { "IfNotPresent" } else { "Never" };
    Container {
        name: CONTAINER.to_owned(),
        image: Some(plan.image.clone()),
        image_pull_policy: Some(pull.to_owned()),
        ports: Some(vec![port(HTTP, contract::PORT), port("control", contract::CONTROL_PORT)]),
        env_from: Some(env_from(plan)),
        env: Some(plan.env.iter().map(variable).chain(tool_digests(plan)).collect()),
        // Another program may load for a while, in which it would be killed for its silence, again and again.
        startup_probe: (!plan.own_image).then(|| Probe { failure_threshold: Some(STARTUP_PROBES), ..probe("/healthz", 3, 5) }),
        liveness_probe: Some(probe("/healthz", 5, 10)),
        // Another image owes no more than the first.
        readiness_probe: Some(probe(if plan.own_image { "/readyz" } else { "/healthz" }, 3, 5)),
        // Gives the cluster time to stop sending requests before the process stops taking them.
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler { sleep: Some(SleepAction { seconds: 2 }), ..LifecycleHandler::default() }),
            ..Lifecycle::default()
        }),
        resources: resources(plan),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(volume_mounts(plan)),
        ..Container::default()
    }
}

fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort { name: Some(name.to_owned()), container_port: number, protocol: Some("TCP".to_owned()), ..ContainerPort::default() }
}

fn probe(path: &str, delay: i32, period: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction { path: Some(path.to_owned()), port: IntOrString::Int(contract::PORT), ..HTTPGetAction::default() }),
        initial_delay_seconds: Some(delay),
        period_seconds: Some(period),
        timeout_seconds: Some(2),
        ..Probe::default()
    }
}

/// Secrets first, the ConfigMap after them: of two sources with the same key the last wins, so that no
/// Secret can override a variable of the contract.
fn env_from(plan: &Plan) -> Vec<EnvFromSource> {
    let secrets = plan.env_secrets.iter().map(|name| EnvFromSource {
        secret_ref: Some(SecretEnvSource { name: name.clone(), optional: (name == AGENT_ENV).then_some(true) }),
        ..EnvFromSource::default()
    });
    let config = EnvFromSource {
        config_map_ref: Some(ConfigMapEnvSource { name: config_map_name(&plan.workload()), optional: None }),
        ..EnvFromSource::default()
    };
    secrets.chain([config]).collect()
}

fn variable(variable: &Variable) -> EnvVar {
    match variable {
        // The API server leaves an empty value out; the variable is set all the same.
        Variable::Plain { name, value } => {
            EnvVar { name: name.clone(), value: Some(value.clone()).filter(|value| !value.is_empty()), value_from: None }
        }
        Variable::Secret { name, secret, key } => {
            let selector = SecretKeySelector { name: secret.clone(), key: key.clone(), optional: None };
            from(name, EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() })
        }
        Variable::Annotation { name, annotation } => {
            let selector =
                ObjectFieldSelector { field_path: format!("metadata.annotations['{annotation}']"), api_version: Some("v1".to_owned()) };
            from(name, EnvVarSource { field_ref: Some(selector), ..EnvVarSource::default() })
        }
    }
}

fn from(name: &str, source: EnvVarSource) -> EnvVar {
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

/// Read when the container starts. Without it the runtime would take whatever its servers offer.
fn tool_digests(plan: &Plan) -> Option<EnvVar> {
    plan.tool_digests.as_ref()?;
    let key = contract::TOOL_DIGESTS.to_owned();
    let selector = ConfigMapKeySelector { name: tool_digests_name(&plan.workload()), key, optional: None };
    Some(from(contract::TOOL_DIGESTS, EnvVarSource { config_map_key_ref: Some(selector), ..EnvVarSource::default() }))
}

fn resources(plan: &Plan) -> Option<ResourceRequirements> {
    let map = |quantities: &BTreeMap<String, Quantity>| some(canonical(quantities));
    let requirements = ResourceRequirements { requests: map(&plan.resources.requests), limits: map(&plan.resources.limits), claims: None };
    (requirements.requests.is_some() || requirements.limits.is_some()).then_some(requirements)
}

fn volumes(plan: &Plan) -> Vec<Volume> {
    let temporary = Volume {
        name: TEMPORARY.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource { size_limit: Some(Quantity("64Mi".to_owned())), medium: None }),
        ..Volume::default()
    };
    let credentials = plan.credential_secret.as_ref().map(|name| Volume {
        name: CREDENTIALS.to_owned(),
        secret: Some(SecretVolumeSource { secret_name: Some(name.clone()), ..SecretVolumeSource::default() }),
        ..Volume::default()
    });
    let skills = (!plan.skills.is_empty()).then(|| Volume {
        name: SKILLS.to_owned(),
        projected: Some(ProjectedVolumeSource {
            sources: Some(plan.skills.iter().map(folder).collect()),
            ..ProjectedVolumeSource::default()
        }),
        ..Volume::default()
    });
    [temporary, policies()].into_iter().chain(credentials).chain(skills).collect()
}

/// The team's policies, whole and in every pod: kubelet renews a folder that is mounted so while the pod runs. A pod does not start
/// without them.
fn policies() -> Volume {
    Volume {
        name: POLICIES.to_owned(),
        config_map: Some(ConfigMapVolumeSource { name: contract::policies::CONFIG_MAP.to_owned(), ..ConfigMapVolumeSource::default() }),
        ..Volume::default()
    }
}

/// A skill's ConfigMap as a folder of the skill's name, its keys turned back into paths.
fn folder(folder: &Folder) -> VolumeProjection {
    let item = |(key, path): &(String, String)| KeyToPath { key: key.clone(), path: format!("{}/{path}", folder.name), mode: None };
    let config_map =
        ConfigMapProjection { name: folder.config_map.clone(), items: Some(folder.files.iter().map(item).collect()), optional: None };
    VolumeProjection { config_map: Some(config_map), ..VolumeProjection::default() }
}

fn volume_mounts(plan: &Plan) -> Vec<VolumeMount> {
    let mount = |name: &str, path: &str, read_only| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only,
        ..VolumeMount::default()
    };
    let credentials = plan.credential_secret.is_some().then(|| mount(CREDENTIALS, contract::CREDENTIALS, Some(true)));
    let skills = (!plan.skills.is_empty()).then(|| mount(SKILLS, contract::SKILLS_FOLDER, Some(true)));
    let policies = mount(POLICIES, contract::policies::FOLDER, Some(true));
    [mount(TEMPORARY, "/tmp", None), policies].into_iter().chain(credentials).chain(skills).collect()
}
