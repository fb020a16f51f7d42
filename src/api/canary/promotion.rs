//! What a canary makes of the Agent's spec. Pure.
//!
//! [`Canary::over`] is what the canary's pods run, [`Canary::promoted`] what a promotion makes of the Agent's spec, and [`Canary::fault`] says
//! beforehand what the API server would say of that.

use super::{AgentOverrides, Canary, TRACK_VERSION};
use crate::agent::{AgentSpec, Strategy};
use crate::model_type::ModelType;

impl Canary {
    /// The Agent's spec as the canary runs it, but for its replicas.
    #[must_use]
    pub fn over(&self, spec: &AgentSpec) -> AgentSpec {
        let Self {
            enabled: _,
            weight: _,
            image,
            model_type,
            model_id,
            system_prompt,
            skills,
            tools,
            version,
            replicas: _,
            overrides,
            analysis: _,
        } = self;
        let mut spec = AgentSpec { canary: None, ..spec.clone() };
        if model_type.is_some_and(|provider| provider != spec.model_type) {
            // It is the server of the other provider.
            spec.model_integration = None;
        }
        put_some(&mut spec.image, image.as_ref());
        put(&mut spec.model_type, model_type.as_ref());
        put(&mut spec.model_id, model_id.as_ref());
        put_some(&mut spec.system_prompt, system_prompt.as_ref());
        put(&mut spec.skills, skills.as_ref());
        put(&mut spec.tools, tools.as_ref());
        put_some(&mut spec.version, version.as_ref());
        if let Some(overrides) = overrides {
            overrides.put(&mut spec);
        }
        spec
    }

    /// The spec after a promotion.
    #[must_use]
    pub fn promoted(&self, spec: &AgentSpec) -> AgentSpec {
        let version = self.version.clone().filter(|version| version != TRACK_VERSION);
        Self { version, ..self.clone() }.over(spec)
    }

    /// What the API server would say of the Agent's spec after a promotion.
    pub fn fault(&self, spec: &AgentSpec) -> Option<&'static str> {
        let after = self.promoted(spec);
        if after.model_type != ModelType::Stub && after.model_id == "stub-echo" {
            return Some("canary.modelId: must name a model of the provider in modelType; stub-echo belongs to modelType stub");
        }
        if after.model_integration.is_some() && !matches!(after.model_type, ModelType::Openai | ModelType::Anthropic) {
            return Some("canary.overrides.modelIntegration: takes modelType openai or anthropic");
        }
        if after.strategy == Strategy::Custom && after.image.is_none() {
            return Some("canary.image: is required with strategy custom, because the image brings the strategy");
        }
        if after.database_credentials_secret.is_some() && after.database_url.is_none() {
            return Some("canary.overrides.databaseCredentialsSecret: has an effect only together with databaseUrl");
        }
        if after.suggestions.is_some() && after.suggestions_provider.is_none() {
            return Some("canary.overrides.suggestionsProvider: is required with suggestions");
        }
        (after.expose.is_some() && after.access.is_some())
            .then_some("canary.overrides.access: a gateway does not reach an agent whose access is platform")
    }
}

impl AgentOverrides {
    fn put(&self, spec: &mut AgentSpec) {
        // Taken apart without `..`, so that a new field cannot be forgotten.
        let Self {
            name,
            description,
            framework,
            strategy,
            channel,
            model_integration,
            background_model,
            storage,
            database_url,
            database_credentials_secret,
            knowledge_bases,
            governance,
            environment,
            env_secrets,
            credential_secret,
            gcp_service_account,
            access,
            suggestions_provider,
            suggestions,
            judge_model,
            eval_sample_rate,
            resources,
            pod_template,
        } = self;
        put(&mut spec.name, name.as_ref());
        put(&mut spec.framework, framework.as_ref());
        put(&mut spec.strategy, strategy.as_ref());
        put(&mut spec.channel, channel.as_ref());
        put(&mut spec.knowledge_bases, knowledge_bases.as_ref());
        put(&mut spec.env_secrets, env_secrets.as_ref());
        put_some(&mut spec.description, description.as_ref());
        put_some(&mut spec.model_integration, model_integration.as_ref());
        put_some(&mut spec.background_model, background_model.as_ref());
        put_some(&mut spec.storage, storage.as_ref());
        put_some(&mut spec.database_url, database_url.as_ref());
        put_some(&mut spec.database_credentials_secret, database_credentials_secret.as_ref());
        put_some(&mut spec.governance, governance.as_ref());
        put_some(&mut spec.environment, environment.as_ref());
        put_some(&mut spec.credential_secret, credential_secret.as_ref());
        put_some(&mut spec.gcp_service_account, gcp_service_account.as_ref());
        put_some(&mut spec.access, access.as_ref());
        put_some(&mut spec.suggestions_provider, suggestions_provider.as_ref());
        put_some(&mut spec.suggestions, suggestions.as_ref());
        put_some(&mut spec.judge_model, judge_model.as_ref());
        put_some(&mut spec.eval_sample_rate, eval_sample_rate.as_ref());
        put_some(&mut spec.resources, resources.as_ref());
        put_some(&mut spec.pod_template, pod_template.as_ref());
    }
}

fn put<T: Clone>(field: &mut T, value: Option<&T>) {
    if let Some(value) = value {
        field.clone_from(value);
    }
}

fn put_some<T: Clone>(field: &mut Option<T>, value: Option<&T>) {
    if let Some(value) = value {
        *field = Some(value.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube::CustomResourceExt;
    use serde_json::{Value, json};

    use super::super::tests::{ELSEWHERE, OWN, canary, fields};
    use super::*;
    use crate::Agent;

    fn spec(more: Value) -> AgentSpec {
        let mut whole = json!({"name": "Helper", "framework": "custom"});
        let Value::Object(more) = more else { panic!("no fields: {more}") };
        whole.as_object_mut().unwrap().extend(more);
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_canary_that_says_nothing_changes_nothing() {
        let agent =
            spec(json!({"systemPrompt": "Be kind.", "tools": ["a"], "version": "1", "replicas": 3, "governance": {"riskProfile": "high"}}));
        for canary in [canary(json!({})), canary(json!({"version": "canary", "overrides": {}, "replicas": 1, "analysis": {"steps": [50]}}))]
        {
            assert_eq!(canary.promoted(&agent), agent);
        }
    }

    #[test]
    fn what_a_canary_says_takes_the_place_of_the_agents() {
        let agent = spec(json!({"systemPrompt": "Be kind.", "tools": ["a"], "version": "1", "governance": {"riskProfile": "high"}}));
        let says = json!({"systemPrompt": "Be brief.", "tools": [], "version": "2", "overrides": {"governance": {"minQualityScore": 7}}});
        let asked = canary(says.clone());
        let agent = AgentSpec { canary: Some(Box::new(asked.clone())), ..agent };
        let expected = json!({"systemPrompt": "Be brief.", "version": "2", "governance": {"minQualityScore": 7}});
        assert_eq!(asked.over(&agent), spec(expected.clone()));
        assert_eq!(asked.over(&asked.over(&agent)), asked.over(&agent));
        assert_eq!(asked.promoted(&agent), spec(expected));
        let mut named = says;
        named["version"] = json!("canary");
        let named = canary(named);
        assert_eq!(named.over(&agent).version.as_deref(), Some("canary"));
        assert_eq!(named.promoted(&agent).version.as_deref(), Some("1"), "the name of the track is no version");
    }

    #[test]
    fn a_canary_of_another_provider_leaves_the_integration() {
        let agent = spec(json!({"modelType": "openai", "modelId": "m", "modelIntegration": "llm"}));
        for (asked, expected) in [
            (json!({}), Some("llm")),
            (json!({"modelType": "openai"}), Some("llm")),
            (json!({"modelType": "ollama"}), None),
            (json!({"modelType": "anthropic", "overrides": {"modelIntegration": "other"}}), Some("other")),
        ] {
            let asked = canary(asked);
            for after in [asked.over(&agent), asked.promoted(&agent), asked.over(&asked.over(&agent))] {
                assert_eq!(after.model_integration.as_deref(), expected, "{asked:?}");
            }
        }
    }

    #[test]
    fn every_field_of_a_canary_becomes_the_agents() {
        let values = json!({
            "image": "example.com/i:1", "modelType": "openai", "modelId": "m", "systemPrompt": "p", "skills": ["s"], "tools": ["t"],
            "version": "2", "name": "Next", "description": "d", "framework": "langchain", "strategy": "agent-react", "channel": "rest",
            "modelIntegration": "in", "backgroundModel": "openai:m", "storage": "memory", "databaseUrl": "postgres://db/a", "databaseCredentialsSecret": "l",
            "knowledgeBases": ["k"], "governance": {"riskProfile": "high"}, "environment": "e", "envSecrets": ["v"],
            "credentialSecret": "c", "gcpServiceAccount": "a@b", "access": "platform", "suggestionsProvider": "static",
            "suggestions": "[]", "judgeModel": "stub:/j", "evalSampleRate": 5, "resources": {"limits": {"cpu": "1"}},
            "podTemplate": {"labels": {"a": "b"}},
        });
        let values = values.as_object().unwrap();
        let crd = serde_json::to_value(Agent::crd()).unwrap();
        let agent = fields(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]);
        let all: BTreeSet<&str> = agent.keys().map(String::as_str).filter(|name| !ELSEWHERE.contains(name)).collect();
        assert_eq!(values.keys().map(String::as_str).collect::<BTreeSet<_>>(), all);
        for (name, value) in values {
            let field = json!({ name: value });
            let asked = canary(if OWN.contains(&name.as_str()) { field.clone() } else { json!({ "overrides": field }) });
            assert_eq!(asked.over(&spec(json!({}))), spec(field.clone()), "{name}");
            assert_eq!(asked.promoted(&spec(json!({}))), spec(field), "{name}");
        }
    }

    #[test]
    fn a_promotion_that_the_schema_would_refuse_is_a_fault_before() {
        for (agent, asked, says) in [
            (json!({}), json!({}), None),
            (json!({}), json!({"modelType": "openai"}), Some("canary.modelId: ")),
            (json!({}), json!({"modelType": "openai", "modelId": "m"}), None),
            (json!({"modelType": "openai", "modelId": "m"}), json!({"modelId": "stub-echo"}), Some("canary.modelId: ")),
            (json!({}), json!({"overrides": {"modelIntegration": "llm"}}), Some("canary.overrides.modelIntegration: ")),
            (json!({"modelType": "openai", "modelId": "m"}), json!({"overrides": {"modelIntegration": "llm"}}), None),
            (json!({"modelType": "openai", "modelId": "m", "modelIntegration": "llm"}), json!({"modelType": "ollama"}), None),
            (json!({}), json!({"overrides": {"strategy": "custom"}}), Some("canary.image: ")),
            (json!({"image": "i"}), json!({"overrides": {"strategy": "custom"}}), None),
            (json!({}), json!({"overrides": {"databaseCredentialsSecret": "s"}}), Some("canary.overrides.databaseCredentialsSecret: ")),
            (json!({"databaseUrl": "postgres://db/a"}), json!({"overrides": {"databaseCredentialsSecret": "s"}}), None),
            (json!({}), json!({"overrides": {"suggestions": "[]"}}), Some("canary.overrides.suggestionsProvider: ")),
            (json!({"suggestionsProvider": "static"}), json!({"overrides": {"suggestions": "[]"}}), None),
            (json!({"expose": "gateway"}), json!({"overrides": {"access": "platform"}}), Some("canary.overrides.access: ")),
        ] {
            let fault = canary(asked.clone()).fault(&spec(agent.clone()));
            assert_eq!(fault.is_some(), says.is_some(), "{agent} {asked}: {fault:?}");
            assert!(fault.unwrap_or_default().starts_with(says.unwrap_or_default()), "{agent} {asked}: {fault:?}");
        }
    }
}
