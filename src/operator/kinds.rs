//! The one place where kinds are registered: where the objects of each are, what of them is cached, and which controller they
//! have. The controller says what a kind refers to and what its children are (`Registered`).

use std::sync::Arc;

use kube::Api;
use slipway_api::{Agent, Dataset, EvaluationRun, GuardrailPolicy, Ingestion, Integration, KnowledgeBase, Skill, Team, Tool};
use slipway_cluster::cached::{CachedAgent, trimmed};
use slipway_cluster::watch::{namespaced, scopes};

use crate::alert_delivery::AlertDelivery;
use crate::caches::ChildKind;
use crate::caches::dataset::CachedDataset;
use crate::caches::evaluation_run::shortened;
use crate::caches::guardrail_policy::CachedPolicy;
use crate::caches::skill::CachedSkill;
use crate::context::Context;
use crate::control_port::Sign;
use crate::feedback::FeedbackDelivery;
use crate::governance::Governance;
use crate::upkeep::Upkeep;
use crate::{
    agent, dataset, evaluation_run, guardrail_policy, ingestion, integration, knowledge_base, optional_kinds, skill, team, tool, watches,
};

/// Makes the controllers known, in the order in which they hear of changes, and starts every watch.
pub(crate) fn register(context: &Arc<Context>, sign: Option<Sign>) {
    let sign = sign.map(Arc::new);
    context.registry.set(vec![
        Arc::new(agent::Controller::new(context.clone())),
        Arc::new(skill::Controller::new(context.clone())),
        Arc::new(team::Controller::new(context.clone())),
        Arc::new(tool::Controller::new(context.clone(), sign.clone())),
        Arc::new(dataset::Controller::new(context.clone())),
        Arc::new(evaluation_run::Controller::new(context.clone(), sign.clone())),
        Arc::new(evaluation_run::Delivery::new(context.clone(), sign.clone())),
        Arc::new(FeedbackDelivery::new(context.clone())),
        Arc::new(guardrail_policy::Controller::new(context.clone())),
        Arc::new(knowledge_base::Controller::new(context.clone())),
        Arc::new(ingestion::Controller::new(context.clone())),
        Arc::new(integration::Controller::new(context.clone(), sign.clone())),
        Arc::new(AlertDelivery::new(context.clone(), sign)),
        Arc::new(Governance::new(context.clone())),
        Arc::new(Upkeep::new(context.clone())),
    ]);
    let scopes = scopes(&context.settings.watch_namespaces);
    for scope in scopes.iter().map(Option::as_deref) {
        let client = &context.client;
        watches::objects::<Agent, _>(context, namespaced(client, scope), scope, |caches| &caches.agents, CachedAgent::from);
        watches::objects::<Tool, _>(context, namespaced(client, scope), scope, |caches| &caches.tools, trimmed);
        watches::objects::<KnowledgeBase, _>(context, namespaced(client, scope), scope, |caches| &caches.knowledge_bases, trimmed);
        watches::objects::<Ingestion, _>(context, namespaced(client, scope), scope, |caches| &caches.ingestions, trimmed);
        watches::objects::<Integration, _>(context, namespaced(client, scope), scope, |caches| &caches.integrations, trimmed);
        watches::objects::<EvaluationRun, _>(context, namespaced(client, scope), scope, |caches| &caches.evaluation_runs, shortened);
        watches::objects::<Skill, _>(context, namespaced(client, scope), scope, |caches| &caches.skills, CachedSkill::from);
        watches::objects::<Dataset, _>(context, namespaced(client, scope), scope, |caches| &caches.datasets, CachedDataset::from);
        watches::objects::<GuardrailPolicy, _>(
            context,
            namespaced(client, scope),
            scope,
            |caches| &caches.guardrail_policies,
            CachedPolicy::from,
        );
    }
    // Whole: who may create Teams could do worse than fill a cache.
    watches::objects::<Team, _>(context, Api::all(context.client.clone()), None, |caches| &caches.teams, |team| team);
    watches::namespaces(context);
    watches::platform(context);
    optional_kinds::watch(context, &scopes);
    for scope in &scopes {
        let is_watched = |kind: &ChildKind| !matches!(kind, ChildKind::Namespace | ChildKind::Secret) && !kind.is_optional();
        for kind in ChildKind::ALL.into_iter().filter(is_watched) {
            watches::children(context, kind, scope.clone());
        }
        watches::pods(context, scope.clone());
    }
}
