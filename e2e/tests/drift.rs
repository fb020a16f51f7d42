//! Whatever somebody does to a child is put back at once, and what is not ours is left alone.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Team, settings, until};

/// Well below the 30 s of the periodic look.
const AT_ONCE: u64 = 10;

/// A child with everything that was decided about it.
struct Child<'a> {
    team: &'a Team,
    object: &'static str,
    before: Value,
}

impl<'a> Child<'a> {
    #[track_caller]
    fn new(team: &'a Team, object: &'static str) -> Self {
        let before = settings(&team.get(object));
        assert!(before["metadata"].is_object(), "{object} should exist");
        Self { team, object, before }
    }

    /// Waits until the child is as it was before `line` was run.
    #[track_caller]
    fn repaired_after(&self, line: &str, patch: Option<&Value>) {
        let (kind, name) = self.object.split_once('/').unwrap();
        let touched = self.team.get(self.object)["metadata"]["uid"].clone();
        let call = self.team.kubectl(format!("{line} {}", self.object));
        patch.map_or(call.clone(), |patch| call.arg("-p").arg(patch)).ok();
        let deleted = line.starts_with("delete");
        until(&format!("{kind} -n {} --field-selector metadata.name={name}", self.team.namespace), AT_ONCE, |objects| {
            let found = objects.first().ok_or(format!("{} should be made anew", self.object))?;
            let now = settings(found);
            match (deleted && found["metadata"]["uid"] == touched, differences(&self.before, &now)) {
                (false, None) => Ok(()),
                (true, _) => Err(format!("{} should be another object", self.object)),
                (_, Some(what)) => {
                    Err(format!("{} should be as it was before kubectl {line} {}: {what}", self.object, patch.unwrap_or(&Value::Null)))
                }
            }
        });
    }
}

fn differences(before: &Value, now: &Value) -> Option<String> {
    (before != now).then(|| format!("expected {before}, got {now}"))
}

const JSON: &str = "patch --type=json";
const MERGE: &str = "patch --type=merge";
const STRATEGIC: &str = "patch --type=strategic";

fn running(team: &Team) -> Agent<'_> {
    let agent = team.agent("hello", &json!({"systemPrompt": "hi", "gcpServiceAccount": "hello@project.example"}));
    agent.ready();
    agent
}

fn team(test: &str) -> Team {
    Team::with(test, &json!({"gcpServiceAccounts": ["hello@project.example"]}))
}

/// By who may write it at all.
#[test]
fn the_file_of_policies() {
    let team = team("drift-policies");
    until(&format!("teams --field-selector metadata.name={}", team.slug), 20, |teams| {
        let made = &teams[0]["status"]["defaultPolicies"];
        if made.is_array() { Ok(()) } else { Err("the defaults should be made".to_owned()) }
    });
    let child = Child::new(&team, "configmap/slipway-policies");
    let none = r#"{"policies":[],"default":[],"required":[]}"#;
    child.repaired_after(MERGE, Some(&json!({"data": {"policies.json": none}})));
    child.repaired_after(MERGE, Some(&json!({"data": {"more": "1"}})));
    child.repaired_after(MERGE, Some(&json!({"data": null})));
    child.repaired_after("delete", None);
}

#[test]
fn the_config_map() {
    let team = team("drift-config");
    let agent = running(&team);
    let child = Child::new(&team, "configmap/hello-config");
    child.repaired_after(MERGE, Some(&json!({"data": {"RUNTIME_SYSTEM_PROMPT": "do harm"}})));
    child.repaired_after(MERGE, Some(&json!({"data": {"EXTRA": "1"}})));
    child.repaired_after(MERGE, Some(&json!({"data": {"RUNTIME_TRACK": null}})));
    child.repaired_after(MERGE, Some(&json!({"binaryData": {"EXTRA": "AAAA"}})));
    child.repaired_after(MERGE, Some(&json!({"metadata": {"labels": {"agents.slipway.dev/agent": "other"}}})));
    child.repaired_after(MERGE, Some(&json!({"data": null})));
    child.repaired_after(MERGE, Some(&json!({"immutable": true})));
    child.repaired_after(MERGE, Some(&json!({"metadata": {"ownerReferences": null}})));
    let told = team.kubectl("get events --field-selector reason=Repaired,involvedObject.name=hello").json();
    assert!(told.to_string().contains("ConfigMap hello-config"), "who looks after the agent is told: {told}");
    child.repaired_after("delete", None);
    agent.ready();
}

#[test]
fn the_deployment() {
    let team = team("drift-deployment");
    let agent = running(&team);
    let child = Child::new(&team, "deployment/hello");
    let container = |fields: Value| {
        let mut container = json!({"name": "agent"});
        container.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
        json!({"spec": {"template": {"spec": {"containers": [container]}}}})
    };
    child.repaired_after(STRATEGIC, Some(&container(json!({"env": [{"name": "EXTRA", "value": "1"}]}))));
    child.repaired_after(STRATEGIC, Some(&container(json!({"image": "example.com/other:1"}))));
    child.repaired_after(STRATEGIC, Some(&container(json!({"livenessProbe": null}))));
    child.repaired_after(STRATEGIC, Some(&container(json!({"readinessProbe": {"periodSeconds": 60}}))));
    child.repaired_after(STRATEGIC, Some(&container(json!({"resources": {"limits": {"memory": "1Gi"}}}))));
    child.repaired_after(STRATEGIC, Some(&container(json!({"securityContext": {"readOnlyRootFilesystem": false}}))));
    let more = json!([{"op": "add", "path": "/spec/template/spec/containers/0/envFrom/-", "value": {"secretRef": {"name": "other"}}}]);
    child.repaired_after(JSON, Some(&more));
    child.repaired_after(MERGE, Some(&json!({"spec": {"template": {"spec": {"automountServiceAccountToken": true}}}})));
    child.repaired_after(MERGE, Some(&json!({"spec": {"template": {"spec": {"serviceAccountName": "default"}}}})));
    child.repaired_after(MERGE, Some(&json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}})));
    child.repaired_after(MERGE, Some(&json!({"spec": {"template": {"spec": {"hostNetwork": true}}}})));
    let more =
        json!([{"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "extra", "image": "example.com/extra:1"}}]);
    child.repaired_after(JSON, Some(&more));
    child.repaired_after(MERGE, Some(&json!({"metadata": {"ownerReferences": null}})));
    child.repaired_after("scale --replicas=3", None);
    child.repaired_after(MERGE, Some(&json!({"spec": {"paused": true}})));
    child.repaired_after("delete --cascade=background", None);
    agent.ready();
}

#[test]
fn the_service() {
    let team = team("drift-service");
    let agent = running(&team);
    let child = Child::new(&team, "service/hello");
    child.repaired_after(JSON, Some(&json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 9000}])));
    child.repaired_after(JSON, Some(&json!([{"op": "add", "path": "/spec/ports/-", "value": {"name": "extra", "port": 9000}}])));
    child.repaired_after(MERGE, Some(&json!({"spec": {"selector": {"agents.slipway.dev/track": "canary"}}})));
    child.repaired_after(MERGE, Some(&json!({"spec": {"selector": {"extra": "label"}}})));
    child.repaired_after(MERGE, Some(&json!({"spec": {"type": "NodePort"}})));
    child.repaired_after(MERGE, Some(&json!({"metadata": {"labels": {"app.kubernetes.io/name": "other"}}})));
    child.repaired_after(MERGE, Some(&json!({"metadata": {"ownerReferences": null}})));
    let address = agent.service()["spec"]["clusterIP"].clone();
    team.kubectl("delete service hello").ok();
    let found = until(&format!("services -n {} --field-selector metadata.name=hello", team.namespace), AT_ONCE, |objects| {
        objects.first().cloned().ok_or("the Service should be made anew".to_owned())
    });
    assert_eq!(found["spec"]["selector"], child.before["spec"]["selector"], "at first {address}, then {}", found["spec"]["clusterIP"]);
    assert!(agent.chat("still there?").contains("still there?"));
}

#[test]
fn the_service_account() {
    let team = team("drift-account");
    running(&team);
    let child = Child::new(&team, "serviceaccount/hello");
    child.repaired_after(MERGE, Some(&json!({"automountServiceAccountToken": true})));
    child.repaired_after(MERGE, Some(&json!({"metadata": {"labels": {"agents.slipway.dev/agent": "other"}}})));
    child.repaired_after("delete", None);
    team.kubectl("annotate --overwrite serviceaccount/hello iam.gke.io/gcp-service-account=root@project.example").ok();
    until(&format!("serviceaccounts -n {} --field-selector metadata.name=hello", team.namespace), AT_ONCE, |objects| {
        let identity = objects.first().map(|account| account["metadata"]["annotations"]["iam.gke.io/gcp-service-account"].clone());
        if identity == Some(json!("hello@project.example")) {
            Ok(())
        } else {
            Err(format!("the identity should be put back, is {identity:?}"))
        }
    });
}

#[test]
fn the_marks_that_roll_pods() {
    let team = team("drift-marks");
    team.secret("agent-env", &json!({"KEY": "value"}));
    let agent = running(&team);
    let annotations = "/spec/template/metadata/annotations";
    let before = agent.deployment().pointer(annotations).cloned();
    for mark in ["agents.slipway.dev/config-hash", "agents.slipway.dev/secrets-hash"] {
        let patch = json!({"spec": {"template": {"metadata": {"annotations": {mark: "0"}}}}});
        team.kubectl("patch deployment hello --type=merge -p").arg(patch).ok();
        agent.deployment_until(&format!("its own {mark}"), AT_ONCE, |deployment| deployment.pointer(annotations).cloned() == before);
    }
}

/// Annotations of others stay, also when something of ours beside them is put back.
#[test]
fn what_others_added_stays() {
    let team = team("drift-foreign");
    let agent = running(&team);
    let patch = json!({
        "metadata": {"annotations": {"example.com/note": "kept"}, "labels": {"example.com/label": "kept"}},
        "spec": {"template": {"metadata": {"annotations": {"sidecar.example.com/injected": "kept"}}}},
    });
    team.kubectl("patch deployment hello --type=merge -p").arg(&patch).ok();
    for child in ["configmap/hello-config", "service/hello"] {
        team.kubectl(format!("annotate {child} example.com/note=kept")).ok();
    }
    team.kubectl("scale deployment hello --replicas=2").ok();
    agent.deployment_until("one replica and the annotations of others", AT_ONCE, |deployment| {
        deployment["spec"]["replicas"] == 1
            && deployment["metadata"]["annotations"]["example.com/note"] == "kept"
            && deployment["metadata"]["labels"]["example.com/label"] == "kept"
            && deployment["spec"]["template"]["metadata"]["annotations"]["sidecar.example.com/injected"] == "kept"
    });
    agent.patch(&json!({"systemPrompt": "another"}));
    agent.until("seen", 20, |_| agent.config()["data"]["RUNTIME_SYSTEM_PROMPT"] == "another");
    agent.ready();
    for child in ["configmap/hello-config", "service/hello", "deployment/hello"] {
        assert_eq!(team.get(child)["metadata"]["annotations"]["example.com/note"], "kept", "{child}");
    }
}

/// The API server writes `0.25Gi` as `256Mi`.
#[test]
fn amounts_that_it_writes_otherwise_are_nobodys_change() {
    let quota = json!({"pods": "20", "requests.cpu": "4000m"});
    let team = Team::with("drift-amounts", &json!({"quota": quota, "containerLimits": {"default": {"memory": "0.5Gi"}}}));
    let agent = team.agent("hello", &json!({"resources": {"requests": {"cpu": "0.05"}, "limits": {"memory": "0.25Gi"}}}));
    agent.ready();
    assert_eq!(agent.deployment()["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"], "256Mi");
    agent.patch(&json!({"systemPrompt": "another"}));
    agent.ready();
    let repairs = team.kubectl("get events --field-selector reason=Repaired").json();
    assert_eq!(repairs["items"], json!([]), "{repairs}");
}
