//! Rules of policies that judge neither texts nor amounts: tools that are denied, models that are allowed, guards that an agent
//! must have.

use crate::finding::{Action, Block, GuardName};
use crate::policy::Demand;
use crate::rule::PolicyRule;

/// Those whose models there are. What begins with one of them names a model of that provider alone.
const PROVIDERS: [&str; 7] = ["stub", "ollama", "openai", "anthropic", "google-ai", "vertex-ai", "bedrock"];

#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) denied_tools: Vec<(Vec<String>, Demand)>,
    pub(crate) allowed_models: Vec<(Vec<String>, Demand)>,
    pub(crate) lacking: Vec<(GuardName, PolicyRule)>,
}

/// A rule that something breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruled {
    pub guard: GuardName,
    /// What breaks it: the name of a tool, a model or a guard.
    pub kind: String,
    /// `Block` or `Warn`.
    pub action: Action,
    pub policy: PolicyRule,
}

impl Rules {
    pub(crate) fn is_empty(&self) -> bool {
        self.denied_tools.is_empty() && self.allowed_models.is_empty() && self.lacking.is_empty()
    }

    pub(crate) fn tool(&self, name: &str, origin: &str) -> Vec<Ruled> {
        let names_it = |names: &[String]| names.iter().any(|listed| listed == name || listed == origin);
        let denied = self.denied_tools.iter().filter(|(names, _)| names_it(names));
        denied.filter_map(|(_, demand)| Ruled::new(GuardName::DeniedTools, name, demand)).collect()
    }

    pub(crate) fn model(&self, provider: &str, model: &str) -> Vec<Ruled> {
        let is_this = |allowed: &str| {
            let of_provider = allowed.strip_prefix(provider).and_then(|rest| rest.strip_prefix(':'));
            // Anybody may give a model of their own the name of another provider's.
            let is_of_another = allowed.split_once(':').is_some_and(|(named, _)| named != provider && PROVIDERS.contains(&named));
            of_provider.is_some_and(|id| id == "*" || id == model) || (allowed == model && !is_of_another)
        };
        let broken = self.allowed_models.iter().filter(|(names, _)| !names.iter().any(|allowed| is_this(allowed)));
        broken.filter_map(|(_, demand)| Ruled::new(GuardName::AllowedModels, &format!("{provider}:{model}"), demand)).collect()
    }

    pub(crate) fn lacking(&self) -> Vec<Ruled> {
        let ruled = |(guard, policy): &(GuardName, PolicyRule)| Ruled {
            guard: GuardName::RequiredGuards,
            kind: guard.as_str().to_owned(),
            action: Action::Warn,
            policy: policy.clone(),
        };
        self.lacking.iter().map(ruled).collect()
    }
}

impl Ruled {
    fn new(guard: GuardName, kind: &str, demand: &Demand) -> Option<Self> {
        let policy = demand.policy.clone()?;
        Some(Self { guard, kind: kind.to_owned(), action: demand.action, policy })
    }

    /// The first that blocks, in words for the caller.
    pub fn block(all: &[Self]) -> Option<Block> {
        let Self { guard, kind, policy, .. } = all.iter().find(|ruled| ruled.action == Action::Block)?;
        let what = match guard {
            GuardName::DeniedTools => format!("the tool {kind} is denied to this agent"),
            GuardName::AllowedModels => format!("the model {kind} is not among those that the policy allows; the agent needs another one"),
            _ => kind.clone(),
        };
        let message = format!("refused by {guard} (policy {}): {what}", policy.policy);
        Some(Block { guard: *guard, message, retry_after: None, policy: Some(policy.clone()) })
    }
}
