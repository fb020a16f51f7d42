//! The team's worker, which searches its knowledge bases, takes uploads, and connects to its integrations: a Deployment and a Service
//! while the team has a KnowledgeBase (and the platform a database) or an Integration; and where workers and ingestions may connect to.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{ContainerPort, HTTPGetAction, PodSpec, PodTemplateSpec, Probe, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use slipway_api::{Team, contract, labels};

use super::build::{both, meta, namespace_peer, port, tcp};
use crate::settings::Settings;
use crate::worker::{self, INGESTION, INGESTION_NAME, INGESTIONS, NAME, WORKER};

const HTTP: &str = "http";
/// The most bytes of files that a worker writes for a while: an upload goes to the database in parts.
const SCRATCH: &str = "256Mi";

/// Without a database it has its integrations alone. A change of the Secrets that it reads replaces its pod.
pub(super) fn deployment(team: &Team, settings: &Settings, secrets_hash: Option<&str>) -> Deployment {
    let slug = team.name_any();
    let scratch = Quantity(SCRATCH.to_owned());
    let pod = worker::pod(
        settings,
        worker::Pod {
            team: &slug,
            container: WORKER,
            command: "serve",
            resources: &settings.worker.resources,
            scratch: &scratch,
            has_secrets: true,
            env: Vec::new(),
            volumes: Vec::new(),
        },
    );
    let template = &settings.agent_defaults.pod_template;
    let mut metadata = meta(team, NAME);
    metadata.labels.get_or_insert_default().extend(worker::component_labels(NAME, WORKER));
    let mut labels = template.labels.clone();
    labels.extend(metadata.labels.clone().unwrap_or_default());
    let mut annotations = template.annotations.clone();
    annotations.extend(secrets_hash.map(|hash| (labels::SECRETS_HASH.to_owned(), hash.to_owned())));
    Deployment {
        metadata,
        spec: Some(DeploymentSpec {
            replicas: Some(1),
            selector: selector(NAME, WORKER),
            revision_history_limit: Some(3),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    annotations: Some(annotations).filter(|map| !map.is_empty()),
                    ..ObjectMeta::default()
                }),
                spec: Some(serving(pod)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn serving(mut pod: PodSpec) -> PodSpec {
    for container in &mut pod.containers {
        container.ports = Some(vec![ContainerPort {
            name: Some(HTTP.to_owned()),
            container_port: contract::PORT,
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]);
        let probe = |period| Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/healthz".to_owned()),
                port: IntOrString::Int(contract::PORT),
                ..HTTPGetAction::default()
            }),
            initial_delay_seconds: Some(3),
            period_seconds: Some(period),
            timeout_seconds: Some(2),
            ..Probe::default()
        };
        (container.liveness_probe, container.readiness_probe) = (Some(probe(10)), Some(probe(5)));
    }
    pod
}

pub(super) fn service(team: &Team) -> Service {
    let mut metadata = meta(team, NAME);
    metadata.labels.get_or_insert_default().extend(worker::component_labels(NAME, WORKER));
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: selector(NAME, WORKER).match_labels,
            ports: Some(vec![ServicePort {
                name: Some(HTTP.to_owned()),
                port: contract::PORT,
                target_port: Some(IntOrString::Int(contract::PORT)),
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// The platform alone calls workers, and nobody calls ingestions. Both reach name servers, the platform, where the database is, and
/// what the chart lists.
pub(super) fn network_policies(team: &Team, settings: &Settings) -> [NetworkPolicy; 2] {
    let platform = vec![namespace_peer(&settings.platform_namespace)];
    let mut egress = Vec::new();
    // An empty list of peers would stand for everybody.
    if !settings.team_network.dns.is_empty() {
        let ports = Some(vec![port("UDP", 53), port("TCP", 53)]);
        egress.push(NetworkPolicyEgressRule { to: Some(settings.team_network.dns.clone()), ports });
    }
    egress.push(NetworkPolicyEgressRule { to: Some(platform.clone()), ports: None });
    egress.extend(settings.worker.egress.clone());
    let called = NetworkPolicyIngressRule { from: Some(platform), ports: Some(vec![tcp(contract::PORT)]) };
    let policy = |name: &str, pods: LabelSelector, ingress: Vec<NetworkPolicyIngressRule>| NetworkPolicy {
        metadata: meta(team, name),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(pods),
            policy_types: Some(both()),
            ingress: Some(ingress).filter(|rules| !rules.is_empty()),
            egress: Some(egress.clone()),
        }),
    };
    [policy(NAME, selector(NAME, WORKER), vec![called]), policy(INGESTIONS, selector(INGESTION_NAME, INGESTION), Vec::new())]
}

/// By labels of `app.kubernetes.io`, of which agents' pods have those alone that Slipway sets.
fn selector(name: &str, component: &str) -> LabelSelector {
    LabelSelector { match_labels: Some(worker::component_labels(name, component)), ..LabelSelector::default() }
}
