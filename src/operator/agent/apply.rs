//! Fourth step: writes the objects that differ from what is in the cluster, and nothing else.

use std::collections::HashSet;

use kube::Resource;
use kube::api::Patch;
use serde_json::{Value, json};
use slipway_api::{Agent, Track};
use slipway_cluster::Key;
use slipway_cluster::json::hash;
use slipway_cluster::write;

use super::resolve::{ConditionFault, Plan};
use super::{Controller, MANAGER, build};
use crate::caches::ChildKind;
use crate::children::{self, Outcome};
use crate::context::Context;

/// In a Deployment.
const RUN_HASH: &str = "/spec/template/metadata/annotations/agents.slipway.dev~1run-hash";

/// The result of applying the children of one track.
#[derive(Default)]
pub(super) struct Applied {
    /// Whether all that was to be applied has been.
    pub is_complete: bool,
    pub outcomes: Vec<(ChildKind, String, Outcome)>,
    pub fault: Option<ConditionFault>,
    /// What has yet to go before the rest can be made.
    pub left: Option<String>,
    /// The error behind the fault, where waiting may mend it.
    pub error: Option<write::Error>,
    /// What the pods run that are made from now on, where the Deployment was there to be looked at.
    pub run_hash: Option<String>,
}

impl Applied {
    /// Of what may be told before it is tried again.
    pub(super) fn failed(error: write::Error) -> Self {
        Self { left: Some(format!("what it needs could not be written: {error}")), error: Some(error), ..Self::default() }
    }
}

/// What of `desired` is to be made now: while enough other agents change their pods because the platform did, an agent
/// that serves keeps its pods and what they were made from.
pub(super) fn in_turn(mut desired: Vec<(ChildKind, Value)>, agent: &Agent, controller: &Controller) -> Vec<(ChildKind, Value)> {
    let (context, rollout) = (&*controller.context, &controller.rollout);
    if rollout.is_over() {
        return desired;
    }
    let key = Key::of(agent);
    // A stop or restart by a person waits for nobody either.
    let restarted = agent.status.as_ref().and_then(|status| status.restarted_at.as_deref());
    if agent.stopped_by().is_some() || agent.restarted_at() != restarted {
        leave_turn(controller, &key);
        return desired;
    }
    let wanted = desired.iter().find(|(kind, _)| *kind == ChildKind::Deployment).map(|(_, value)| hash(value));
    let live =
        context.caches.children(ChildKind::Deployment).get(&key).filter(|child| child.owner.as_deref() == agent.meta().uid.as_deref());
    let deployment = live.as_ref().and_then(|child| child.deployment.as_deref());
    let as_wanted = live.as_ref().is_some_and(|child| child.matches_hash == wanted);
    match deployment {
        // Its pods go on being replaced until they are ready, or until that is given up.
        Some(deployment) if as_wanted && !deployment.settled() && deployment.stuck.is_none() => {}
        // One that does not serve as it should has nothing to lose.
        Some(deployment) if !as_wanted && deployment.settled() && deployment.wanted > 0 => {
            if rollout.holds_back(&key, agent.meta().generation) {
                desired.retain(|(kind, _)| !matches!(kind, ChildKind::ConfigMap | ChildKind::Deployment));
            }
        }
        _ => leave_turn(controller, &key),
    }
    count(controller);
    desired
}

/// An agent that needs no place among those whose pods change lets the next one have it.
pub(super) fn leave_turn(controller: &Controller, agent: &Key) {
    if let Some(next) = controller.rollout.settle(agent) {
        controller.requests.add(next);
    }
    count(controller);
}

fn count(controller: &Controller) {
    let metrics = &controller.context.metrics;
    let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
    let (rolling, waiting) = controller.rollout.count();
    metrics.rollouts.set(number(rolling));
    metrics.rollouts_waiting.set(number(waiting));
}

pub(super) async fn apply(desired: Vec<(ChildKind, Value)>, plan: &Plan, context: &Context) -> Result<Applied, write::Error> {
    let mut applied = Applied::default();
    for (kind, value) in desired {
        let name = children::name(&value).to_owned();
        let outcome = match children::apply(context, kind, &plan.owner.uid, &value, MANAGER).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let Some(fault) = no_address(kind, &name, &error) else { return Err(error) };
                (applied.fault, applied.error) = (Some(fault), Some(error));
                return Ok(applied);
            }
        };
        let fault = fault(kind, &name, &outcome);
        if outcome == Outcome::Left {
            applied.left = Some(format!("{kind:?} {name} of an earlier Agent of this name has yet to go"));
            return Ok(applied);
        }
        applied.outcomes.push((kind, name, outcome));
        if kind == ChildKind::Deployment && fault.is_none() {
            applied.run_hash = value.pointer(RUN_HASH).and_then(Value::as_str).map(str::to_owned);
        }
        if fault.is_some() {
            // What comes after needs what comes before; half an agent is worse than none.
            applied.fault = fault;
            return Ok(applied);
        }
    }
    applied.is_complete = true;
    Ok(applied)
}

/// Where no address is left for a Service, the API server answers 500: the error is tried again, as addresses come free.
fn no_address(kind: ChildKind, name: &str, error: &write::Error) -> Option<ConditionFault> {
    match error {
        write::Error::Api(kube::Error::Api(status)) if kind == ChildKind::Service && status.message.contains("range is full") => {
            let message = format!(
                "the cluster has no address for Service {name}: {}; delete Services that nobody needs, or have a cluster admin add addresses (a ServiceCIDR, kubectl get servicecidrs)",
                status.message
            );
            Some(ConditionFault { reason: "NoServiceAddress", message })
        }
        _ => None,
    }
}

fn fault(kind: ChildKind, name: &str, outcome: &Outcome) -> Option<ConditionFault> {
    match outcome {
        Outcome::Taken => Some(ConditionFault {
            reason: "NameTaken",
            message: format!("{kind:?} {name} exists and does not belong to this Agent; delete it or give the Agent another name"),
        }),
        Outcome::Refused(why) => Some(ConditionFault {
            reason: children::reason_of_refusal(why),
            message: format!("the API server refused {kind:?} {name}: {why}"),
        }),
        _ => None,
    }
}

/// Deletes what belongs to an Agent and is wanted on none of its tracks.
pub(super) async fn remove_orphans(
    agent: &Agent,
    wanted: &HashSet<(ChildKind, String)>,
    controller: &Controller,
) -> Result<(), write::Error> {
    let (context, of) = (&*controller.context, Key::of(agent));
    for (kind, name) in orphans(agent, wanted, controller) {
        children::delete(context, kind, &Key::new(&of.namespace, name)).await?;
    }
    Ok(())
}

/// What is known by its name, and what has the agent's labels besides; of both, what this very Agent owns. What leads to it has gone
/// before, or cannot go now, which stops nothing.
pub(super) fn orphans(agent: &Agent, wanted: &HashSet<(ChildKind, String)>, controller: &Controller) -> Vec<(ChildKind, String)> {
    let Some(uid) = agent.meta().uid.as_deref() else { return Vec::new() };
    let (caches, of) = (&controller.context.caches, Key::of(agent));
    let strays = controller.strays.of(&of, |kind, key| caches.children(kind).get(key).is_some_and(|child| child.is_labelled));
    let known = Track::ALL.into_iter().flat_map(|track| build::names(&of.name, track));
    let is_orphan = |(kind, name): &(ChildKind, String)| {
        let child = caches.children(*kind).get(&Key::new(&of.namespace, name));
        child.is_some_and(|child| child.owner.as_deref() == Some(uid) && !child.deleting)
    };
    known.chain(strays).filter(|child| !wanted.contains(child)).filter(is_orphan).collect()
}

/// An Agent of which it cannot be said what it should be keeps what it has: what ran goes on running, and is not touched.
/// Only stopping works.
pub(super) async fn keep(agent: &Agent, context: &Context) -> Result<Applied, write::Error> {
    let key = Key::of(agent);
    for track in Track::ALL.into_iter().filter(|_| agent.stopped_by().is_some()) {
        let workload = Key::new(&key.namespace, track.workload(&key.name));
        let child = context.caches.children(ChildKind::Deployment).get(&workload);
        let ours = child.filter(|child| child.owner.as_deref() == agent.meta().uid.as_deref());
        if ours.is_some_and(|child| child.deployment.as_ref().is_some_and(|deployment| deployment.wanted > 0)) {
            let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
            children::api(context, ChildKind::Deployment, &workload.namespace).patch(&workload.name, &write::by(MANAGER), &none).await?;
        }
    }
    Ok(Applied::default())
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use slipway_cluster::Object;

    use super::*;
    use crate::caches::child::Child;
    use crate::testing::context;

    fn agent(name: &str, generation: i64) -> Agent {
        serde_yaml::from_str(&format!(
            "{{metadata: {{name: {name}, namespace: team-a, uid: {name}, generation: {generation}}}, spec: {{name: H, framework: custom}}}}"
        ))
        .unwrap()
    }

    /// A Deployment of that image, as it is wanted.
    fn deployment(name: &str, image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "team-a", "uid": "d", "generation": 2,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Agent", "name": name, "uid": name, "controller": true}]},
            "spec": {"replicas": 1, "template": {"image": image}},
        })
    }

    /// The Deployment exists, with `updated` pods of its template and `total` pods of all templates.
    fn there(controller: &Controller, name: &str, image: &str, updated: i32, total: i32) {
        let wanted = deployment(name, image);
        let mut object = wanted.clone();
        object["status"] =
            json!({"observedGeneration": 2, "replicas": total, "updatedReplicas": updated, "readyReplicas": 1, "availableReplicas": 1});
        let object: Object = serde_json::from_value(object).unwrap();
        let child = Child::look(&object, None, || Some(wanted), "us");
        controller.context.caches.children(ChildKind::Deployment).insert(Key::new("team-a", name), child);
    }

    /// Whether the agent's new pods are made now; its Service always is.
    fn goes(controller: &Controller, agent: &Agent) -> bool {
        let name = agent.meta().name.clone().unwrap();
        let all =
            vec![(ChildKind::ConfigMap, json!({})), (ChildKind::Deployment, deployment(&name, "new")), (ChildKind::Service, json!({}))];
        let kinds: Vec<ChildKind> = in_turn(all, agent, controller).into_iter().map(|(kind, _)| kind).collect();
        assert!(kinds.contains(&ChildKind::Service));
        assert_eq!(kinds.contains(&ChildKind::ConfigMap), kinds.contains(&ChildKind::Deployment), "pods and what they read go together");
        kinds.contains(&ChildKind::Deployment)
    }

    #[tokio::test]
    async fn another_image_of_the_platform_comes_to_one_agent_after_the_other() {
        let controller = Controller::new(context());
        let mut requested = Box::pin(controller.requests.open());
        let agents = ["a", "b", "c"].map(|name| agent(name, 1));
        for name in ["a", "b", "c"] {
            there(&controller, name, "old", 1, 1);
        }
        controller.rollout.begin(agents.iter().map(|agent| (Key::of(agent), Some(1))));
        assert_eq!(agents.each_ref().map(|agent| goes(&controller, agent)), [true, false, false]);
        there(&controller, "a", "new", 1, 2);
        assert!(goes(&controller, &agents[0]) && !goes(&controller, &agents[1]), "its pods are being replaced");
        assert_eq!((controller.context.metrics.rollouts.get(), controller.context.metrics.rollouts_waiting.get()), (1, 2));
        assert!(goes(&controller, &agent("c", 2)), "its author has changed it");
        there(&controller, "a", "new", 1, 1);
        assert!(goes(&controller, &agents[0]));
        assert_eq!(requested.next().await, Some(Key::of(&agents[1])), "whose turn it is");
        assert!(goes(&controller, &agents[1]));
    }

    #[tokio::test]
    async fn an_agent_that_does_not_serve_or_exist_yet_waits_for_no_other() {
        let controller = Controller::new(context());
        there(&controller, "a", "old", 1, 1);
        there(&controller, "b", "old", 0, 1);
        let agents = ["a", "b", "c"].map(|name| agent(name, 1));
        controller.rollout.begin(agents.iter().map(|agent| (Key::of(agent), Some(1))));
        assert_eq!(agents.each_ref().map(|agent| goes(&controller, agent)), [true, true, true]);
        assert_eq!(controller.rollout.count(), (1, 0));
    }
}
