//! Third step, pure: whole objects from a plan, whatever the cluster holds.

mod config_map;
mod deployment;
mod evaluator;
mod service;
mod service_account;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use kube::api::ObjectMeta;
use serde_json::Value;
use slipway_api::{Track, labels};
use slipway_cluster::write::value;

use super::resolve::Plan;
use crate::caches::ChildKind;
pub(crate) use evaluator::EVALUATOR;
pub(super) use evaluator::pod as evaluator_pod;

/// Everything that an Agent owns on one track. A new child cannot be forgotten: [`Desired::into_values`] takes it apart.
pub(super) struct Desired {
    pub config_map: ConfigMap,
    pub tool_digests: Option<ConfigMap>,
    pub deployment: Deployment,
    pub service: Service,
    /// Beside a canary, the Service that has the stable track's pods alone.
    pub primary: Option<Service>,
    pub service_account: Option<ServiceAccount>,
}

pub(super) fn build(plan: &Plan) -> Desired {
    let config_map = config_map::build(plan);
    Desired {
        deployment: deployment::build(plan, &config_map),
        service: service::build(plan),
        primary: service::primary(plan),
        service_account: service_account::build(plan),
        tool_digests: config_map::tool_digests(plan),
        config_map,
    }
}

impl Desired {
    /// As JSON, in the order in which they are applied: what a pod needs comes before the pod.
    pub(super) fn into_values(self) -> Result<Vec<(ChildKind, Value)>, serde_json::Error> {
        let Self { config_map, tool_digests, deployment, service, primary, service_account } = self;
        let mut values = vec![(ChildKind::ConfigMap, value(&config_map)?)];
        if let Some(digests) = tool_digests {
            values.push((ChildKind::ConfigMap, value(&digests)?));
        }
        if let Some(account) = service_account {
            values.push((ChildKind::ServiceAccount, value(&account)?));
        }
        if let Some(primary) = primary {
            values.push((ChildKind::Service, value(&primary)?));
        }
        values.push((ChildKind::Deployment, value(&deployment)?));
        values.push((ChildKind::Service, value(&service)?));
        Ok(values)
    }
}

/// The child of that kind and name, if the plan has one: what [`build`] would make, without making the others.
pub(super) fn child(plan: &Plan, kind: ChildKind, name: &str) -> Result<Option<Value>, serde_json::Error> {
    if !is_name(&plan.name, plan.track, kind, name) {
        return Ok(None);
    }
    match kind {
        ChildKind::ConfigMap if name == tool_digests_name(&plan.workload()) => {
            config_map::tool_digests(plan).as_ref().map(value).transpose()
        }
        ChildKind::ConfigMap => value(&config_map::build(plan)).map(Some),
        ChildKind::Deployment => value(&deployment::build(plan, &config_map::build(plan))).map(Some),
        ChildKind::Service if name == plan.workload() => value(&service::build(plan)).map(Some),
        ChildKind::Service => service::primary(plan).as_ref().map(value).transpose(),
        ChildKind::ServiceAccount => service_account::build(plan).as_ref().map(value).transpose(),
        _ => Ok(None),
    }
}

/// The hash of the configuration that pods of this plan bear as an annotation.
pub(super) fn config_hash(plan: &Plan) -> String {
    config_map::hash(&config_map::build(plan))
}

/// The hash of all that pods of this plan run, which they bear as an annotation.
pub(super) fn run_hash(plan: &Plan) -> String {
    deployment::run_hash(plan, &config_hash(plan))
}

fn config_map_name(workload: &str) -> String {
    format!("{workload}-config")
}

fn tool_digests_name(workload: &str) -> String {
    format!("{workload}-tool-digests")
}

/// All children that an agent can have on a track.
pub(super) fn names(agent: &str, track: Track) -> Vec<(ChildKind, String)> {
    let workload = track.workload(agent);
    let mut names = vec![
        (ChildKind::ConfigMap, config_map_name(&workload)),
        (ChildKind::ConfigMap, tool_digests_name(&workload)),
        (ChildKind::ServiceAccount, workload.clone()),
        (ChildKind::Deployment, workload.clone()),
        (ChildKind::Service, workload),
    ];
    if track == Track::Canary {
        names.push((ChildKind::Service, Track::primary(agent)));
    }
    names
}

/// Whether an agent can have a child of that kind and name on a track.
pub(super) fn is_name(agent: &str, track: Track, kind: ChildKind, name: &str) -> bool {
    names(agent, track).iter().any(|(of_kind, known)| *of_kind == kind && known == name)
}

/// The labels that tell the pods of one track from all others; they can never change.
pub(super) fn selector(agent: &str, track: Track) -> BTreeMap<String, String> {
    let (workload, agent) = (track.workload(agent), agent.to_owned());
    [(labels::NAME, workload), (labels::AGENT, agent), (labels::TRACK, track.as_str().to_owned())]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
}

fn all_labels(plan: &Plan) -> BTreeMap<String, String> {
    let mut all = selector(&plan.name, plan.track);
    let fixed = [(labels::PART_OF, labels::PLATFORM), (labels::MANAGED_BY, labels::OPERATOR), (labels::FRAMEWORK, plan.framework)];
    all.extend(fixed.map(|(key, value)| (key.to_owned(), value.to_owned())));
    if let Some(version) = &plan.version {
        all.insert(labels::VERSION.to_owned(), version.clone());
    }
    all
}

fn meta(plan: &Plan, name: String) -> ObjectMeta {
    let mut labels = all_labels(plan);
    if plan.track == Track::Canary {
        labels.insert(labels::POD_VERSION.to_owned(), plan.track.as_str().to_owned());
    }
    ObjectMeta {
        name: Some(name),
        namespace: Some(plan.namespace.clone()),
        labels: Some(labels),
        owner_references: Some(vec![plan.owner.clone()]),
        ..ObjectMeta::default()
    }
}
