//! A release artifact as it was committed, with the current status of the release.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Value, json};
use slipway_api::ReleasePhase;
use slipway_http::Error;
use slipway_release::Artifact;
use slipway_release::wire::Entry;

use super::ChangelogWithReason;

/// The release artifact.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct ArtifactView(Value);

impl ArtifactView {
    pub(super) fn of(artifact: &Artifact, entry: &Entry) -> Result<Self, Error> {
        let mut shape = serde_json::to_value(artifact).map_err(Error::internal)?;
        shape["metadata"]["status"] = json!(entry.status);
        shape["metadata"]["changelog"] = json!(entry.changelog_with_reason());
        Ok(Self(shape))
    }
}

impl JsonSchema for ArtifactView {
    fn schema_name() -> Cow<'static, str> {
        Form::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Form::json_schema(generator)
    }
}

/// A release: everything of an agent that changes what runs, as it was when the release was made.
#[derive(JsonSchema)]
#[schemars(rename = "Release")]
#[expect(dead_code, reason = "it is the form of a document, which the artifact itself fills")]
struct Form {
    #[schemars(rename = "apiVersion")]
    api_version: String,
    kind: String,
    metadata: MetadataForm,
    runtime: RuntimeForm,
    agent: AgentForm,
    governance: GovernanceForm,
    deployment: DeploymentForm,
    resolved: ResolvedForm,
}

#[derive(JsonSchema)]
#[schemars(rename = "ReleaseMetadata")]
#[expect(dead_code, reason = "a form")]
struct MetadataForm {
    /// The agent's slug.
    name: String,
    version: u64,
    /// The version before it; 0 for the first.
    previous: u64,
    author: String,
    timestamp: String,
    changelog: String,
    /// SHA-256 of the artifact as it was committed, in canonical YAML with this field empty.
    checksum: String,
    /// Where the release stands now.
    status: ReleasePhase,
}

#[derive(JsonSchema)]
#[schemars(rename = "ReleaseRuntime")]
#[expect(dead_code, reason = "a form")]
struct RuntimeForm {
    image: Option<String>,
    channel: String,
    strategy: String,
    /// Absent where an autoscaler sets them.
    replicas: Option<i32>,
    resources: Option<ResourcesForm>,
    env_secrets: Vec<String>,
    credential_secret: Option<String>,
    gcp_service_account: Option<String>,
    /// `platform`, where nobody else may ask the agent.
    access: Option<String>,
    /// `gateway`, where the platform's Gateway leads to the agent.
    expose: Option<String>,
    pod_template: Option<BTreeMap<String, Value>>,
}

#[derive(JsonSchema)]
#[schemars(rename = "ReleaseResources")]
#[expect(dead_code, reason = "a form")]
struct ResourcesForm {
    #[schemars(default)]
    requests: BTreeMap<String, String>,
    #[schemars(default)]
    limits: BTreeMap<String, String>,
}

#[derive(JsonSchema)]
#[schemars(rename = "ReleaseAgent")]
#[expect(dead_code, reason = "a form")]
struct AgentForm {
    model: ModelForm,
    system_prompt: Option<String>,
    skills: Vec<String>,
    tools: Vec<String>,
    knowledge_bases: Vec<String>,
    memory: MemoryForm,
    framework: String,
    /// The author's label, not the number of the release.
    version: Option<String>,
    background_model: Option<String>,
    database_url: Option<String>,
    database_credentials_secret: Option<String>,
    suggestions_provider: Option<String>,
    suggestions: Option<String>,
    judge_model: Option<String>,
    eval_sample_rate: Option<i32>,
}

#[derive(JsonSchema)]
#[schemars(rename = "ReleaseModel")]
#[expect(dead_code, reason = "a form")]
struct ModelForm {
    provider: String,
    id: String,
    /// The integration that gives server and key.
    integration: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(rename = "ReleaseMemory")]
#[expect(dead_code, reason = "a form")]
struct MemoryForm {
    backend: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(rename = "ReleaseGovernance")]
#[expect(dead_code, reason = "a form")]
struct GovernanceForm {
    guards: Vec<String>,
    policies: Vec<String>,
    risk_profile: String,
    eval_dataset: Option<String>,
    min_quality_score: i32,
    limits: Option<BTreeMap<String, Value>>,
}

#[derive(JsonSchema)]
#[schemars(rename = "ReleaseDeployment")]
#[expect(dead_code, reason = "a form")]
struct DeploymentForm {
    namespace: String,
    environment: Option<String>,
}

/// What names in the other blocks stood for when the release was made: name to digest.
#[derive(JsonSchema)]
#[schemars(rename = "ReleaseResolved")]
#[expect(dead_code, reason = "a form")]
struct ResolvedForm {
    image: Option<String>,
    tools: BTreeMap<String, String>,
    skills: BTreeMap<String, String>,
    knowledge_bases: BTreeMap<String, String>,
    /// Absent where the agent's models name none.
    #[schemars(default)]
    integrations: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;
    use slipway_api::Agent;

    use super::*;

    const FULL: &str = "
name: x
description: d
version: '1'
framework: custom
strategy: simple
channel: rest
modelType: openai
modelId: m
modelIntegration: llm
backgroundModel: m
systemPrompt: p
storage: memory
databaseUrl: d
databaseCredentialsSecret: c
tools: [t]
knowledgeBases: [k]
skills: [s]
environment: e
image: i
replicas: 2
suspend: true
envSecrets: [s]
credentialSecret: s
gcpServiceAccount: g
access: platform
expose: gateway
suggestionsProvider: static
suggestions: '[]'
judgeModel: 'stub:/stub-echo'
evalSampleRate: 5
resources: {requests: {cpu: '1'}, limits: {cpu: '2'}}
podTemplate: {labels: {a: b}}
canary: {enabled: true, weight: 10}
governance:
  guards: [max-tokens]
  limits: {maxTokensPerRequest: 5}
  policies: [default]
  riskProfile: high
  evalDataset: d
  minQualityScore: 80
";

    /// [`FULL`], which has every field of the Agent's schema.
    fn full() -> Value {
        let spec: Value = serde_yaml::from_str(FULL).unwrap();
        let crd = serde_json::to_value(Agent::crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let blocks = ["governance", "resources"].map(|block| (&schema["properties"][block], &spec[block]));
        for (schema, sample) in [(schema, &spec)].into_iter().chain(blocks) {
            for name in schema["properties"].as_object().unwrap().keys() {
                assert!(sample.get(name).is_some(), "the sample lacks {name}");
            }
        }
        spec
    }

    /// Checks that the document has every field of an artifact, recursively.
    fn known(definitions: &Value, schema: &Value, value: &Value, path: &str) {
        let mut schema = schema;
        if let Some(any) = schema["anyOf"].as_array() {
            schema = &any[0];
        }
        if let Some(reference) = schema["$ref"].as_str() {
            schema = &definitions[reference.rsplit('/').next().unwrap()];
        }
        let Some(fields) = value.as_object().filter(|_| schema.get("additionalProperties").is_none()) else { return };
        for (name, value) in fields {
            let field = schema["properties"].get(name).unwrap_or_else(|| panic!("the document does not know {path}.{name}"));
            known(definitions, field, value, &format!("{path}.{name}"));
        }
    }

    #[test]
    fn the_document_knows_every_field_of_an_artifact() {
        let agent = Agent::new("x", serde_json::from_value(full()).unwrap());
        let entry: Entry = serde_json::from_value(json!({
            "version": 2, "previous": 1, "status": "archived", "author": "ada", "timestamp": "2026-11-21T12:00:00Z",
            "changelog": "kinder", "checksum": "", "commit": "",
        }))
        .unwrap();
        let metadata = serde_json::from_value(json!({
            "name": "x", "version": 2, "previous": 1, "author": "ada", "timestamp": "2026-11-21T12:00:00Z", "changelog": "kinder",
            "checksum": "", "status": "active",
        }))
        .unwrap();
        let resolved = serde_json::from_value(
            json!({"image": "sha256:0", "tools": {"t": "1"}, "skills": {}, "knowledge_bases": {}, "integrations": {"llm": "2"}}),
        )
        .unwrap();
        let artifact = Artifact::of(&agent, resolved, metadata).sealed().unwrap();
        let ArtifactView(shape) = ArtifactView::of(&artifact, &entry).unwrap();
        assert_eq!(shape["metadata"]["status"], "archived", "{shape}");
        let mut generator = SchemaGenerator::default();
        let schema = generator.subschema_for::<ArtifactView>().to_value();
        let definitions = Value::Object(generator.take_definitions(true));
        for block in ["metadata", "runtime", "agent", "governance", "deployment", "resolved"] {
            assert!(shape[block].as_object().is_some_and(|fields| fields.len() > 1), "{block}: {shape}");
        }
        known(&definitions, &schema, &shape, "release");
    }
}
