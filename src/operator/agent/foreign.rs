//! Tracks whose pods run an image other than the platform's, as the evaluation controller sees them: how their pods are
//! recognised, and which pod evaluates them. What such an image reports of itself on its control port is not trusted.

use k8s_openapi::api::core::v1::PodSpec;
use slipway_api::agent::ModelType;
use slipway_api::{Agent, Track};

use super::build;
use super::resolve::{Plan, Resolved};
use super::{resolved, tracks};
use crate::caches::pods;
use crate::context::Context;

pub(crate) struct Foreign {
    /// Of all that its pods run.
    pub run_hash: String,
    /// Whether what is found lies in the platform's database.
    pub persists: bool,
    plan: Box<Plan>,
    /// `provider:model_id`, by which its answers are priced.
    model: Option<String>,
}

impl Foreign {
    /// The run-hash in the little room that there is for it beside each pod.
    pub(crate) fn run(&self) -> u64 {
        pods::config(Some(&self.run_hash))
    }

    /// The pod that evaluates it.
    pub(crate) fn evaluator(&self, context: &Context) -> PodSpec {
        build::evaluator_pod(&self.plan, &context.settings, self.model.clone(), self.persists)
    }
}

/// None where the track runs the platform's image, and while it cannot be said what it runs. `agent` is the Agent as it is.
pub(crate) fn foreign(context: &Context, agent: &Agent, track: Track) -> Option<Foreign> {
    let workload = tracks::of(agent, context)?.workloads.into_iter().find(|workload| workload.track == track)?;
    let Resolved::Plan(plan) = resolved(agent, &workload, context) else { return None };
    if plan.own_image {
        return None;
    }
    let spec = &workload.agent.spec;
    // What a stub costs says nothing of an image that may ask any model.
    let model = (spec.model_type != ModelType::Stub).then(|| format!("{}:{}", spec.model_type.as_str(), spec.model_id));
    let persists = context.settings.database.is_some() && spec.database_url.is_none();
    Some(Foreign { run_hash: build::run_hash(&plan), persists, plan: Box::new(plan), model })
}
