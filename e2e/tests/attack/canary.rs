//! Attack: by a canary a developer's agent gets what the agent itself would not: a policy of the team left out, a Secret that no agent
//! may read, an identity of the cloud; or its traffic goes to somebody else's pods.

use std::sync::Arc;

use serde_json::{Value, json};
use slipway_e2e::attack::{Installation, Person};
use slipway_e2e::{condition, poll};

/// A team, and a developer of it.
struct Ground {
    slipway: Arc<Installation>,
    namespace: String,
    developer: Person,
}

impl Ground {
    fn of(team: &str) -> Self {
        let slipway = Installation::shared();
        let namespace = slipway.team(team);
        let developer = slipway.member(&format!("{team}-developer"), "slipway-developer", &namespace);
        Self { slipway, namespace, developer }
    }

    /// An Agent of the developer with such a canary.
    fn agent(&self, name: &str, overrides: &Value) {
        let canary = json!({"enabled": true, "weight": 100, "overrides": overrides});
        let spec = json!({"name": name, "framework": "custom", "storage": "memory", "canary": canary});
        let metadata = json!({"name": name, "namespace": self.namespace});
        let whole = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": metadata, "spec": spec});
        poll(10, || {
            let made = self.slipway.kubectl_with(&self.developer.token, "apply -f -").input(&whole).run();
            if made.code == Some(0) { Ok(()) } else { Err(format!("a developer should be able to make it: {made:?}")) }
        });
    }

    /// Null when there is none.
    fn get(&self, object: &str) -> Value {
        self.slipway.kubectl(format!("get {object} -n {} --ignore-not-found", self.namespace)).json()
    }

    /// Once the agent has its own pods on their way, and its canary says why it has none.
    #[track_caller]
    fn says_why(&self, name: &str, reason: &str, words: &str) {
        poll(60, || {
            let agent = self.get(&format!("agent/{name}"));
            let ready = condition(&agent, "CanaryReady");
            let is_told = ready["status"] == "False" && ready["reason"] == reason;
            let has_pods = !self.get(&format!("deployment/{name}")).is_null();
            if is_told && has_pods && ready["message"].as_str().is_some_and(|message| message.contains(words)) {
                Ok(())
            } else {
                Err(format!("{name}: the canary should say {reason}, {words}; Deployment: {has_pods}: {}", agent["status"]))
            }
        });
        assert_eq!(self.get(&format!("agent/{name}"))["status"]["canary"]["weight"].as_i64().unwrap_or_default(), 0);
        assert!(self.get(&format!("deployment/{name}-canary")).is_null(), "{name}: there are no pods of the canary");
    }
}

#[test]
fn a_canary_sheds_no_policy_that_its_team_requires() {
    let ground = Ground::of("required");
    let Ground { slipway, namespace, .. } = &ground;
    let rule = json!({"type": "max_tokens", "operator": "lt", "value": "4096"});
    let spec = json!({"name": "Tokens", "severity": "critical", "rules": [rule]});
    let metadata = json!({"name": "tokens", "namespace": namespace});
    slipway.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "GuardrailPolicy", "metadata": metadata, "spec": spec}));
    let spec = json!({"name": "required", "requiredPolicies": ["tokens"]});
    slipway.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "metadata": {"name": "required"}, "spec": spec}));
    poll(60, || {
        let file = ground.get("configmap/slipway-policies")["data"]["policies.json"].as_str().unwrap_or_default().to_owned();
        let file: Value = serde_json::from_str(&file).unwrap_or_default();
        if file["required"] == json!(["gp_tokens"]) { Ok(()) } else { Err(format!("the team should require it: {file}")) }
    });
    ground.agent("helper", &json!({"governance": {"policies": [], "guards": []}}));
    // Pods read what is required in the team's file, whatever their agent names.
    let mounts = |name: &str| -> Vec<Value> {
        let pod = ground.get(&format!("deployment/{name}"))["spec"]["template"]["spec"].clone();
        let volumes = pod["volumes"].as_array().cloned().unwrap_or_default();
        volumes.into_iter().filter(|volume| volume["configMap"]["name"] == "slipway-policies").collect()
    };
    poll(60, || match (mounts("helper"), mounts("helper-canary")) {
        (stable, canary) if stable.len() == 1 && stable == canary => Ok(()),
        others => Err(format!("both should mount the team's policies: {others:?}")),
    });
}

#[test]
fn a_canary_has_no_secret_and_no_identity_beyond_its_agents() {
    let ground = Ground::of("closed");
    let metadata = json!({"name": "closed", "namespace": ground.namespace});
    ground.slipway.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"KEY": "value"}}));
    for (name, overrides, reason, words) in [
        ("variables", json!({"envSecrets": ["closed"]}), "SecretNotAllowed", "closed"),
        ("credential", json!({"credentialSecret": "closed"}), "SecretNotAllowed", "closed"),
        ("identity", json!({"gcpServiceAccount": "boss@project.example"}), "ServiceAccountNotAllowed", "boss@project.example"),
    ] {
        ground.agent(name, &overrides);
        ground.says_why(name, reason, words);
    }
}

/// A user who may write Services was there first, under the names that a canary's Services have.
#[test]
fn services_of_others_are_not_taken_for_a_canarys() {
    let ground = Ground::of("aside");
    let spec = json!({"selector": {"app": "somebody-elses"}, "ports": [{"port": 8000}]});
    for (agent, name) in [("one", "one-primary"), ("two", "two-canary")] {
        let metadata = json!({"name": name, "namespace": ground.namespace});
        ground.slipway.apply(&json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}));
        let service = format!("service/{name}");
        let before = ground.get(&service);
        ground.agent(agent, &json!({}));
        poll(60, || {
            let found = ground.get(&format!("agent/{agent}"));
            let ready = condition(&found, "CanaryReady");
            let is_told = ready["reason"] == "NameTaken" && ready["message"].as_str().is_some_and(|message| message.contains(name));
            if is_told && ready["status"] == "False" { Ok(()) } else { Err(format!("the name is taken: {}", found["status"])) }
        });
        assert_eq!(ground.get(&format!("agent/{agent}"))["status"]["canary"]["weight"].as_i64().unwrap_or_default(), 0);
        // By name: what it has is what the agent has, so that it would count as promoted, for which no pods come here.
        let end = json!({"metadata": {"annotations": {"agents.slipway.dev/canary-action": "rollback"}}, "spec": {"canary": null}});
        ground
            .slipway
            .kubectl_with(&ground.developer.token, format!("patch agent {agent} -n {} --type=merge -p", ground.namespace))
            .arg(&end)
            .ok();
        poll(60, || {
            let found = ground.get(&format!("agent/{agent}"));
            if found["status"]["canary"].is_null() { Ok(()) } else { Err(format!("the canary should end: {}", found["status"])) }
        });
        // Its own children have gone, those of others have not.
        poll(60, || {
            let left = ground.get(&format!("deployment/{agent}-canary"));
            if left.is_null() { Ok(()) } else { Err(format!("{agent}-canary should go: {}", left["metadata"])) }
        });
        let after = ground.get(&service);
        assert_eq!((&after["metadata"]["uid"], &after["spec"]), (&before["metadata"]["uid"], &before["spec"]), "{name}");
    }
}
