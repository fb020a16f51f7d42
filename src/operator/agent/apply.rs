//! Fourth step: make the cluster be as built, sending nothing that is there already.

use kube::Resource;
use kube::api::Patch;
use serde_json::{Value, json};
use slipway_api::Agent;
use slipway_cluster::Key;
use slipway_cluster::json::hash;
use slipway_cluster::write;

use super::build::tool_digests_name;
use super::resolve::{Fault, Plan};
use super::{Controller, MANAGER};
use crate::caches::ChildKind;
use crate::children::{self, Outcome};
use crate::context::Context;

/// In a Deployment.
const RUN_HASH: &str = "/spec/template/metadata/annotations/agents.slipway.dev~1run-hash";

/// What came of it.
#[derive(Default)]
pub(super) struct Applied {
    pub outcomes: Vec<(ChildKind, String, Outcome)>,
    pub fault: Option<Fault>,
    /// What has yet to go before the rest can be made.
    pub left: Option<String>,
    /// What the pods run that are made from now on, where the Deployment was there to be looked at.
    pub run_hash: Option<String>,
}

/// What of `desired` is to be made now: while enough other agents change their pods because the platform did, an agent
/// that serves keeps its pods and what they were made from.
pub(super) fn in_turn(mut desired: Vec<(ChildKind, Value)>, agent: &Agent, controller: &Controller) -> Vec<(ChildKind, Value)> {
    let (context, rollout) = (&*controller.context, &controller.rollout);
    if rollout.is_over() {
        return desired;
    }
    let key = Key::of(agent);
    // Whoever stops or restarts it waits for nobody either.
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

pub(super) async fn apply(desired: Vec<(ChildKind, Value)>, plan: &Plan, controller: &Controller) -> Result<Applied, write::Error> {
    let context = &*controller.context;
    let mut applied = Applied::default();
    for (kind, value) in desired {
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let outcome = children::apply(context, kind, &plan.owner.uid, &value, MANAGER).await?;
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
            // What comes after needs what comes before; half an agent is worse than none. It may take long to mend, and
            // others need not wait for that.
            applied.fault = fault;
            leave_turn(controller, &Key::new(&plan.namespace, &plan.name));
            return Ok(applied);
        }
    }
    remove_orphans(plan, context).await?;
    Ok(applied)
}

fn fault(kind: ChildKind, name: &str, outcome: &Outcome) -> Option<Fault> {
    match outcome {
        Outcome::Taken => Some(Fault {
            reason: "NameTaken",
            message: format!("{kind:?} {name} exists and does not belong to this Agent; delete it or give the Agent another name"),
        }),
        Outcome::Refused(why) => {
            Some(Fault { reason: children::reason_of_refusal(why), message: format!("the API server refused {kind:?} {name}: {why}") })
        }
        _ => None,
    }
}

/// What an agent may cease to want: its ServiceAccount, and the ConfigMap with what was seen of its tools.
async fn remove_orphans(plan: &Plan, context: &Context) -> Result<(), write::Error> {
    let account = (ChildKind::ServiceAccount, plan.name.clone(), plan.gcp_service_account.is_some());
    let digests = (ChildKind::ConfigMap, tool_digests_name(&plan.name), plan.tool_digests.is_some());
    for (kind, name, wanted) in [account, digests] {
        let key = Key::new(&plan.namespace, name);
        let child = context.caches.children(kind).get(&key);
        let ours = child.is_some_and(|child| child.owner.as_deref() == Some(&plan.owner.uid) && !child.deleting);
        if !wanted && ours {
            children::delete(context, kind, &key).await?;
        }
    }
    Ok(())
}

/// An Agent of which it cannot be said what it should be keeps what it has: what ran goes on running, and is not touched.
/// Only stopping works.
pub(super) async fn keep(agent: &Agent, context: &Context) -> Result<Applied, write::Error> {
    let key = Key::of(agent);
    let ours = |child: &crate::caches::child::Child| child.owner.as_deref() == agent.meta().uid.as_deref();
    let running =
        context.caches.children(ChildKind::Deployment).get(&key).filter(|child| ours(child)).and_then(|child| child.deployment.clone());
    if agent.stopped_by().is_some() && running.is_some_and(|deployment| deployment.wanted > 0) {
        let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
        children::api(context, ChildKind::Deployment, &key.namespace).patch(&key.name, &write::by(MANAGER), &none).await?;
    }
    Ok(Applied::default())
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use kube::api::DynamicObject;

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

    /// Makes it be there, with so many pods of its template and of all templates.
    fn there(controller: &Controller, name: &str, image: &str, updated: i32, total: i32) {
        let wanted = deployment(name, image);
        let mut object = wanted.clone();
        object["status"] =
            json!({"observedGeneration": 2, "replicas": total, "updatedReplicas": updated, "readyReplicas": 1, "availableReplicas": 1});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
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
    async fn whoever_does_not_serve_or_does_not_exist_yet_waits_for_nobody() {
        let controller = Controller::new(context());
        there(&controller, "a", "old", 1, 1);
        there(&controller, "b", "old", 0, 1);
        let agents = ["a", "b", "c"].map(|name| agent(name, 1));
        controller.rollout.begin(agents.iter().map(|agent| (Key::of(agent), Some(1))));
        assert_eq!(agents.each_ref().map(|agent| goes(&controller, agent)), [true, true, true]);
        assert_eq!(controller.rollout.count(), (1, 0));
    }
}
