//! The Service: 8000 for users, 8001 for the platform. Beside a canary there is another one of the stable track.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use slipway_api::{Track, contract, labels};

use super::{meta, selector};
use crate::agent::resolve::Plan;

pub(super) fn build(plan: &Plan) -> Service {
    service(plan, plan.workload(), serving(plan))
}

/// The Service that has the stable track's pods alone, whatever a mesh makes of the agent's own. It comes and goes with the canary.
pub(super) fn primary(plan: &Plan) -> Option<Service> {
    let selected = || selector(&plan.name, Track::Stable);
    (plan.track == Track::Canary).then(|| service(plan, Track::primary(&plan.name), selected()))
}

fn service(plan: &Plan, name: String, selected: BTreeMap<String, String>) -> Service {
    Service {
        metadata: meta(plan, name),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(selected),
            ports: Some(vec![port("http", contract::PORT), port("control", contract::CONTROL_PORT)]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// The labels of the pods that serve: Flagger's copy of a Deployment has another name on its pods, and the other labels.
fn serving(plan: &Plan) -> BTreeMap<String, String> {
    let mut selected = selector(&plan.name, plan.track);
    if plan.primary_ready {
        selected.insert(labels::NAME.to_owned(), Track::primary(&plan.name));
    }
    selected
}

fn port(name: &str, port: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::String(name.to_owned())),
        ..ServicePort::default()
    }
}
