//! What a project is made of. The caller has checked names, images and fields.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_api::ToolSpec;
use slipway_api::agent::{Framework, ModelType};

/// A part that a project has only if it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Capability {
    /// Fragments of an answer as they come, instead of one.
    Streaming,
    /// Tools of the platform.
    Tools,
    /// A knowledge base, and the search of it.
    Knowledge,
    /// The conversation before, which a program of one's own keeps in memory.
    Memory,
    /// Guards, and a guardrail policy.
    Guardrails,
    /// A dataset, and an evaluation run.
    Evaluation,
    /// Metrics for Prometheus.
    Metrics,
    /// A script and a workflow that test and build.
    Ci,
}

impl Capability {
    pub const ALL: [Self; 8] =
        [Self::Streaming, Self::Tools, Self::Knowledge, Self::Memory, Self::Guardrails, Self::Evaluation, Self::Metrics, Self::Ci];
    /// Those of a project that names none.
    pub const DEFAULT: [Self; 4] = [Self::Streaming, Self::Guardrails, Self::Evaluation, Self::Ci];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Streaming => "streaming",
            Self::Tools => "tools",
            Self::Knowledge => "knowledge",
            Self::Memory => "memory",
            Self::Guardrails => "guardrails",
            Self::Evaluation => "evaluation",
            Self::Metrics => "metrics",
            Self::Ci => "ci",
        }
    }
}

/// A Tool of the project, by its resource's name.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedTool {
    pub slug: String,
    pub spec: ToolSpec,
}

/// A project to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedProject {
    /// For people.
    pub name: String,
    /// The agent's name.
    pub slug: String,
    pub description: Option<String>,
    /// The namespace that the manifests are for.
    pub namespace: String,
    pub framework: Framework,
    /// Each once.
    pub capabilities: Vec<Capability>,
    pub tools: Vec<WantedTool>,
    /// The image of the project's program, of letters, digits and `._:/@-` alone.
    pub image: String,
    /// What its Containerfile begins with, of the same letters.
    pub base_image: String,
    pub model_type: ModelType,
    pub model_id: String,
    pub system_prompt: Option<String>,
}

impl WantedProject {
    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }

    /// The capabilities in the order of [`Capability::ALL`], whatever the order of the request.
    pub(crate) fn sorted(&self) -> Vec<&'static str> {
        Capability::ALL.into_iter().filter(|capability| self.has(*capability)).map(Capability::as_str).collect()
    }

    /// What the model is told.
    pub(crate) fn prompt(&self) -> String {
        let about = || self.description.as_ref().map_or_else(String::new, |about| format!(" {about}"));
        self.system_prompt.clone().unwrap_or_else(|| format!("You are {}.{}", self.name, about()))
    }
}
