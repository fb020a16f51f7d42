//! The Service: 8000 for users, 8001 for the platform.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use slipway_api::contract;

use super::{meta, selector};
use crate::agent::resolve::Plan;

pub(super) fn build(plan: &Plan) -> Service {
    Service {
        metadata: meta(plan, plan.workload()),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(selector(&plan.name, plan.track)),
            ports: Some(vec![port("http", contract::PORT), port("control", contract::CONTROL_PORT)]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
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
