//! The agents of a pass, from the caches alone and without parsing one: which are wanted, which take requests, and which policies
//! each is held to.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use slipway_api::guardrail_policy::{DEFAULT, DEFAULT_NAMES, GuardrailPolicySpec, RuleType, Severity as PolicySeverity};
use slipway_api::ids;
use slipway_cluster::Key;
use slipway_database::AgentKey;
use slipway_governance::alert::{Limit, Severity};

use crate::caches::{Caches, ChildKind};
use crate::policy_file;

/// An Agent that has a Deployment of its own.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Watched {
    pub key: Key,
    pub row: AgentKey,
    /// Replicas that are wanted; none of an agent that is suspended.
    pub wanted: i32,
    pub ready: i32,
    /// What it is held to.
    pub policies: Vec<Arc<Held>>,
}

impl Watched {
    pub(super) fn is_suspended(&self) -> bool {
        self.wanted <= 0
    }

    pub(super) fn is_down(&self) -> bool {
        !self.is_suspended() && self.ready <= 0
    }

    /// From which values on there are alerts about this agent.
    pub(super) fn limits(&self) -> impl Iterator<Item = Limit> + '_ {
        Limit::platform().into_iter().chain(self.policies.iter().flat_map(|policy| policy.limits.iter().cloned()))
    }
}

/// A policy in force.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Held {
    pub id: String,
    pub rollback: bool,
    limits: Vec<Limit>,
}

impl Held {
    fn new(id: String, spec: &GuardrailPolicySpec) -> Self {
        let severity = match spec.severity {
            PolicySeverity::Warning => Severity::Warning,
            PolicySeverity::Critical => Severity::Critical,
        };
        // Of several rules of a type the strictest says when there is an alert.
        let least = |of: RuleType| {
            let values = spec.rules.iter().filter(|rule| rule.type_ == of).filter_map(|rule| rule.value.trim().parse::<f64>().ok());
            values.min_by(f64::total_cmp)
        };
        let others = spec.rules.iter().any(|rule| !is_of_answers(rule.type_.as_str()));
        let latency = least(RuleType::MaxLatency).and_then(|value| Limit::latency(&id, severity, value));
        let cost = least(RuleType::MaxCostPerDay).and_then(|value| Limit::daily_cost(&id, severity, value));
        let violations = if others { Limit::violations(&id, severity) } else { None };
        Self { limits: [latency, cost, violations].into_iter().flatten().collect(), rollback: spec.rollback, id }
    }
}

/// Whether a type of rule has alerts of its own, about what answers took and cost.
pub(super) fn is_of_answers(rule: &str) -> bool {
    [RuleType::MaxLatency, RuleType::MaxCostPerDay].iter().any(|of| of.as_str() == rule)
}

/// The policies of a namespace that are in force.
struct Policies {
    team: String,
    in_force: HashMap<String, Arc<Held>>,
    required: BTreeSet<String>,
}

impl Policies {
    /// None of a namespace that is no team's.
    fn of(caches: &Caches, namespace: &str) -> Option<Self> {
        let slug = caches.team_of(namespace)?;
        let object = caches.teams.get(&Key::new("", &slug));
        let team = object.as_ref().and_then(|object| object.0.as_ref().ok());
        let required = team.map(|team| policy_file::required(&team.spec)).unwrap_or_default();
        let all = caches.policies_of(namespace);
        let left_out = policy_file::left_out(&all, &required);
        let in_force = all.iter().filter(|(name, _)| !left_out.contains_key(*name)).filter_map(|(name, policy)| {
            let spec = &policy.policy().ok()?.spec;
            spec.enabled.then(|| (name.clone(), Arc::new(Held::new(ids::guardrail_policy(name), spec))))
        });
        Some(Self { team: ids::team(&slug), in_force: in_force.collect(), required })
    }

    /// What an agent is held to that names these.
    fn held(&self, references: &[Box<str>]) -> Vec<Arc<Held>> {
        let has_default = references.is_empty() || references.iter().any(|reference| &**reference == DEFAULT);
        let defaults = DEFAULT_NAMES.iter().filter(|_| has_default).map(|name| (*name).to_owned());
        let named = references.iter().map(|reference| ids::guardrail_policy_name(reference));
        let all: BTreeSet<String> = defaults.chain(named).chain(self.required.iter().cloned()).collect();
        all.iter().filter_map(|name| self.in_force.get(name).cloned()).collect()
    }
}

/// In the order of keys.
pub(super) fn watched(caches: &Caches) -> Vec<Watched> {
    let mut namespaces: HashMap<String, Option<Policies>> = HashMap::new();
    let mut keys = caches.agents.keys();
    keys.sort();
    let of = |key: Key| {
        let deployment = caches.children(ChildKind::Deployment).get(&key)?;
        let state = deployment.deployment.as_ref()?;
        let uid = deployment.owner.clone()?;
        let policies = namespaces.entry(key.namespace.clone()).or_insert_with(|| Policies::of(caches, &key.namespace)).as_ref()?;
        let held = policies.held(&caches.agents.get(&key)?.policies);
        let row = AgentKey { team: policies.team.clone(), agent_id: ids::agent(&key.namespace, &key.name), uid };
        Some(Watched { row, wanted: state.wanted, ready: state.available, policies: held, key })
    };
    keys.into_iter().filter_map(of).collect()
}
