//! The custom resources of Slipway: their types, names, ids, defaults and rules.
//!
//! This is the room that every other one may enter. It does no I/O and knows no async: what is here can
//! be reasoned about with a YAML file and a pencil. The CRDs in `crds/` are generated from it.

#![expect(unreachable_pub, reason = "KubeSchema puts a copy of each struct into a function, where `pub` reaches nothing")]

pub mod agent;
pub mod canary;
pub mod condition;
pub mod contract;
pub mod crd;
pub mod dataset;
pub mod evaluation_run;
pub mod gitops;
pub mod guardrail_policy;
mod headers;
pub mod ids;
pub mod ingestion;
pub mod integration;
pub mod knowledge_base;
pub mod labels;
pub mod mirror;
mod model_type;
pub mod names;
pub mod platform;
pub mod release;
pub mod schedule;
mod schema;
pub mod skill;
pub mod source;
pub mod team;
pub mod tool;
pub mod track;
mod words;
pub mod worker;
pub mod yaml;

pub use agent::{Agent, AgentSpec, AgentStatus};
pub use canary::{Canary, CanaryStatus};
pub use dataset::{Dataset, DatasetSpec, DatasetStatus};
pub use evaluation_run::{EvaluationRun, EvaluationRunSpec, EvaluationRunStatus};
pub use guardrail_policy::{GuardrailPolicy, GuardrailPolicySpec, GuardrailPolicyStatus};
pub use ingestion::{Ingestion, IngestionSpec, IngestionStatus};
pub use integration::{Integration, IntegrationSpec, IntegrationStatus};
pub use knowledge_base::{KnowledgeBase, KnowledgeBaseSpec, KnowledgeBaseStatus};
pub use model_type::ModelType;
pub use release::{AgentRelease, AgentReleaseSpec, AgentReleaseStatus, ReleasePhase};
pub use skill::{Skill, SkillSpec, SkillStatus};
pub use team::{Team, TeamSpec, TeamStatus};
pub use tool::{Tool, ToolSpec, ToolStatus};
pub use track::Track;

/// The group of every custom resource.
pub const GROUP: &str = "agents.slipway.dev";
