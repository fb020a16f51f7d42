//! The canary of an Agent: a second configuration that serves a share of its users, what decides on it, and how it stands.
//!
//! What a canary makes of the Agent's spec, `promotion` says: the operator, REST and the releases all ask there.

mod promotion;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::{Access, Channel, Framework, Governance, PodTemplate, Resources, Storage, Strategy, SuggestionsProvider};
use crate::model_type::{JUDGE_PATTERN, MODEL_PATTERN, ModelType};
use crate::schema;
use crate::words::words;

/// A version of the agent that serves a share of its users beside the stable one. It has the agent's fields, except for those given here.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!has(self.analysis) || !has(self.analysis.steps) || self.analysis.steps.all(step, step > self.weight)")
        .message("analysis.steps: each must be above weight, which is the first"),
    validation = kube::core::Rule::new("!has(self.analysis) || self.weight < 100")
        .message("weight: must be below 100 with analysis, which compares the canary with what the others get"),
)]
pub struct Canary {
    /// Whether the canary runs. Turning it off without a promotion rolls it back.
    pub enabled: bool,
    /// How many percent of conversations go to the canary, 1 to 100. What is in force is in status.canary.weight.
    #[schemars(range(min = 1, max = 100))]
    pub weight: i32,
    /// The image that the canary runs. Default is the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[^\s]+$"))]
    pub image: Option<String>,
    /// The provider of the canary's model. Default is the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_type: Option<ModelType>,
    /// The provider's name for the canary's model. Default is the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub model_id: Option<String>,
    /// The canary's instructions. Default is the agent's. At most 120 KiB reach the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 122_880))]
    #[x_kube(validation = kube::core::Rule::new("bytes(self).size() <= 122880")
        .message("must have at most 120 KiB (122880 bytes), the most that reaches the agent"))]
    pub system_prompt: Option<String>,
    /// The canary's skills, in the place of the agent's. An empty list is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 66)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub skills: Option<Vec<String>>,
    /// The canary's tools, in the place of the agent's. An empty list is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub tools: Option<Vec<String>>,
    /// A label of the author's choice, for example canary. It is put on the canary's workload as app.kubernetes.io/version, and becomes the agent's by a promotion unless it is canary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"))]
    pub version: Option<String>,
    /// How many pods the canary has, 0 to 10. Default is its share of the agent's replicas, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub replicas: Option<i32>,
    /// Further fields of an Agent's spec that are other ones in the canary. Blocks such as governance take the place of the agent's whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Box<AgentOverrides>>,
    /// Lets Slipway raise the weight, promote and roll back by what it measures. Left out: people do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analysis: Option<CanaryAnalysis>,
}

/// A partial spec of an Agent: what spec.canary has no field of its own for.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentOverrides {
    /// As spec.name of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub name: Option<String>,
    /// As spec.description of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub description: Option<String>,
    /// As spec.framework of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<Framework>,
    /// As spec.strategy of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// As spec.channel of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
    /// As spec.modelIntegration of the Agent. Without it a canary with another modelType has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 66), regex(pattern = r"^[a-z]([-_a-z0-9]*[a-z0-9])?$"))]
    pub model_integration: Option<String>,
    /// As spec.backgroundModel of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = MODEL_PATTERN))]
    pub background_model: Option<String>,
    /// As spec.storage of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// As spec.databaseUrl of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^postgres(ql)?://[^\s]+$"))]
    #[x_kube(
        validation = kube::core::Rule::new("!self.matches('^[^:]*://[^@]*(:|%3[Aa])[^@]*@')")
            .message("must not hold a password; put username and password into a Secret and name it in databaseCredentialsSecret"),
        validation = kube::core::Rule::new("!self.matches('[?&][^=&]*([Pp][Aa][Ss][Ss]|%)[^=&]*=')")
            .message("must not hold a password parameter; put username and password into a Secret and name it in databaseCredentialsSecret"),
    )]
    pub database_url: Option<String>,
    /// As spec.databaseCredentialsSecret of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub database_credentials_secret: Option<String>,
    /// As spec.knowledgeBases of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 66)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub knowledge_bases: Option<Vec<String>>,
    /// As spec.governance of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governance: Option<Governance>,
    /// As spec.environment of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"))]
    pub environment: Option<String>,
    /// As spec.envSecrets of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub env_secrets: Option<Vec<String>>,
    /// As spec.credentialSecret of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub credential_secret: Option<String>,
    /// As spec.gcpServiceAccount of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[^\s@]+@[^\s@]+$"))]
    pub gcp_service_account: Option<String>,
    /// As spec.access of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// As spec.suggestionsProvider of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestions_provider: Option<SuggestionsProvider>,
    /// As spec.suggestions of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16_384))]
    pub suggestions: Option<String>,
    /// As spec.judgeModel of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = JUDGE_PATTERN))]
    pub judge_model: Option<String>,
    /// As spec.evalSampleRate of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub eval_sample_rate: Option<i32>,
    /// As spec.resources of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// As spec.podTemplate of the Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
}

/// How Slipway decides on a canary. Figures are those of requests since the canary began, of both tracks.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!has(self.steps) || self.steps.isSorted()").message("steps: must rise"),
    validation = kube::core::Rule::new("!has(self.timeoutSeconds) || self.timeoutSeconds >= (has(self.intervalSeconds) ? self.intervalSeconds : 600)")
        .message("timeoutSeconds: must not be below intervalSeconds"),
)]
pub struct CanaryAnalysis {
    /// The weights after spec.canary.weight, rising, for example [25, 50]. Default none: after the first one comes the promotion.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(range(min = 1, max = 100)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub steps: Vec<i32>,
    /// How long a step lasts at least, in seconds, 60 to 604800. Default 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 604_800))]
    pub interval_seconds: Option<i64>,
    /// How many requests the canary needs in a step, and stable since the canary began, before anything is concluded, 20 to 1000000. Default 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 20, max = 1_000_000))]
    pub minimum_requests: Option<i64>,
    /// After how many seconds a step without an answer is inconclusive, 60 to 6048000. Its weight stays. Default ten times intervalSeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 6_048_000))]
    pub timeout_seconds: Option<i64>,
    /// What follows the last step: automatic promotes, manual waits for somebody to promote. Default automatic.
    #[serde(default)]
    pub promotion: Promotion,
    /// Keeps the weight where it is. Figures go on being read. Default false.
    #[serde(default)]
    pub paused: bool,
    /// What the canary has to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gates: Option<CanaryGates>,
}

/// What a canary has to keep, beside the agent's own quality gate.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CanaryGates {
    /// The score that an evaluation of the canary has to reach, 1 to 100. Default none is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub score: Option<i32>,
    /// By how many percentage points the canary's rate of failed requests may be above stable's, 0 to 100. Default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub error_rate_increase: Option<i32>,
    /// How long the canary's 95th percentile may be in percent of stable's, 100 to 1000. Default 150.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 1000))]
    pub latency_ratio: Option<i32>,
}

/// Where a canary stands. Only Slipway writes it.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStatus {
    /// Progressing: it is on its way and serves nobody. Serving: its weight is in force. Paused, Inconclusive, Succeeded: the same, and nothing goes on by itself. Promoting: the stable track takes over what it runs. Draining: it ends. RolledBack: it has ended though the spec still asks for it.
    #[serde(default, deserialize_with = "schema::readable")]
    pub phase: CanaryPhase,
    /// The percentage of conversations that is in force. 0 while the canary is not ready.
    #[serde(default, deserialize_with = "schema::readable")]
    #[schemars(range(min = 0, max = 100))]
    pub weight: i32,
    /// The percentage that is wanted now.
    #[serde(default, deserialize_with = "schema::readable")]
    #[schemars(range(min = 0, max = 100))]
    pub desired_weight: i32,
    /// The number of the step of analysis, from 1.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 21))]
    pub step: Option<i32>,
    /// How many steps of analysis there are.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 21))]
    pub steps: Option<i32>,
    /// A hash of what a promotion would make of the agent.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub content: String,
    /// A hash of what spec.canary asked for when this canary began.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub spec_hash: String,
    /// What the canary's pods run, as a hash: their annotation agents.slipway.dev/run-hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub run_hash: Option<String>,
    /// The canary's version, as its workload is labelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub version: Option<String>,
    /// The stable track's version, as its workload is labelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub stable_version: Option<String>,
    /// How many pods the canary is to have.
    #[serde(default, deserialize_with = "schema::readable")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// Pods of the canary that are ready.
    #[serde(default, deserialize_with = "schema::readable")]
    #[schemars(range(min = 0))]
    pub ready_replicas: i32,
    /// When the canary began.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the present step, or the present phase, began.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub step_started_at: Option<Time>,
    /// How many requests the canary had had when the present step began.
    #[serde(default, deserialize_with = "schema::readable")]
    #[schemars(range(min = 0))]
    pub step_requests: i64,
    /// What was measured of the stable track since the canary began.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub stable: Option<TrackFigures>,
    /// The same of the canary.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub canary: Option<TrackFigures>,
    /// Who sends the canary its share, and who does not.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub carriers: Vec<Carrier>,
    /// The EvaluationRun of the canary, where a gate asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub evaluation: Option<String>,
    /// How many runs have been made of it.
    #[serde(default, deserialize_with = "schema::readable")]
    #[schemars(range(min = 0, max = 3))]
    pub attempt: i32,
    /// What the annotation agents.slipway.dev/canary-action of a GitOps tool's manifest has asked for once: promote, rollback or other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub counted_action: Option<String>,
    /// What the canary waits for, or why it does not go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
}

/// What was measured of a track. What was not measured is not there.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrackFigures {
    /// Requests since the canary began.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub requests: i64,
    /// Of the requests that ended, the percentage that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_rate_pct: Option<f64>,
    /// The 95th percentile of the time to an answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_latency_ms: Option<f64>,
    /// The score of the evaluation of what the track runs, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

/// Something that may send a canary its share.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Carrier {
    /// rest: Slipway's REST API. gateway: the HTTPRoute of the agent. mesh: the VirtualService of the agent.
    pub name: CarrierName,
    /// Whether it sends the canary its share.
    pub carries: bool,
    /// Why it does not, or what it leaves out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
}

words!(
    /// What follows the last step of an analysis.
    Promotion { Automatic = "automatic", Manual = "manual" }
);
words!(
    /// Who sends requests to a canary.
    CarrierName { Rest = "rest", Gateway = "gateway", Mesh = "mesh" }
);
words!(
    /// Where a canary stands.
    CanaryPhase {
        Progressing = "Progressing", Serving = "Serving", Paused = "Paused", Inconclusive = "Inconclusive", Succeeded = "Succeeded",
        Promoting = "Promoting", Draining = "Draining", RolledBack = "RolledBack",
    }
);
words!(
    /// By what an agent is reached from outside.
    Expose { Gateway = "gateway" }
);

/// The version that names the track, and is not promoted.
pub const TRACK_VERSION: &str = "canary";

impl Canary {
    /// The weights that the canary goes through, the first of which is its own.
    pub fn step_weights(&self) -> Vec<i32> {
        let steps = self.analysis.iter().flat_map(|analysis| analysis.steps.iter().copied());
        std::iter::once(self.weight).chain(steps.filter(|step| *step > self.weight)).collect()
    }
}

impl CanaryStatus {
    /// The percentage of conversations that goes to the canary now: 0 in every phase in which it serves nobody.
    pub fn share(&self) -> u8 {
        if self.phase.serves() { u8::try_from(self.weight.clamp(0, 100)).unwrap_or_default() } else { 0 }
    }
}

impl CanaryPhase {
    /// Whether the canary takes requests, be its weight 0.
    pub const fn serves(self) -> bool {
        match self {
            Self::Serving | Self::Paused | Self::Inconclusive | Self::Succeeded | Self::Promoting => true,
            Self::Progressing | Self::Draining | Self::RolledBack => false,
        }
    }

    /// Whether it has yet to be decided on.
    pub const fn is_active(self) -> bool {
        !matches!(self, Self::Promoting | Self::Draining | Self::RolledBack)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube::CustomResourceExt;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::Agent;

    /// Fields of a canary that are fields of the Agent too.
    pub(super) const OWN: [&str; 7] = ["image", "modelType", "modelId", "systemPrompt", "skills", "tools", "version"];
    /// Fields of an Agent that no canary has another of.
    pub(super) const ELSEWHERE: [&str; 4] = ["replicas", "suspend", "canary", "expose"];

    pub(super) fn canary(more: Value) -> Canary {
        let mut whole = json!({"enabled": true, "weight": 10});
        let Value::Object(more) = more else { panic!("no fields: {more}") };
        whole.as_object_mut().unwrap().extend(more);
        serde_json::from_value(whole).unwrap()
    }

    pub(super) fn fields(schema: &Value) -> &Map<String, Value> {
        schema["properties"].as_object().unwrap()
    }

    /// What a field accepts besides nothing, without its words and defaults.
    fn accepts(schema: &Value) -> Value {
        let mut schema = schema.clone();
        for keyword in ["description", "default", "nullable"] {
            schema.as_object_mut().unwrap().remove(keyword);
        }
        if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
            words.retain(|word| !word.is_null());
        }
        schema
    }

    #[test]
    fn a_canary_has_every_field_that_it_may_with_the_same_schema() {
        let crd = serde_json::to_value(Agent::crd()).unwrap();
        let agent = fields(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]);
        let canary = fields(&agent["canary"]);
        let overrides = fields(&canary["overrides"]);
        let known: BTreeSet<&str> = OWN.into_iter().chain(ELSEWHERE).chain(overrides.keys().map(String::as_str)).collect();
        assert_eq!(
            known,
            agent.keys().map(String::as_str).collect::<BTreeSet<_>>(),
            "a new field of an Agent is a canary's too, or says why not"
        );
        assert_eq!(known.len(), OWN.len() + ELSEWHERE.len() + overrides.len(), "no field is there twice");
        let own = OWN.into_iter().map(|name| (name, &canary[name]));
        for (name, schema) in own.chain(overrides.iter().map(|(name, schema)| (name.as_str(), schema))) {
            assert_eq!(accepts(schema), accepts(&agent[name]), "{name}");
        }
    }

    #[test]
    fn a_canary_goes_through_its_own_weight_and_the_higher_ones() {
        for (asked, weights) in [(json!({}), vec![10]), (json!({"analysis": {"steps": [5, 25, 50]}}), vec![10, 25, 50])] {
            assert_eq!(canary(asked).step_weights(), weights);
        }
    }

    #[test]
    fn a_share_goes_to_a_canary_that_serves() {
        for phase in CanaryPhase::ALL {
            let serves = !matches!(phase, CanaryPhase::Progressing | CanaryPhase::Draining | CanaryPhase::RolledBack);
            let share = |weight| CanaryStatus { phase: *phase, weight, ..CanaryStatus::default() }.share();
            assert_eq!([share(-1), share(30), share(101)], if serves { [0, 30, 100] } else { [0; 3] }, "{phase:?}");
        }
    }
}
