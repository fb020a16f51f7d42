//! A handle on one Agent: changing it, waiting for it, looking at its children.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::api::{Api, Call};
use crate::http::{Reply, http};
use crate::kubectl::Kubectl;
use crate::team::{Team, merge};
use crate::watch::{poll, until};

/// An Agent of a team.
pub struct Agent<'a> {
    pub team: &'a Team,
    pub name: String,
}

impl Agent<'_> {
    /// The smallest manifest, and `spec`.
    pub fn manifest(&self, spec: &Value) -> Value {
        let mut whole = json!({
            "apiVersion": "agents.slipway.dev/v1", "kind": "Agent",
            "metadata": {"name": self.name}, "spec": {"name": self.name, "framework": "custom"},
        });
        merge(&mut whole["spec"], spec);
        whole
    }

    /// A merge patch of the spec.
    #[track_caller]
    pub fn patch(&self, spec: &Value) {
        self.team.kubectl(format!("patch agent {} --type=merge -p", self.name)).arg(json!({"spec": spec})).ok();
    }

    /// `kubectl -n NAMESPACE VERB agent/NAME`, with more to be added.
    pub fn kubectl(&self, verb: &str) -> Kubectl {
        self.team.kubectl(format!("{verb} agent/{}", self.name))
    }

    #[track_caller]
    pub fn get(&self) -> Value {
        self.kubectl("get").json()
    }

    /// Waits until the Agent is as wanted and its status speaks of the present spec.
    #[track_caller]
    pub fn until(&self, what: &str, seconds: u64, want: impl Fn(&Value) -> bool) -> Value {
        until(&format!("agents -n {} --field-selector metadata.name={}", self.team.namespace, self.name), seconds, |objects| match objects
            .iter()
            .find(|agent| agent["status"]["observedGeneration"] == agent["metadata"]["generation"] && want(agent))
        {
            Some(agent) => Ok(agent.clone()),
            None => Err(format!("agent {} should be {what}", self.name)),
        })
    }

    /// Waits for Ready with reason `DeploymentReady`.
    #[track_caller]
    pub fn ready(&self) -> Value {
        self.until("ready", 60, |agent| condition(agent, "Ready")["reason"] == "DeploymentReady")
    }

    /// Waits for Stalled with one of `reasons` and answers the Agent's Ready message.
    #[track_caller]
    pub fn stalled(&self, reasons: &[&str], seconds: u64) -> String {
        let agent = self.until(&format!("stalled because of {reasons:?}"), seconds, |agent| {
            let (ready, stalled) = (condition(agent, "Ready"), condition(agent, "Stalled"));
            let reason = ready["reason"].as_str().unwrap_or_default();
            ready["status"] == "False" && stalled["status"] == "True" && stalled["reason"] == reason && reasons.contains(&reason)
        });
        condition(&agent, "Ready")["message"].as_str().unwrap_or_default().to_owned()
    }

    #[track_caller]
    pub fn deployment(&self) -> Value {
        self.team.get(&format!("deployment/{}", self.name))
    }

    #[track_caller]
    pub fn service(&self) -> Value {
        self.team.get(&format!("service/{}", self.name))
    }

    #[track_caller]
    pub fn config(&self) -> Value {
        self.team.get(&format!("configmap/{}-config", self.name))
    }

    /// Waits until the agent's Deployment is as wanted.
    #[track_caller]
    pub fn deployment_until(&self, what: &str, seconds: u64, want: impl Fn(&Value) -> bool) -> Value {
        until(&format!("deployments -n {} --field-selector metadata.name={}", self.team.namespace, self.name), seconds, |objects| {
            match objects.iter().find(|deployment| want(deployment)) {
                Some(deployment) => Ok(deployment.clone()),
                None => Err(format!("deployment {} should have {what}", self.name)),
            }
        })
    }

    /// Pods that run and are not on their way out.
    #[track_caller]
    pub fn pods(&self) -> Vec<Value> {
        let list = self.team.kubectl(format!("get pods -l agents.slipway.dev/agent={}", self.name)).json();
        list["items"].as_array().into_iter().flatten().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).cloned().collect()
    }

    /// A chat message; the answer's `output`.
    #[track_caller]
    pub fn chat(&self, message: &str) -> String {
        let reply = self.post("/chat", &json!({"message": message}));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["output"].as_str().unwrap_or_else(|| panic!("no output in {reply:?}")).to_owned()
    }

    /// The same by the agent's own Service, for who makes it again and again; not made yet.
    #[track_caller]
    pub fn chat_call(&self, message: &str) -> Call {
        let ip = self.service()["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        let address = format!("{ip}:8000").parse().unwrap_or_else(|e| panic!("{ip:?} is no address: {e}"));
        Api::at(address).whole("POST", "/chat").json(&json!({"message": message}))
    }

    /// A POST to the agent's Service. A Service may need a moment after its pod is ready.
    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        poll(10, || {
            http(&self.team.namespace, &self.name, 8000, path, Some(body)).map_err(|e| format!("POST {path} of {}: {e}", self.name))
        })
    }
}

/// The condition of that type, null when there is none.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    object["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

/// A name that no agent ever had: releases outlive agent and team, and an agent of the same name goes on with their numbers.
pub fn fresh(name: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{name}-{:x}", now.as_millis())
}
