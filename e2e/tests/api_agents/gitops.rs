//! Agents whose spec belongs to Flux or Argo CD: applied as these do, with their field managers, labels and annotations.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Team};

/// A manifest as it comes out of a repository, with what the tool adds to it.
fn manifest(name: &str, more: &Value, suspend: bool) -> Value {
    let mut metadata = json!({"name": name});
    for (field, value) in more.as_object().into_iter().flatten() {
        metadata[field] = value.clone();
    }
    let spec = json!({"name": name, "framework": "custom", "replicas": 1, "suspend": suspend});
    json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": metadata, "spec": spec})
}

fn apply(team: &Team, manager: &str, manifest: &Value) {
    team.kubectl(format!("apply --server-side --force-conflicts --field-manager={manager} -f -")).input(manifest).ok();
}

fn annotation<'a>(agent: &'a Value, name: &str) -> &'a Value {
    &agent["metadata"]["annotations"][format!("agents.slipway.dev/{name}")]
}

#[test]
fn a_spec_that_gitops_owns_is_left_to_its_owner() {
    let team = Team::new("api-gitops");
    let api = Api::of(&team);
    let flux = json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "bots", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}});
    let argo = json!({"annotations": {"argocd.argoproj.io/tracking-id": format!("bots:agents.slipway.dev/Agent:{}/argo", team.namespace)}});
    for (name, manager, more, owner) in [
        ("flux", "kustomize-controller", &flux, "Flux Kustomization flux-system/bots"),
        ("helm", "helm-controller", &json!({}), "Flux (helm-controller)"),
        ("argo", "argocd-controller", &argo, "Argo CD application bots"),
        ("quiet", "argocd-controller", &json!({}), "Argo CD (argocd-controller)"),
    ] {
        let source = manifest(name, more, false);
        apply(&team, manager, &source);
        let spec = team.get(&format!("agent/{name}"))["spec"].clone();
        for (method, path, body) in [
            ("PATCH", "/config", json!({"description": "REST's"})),
            ("PUT", "/skills", json!({"skills": ["one"]})),
            ("DELETE", "", json!({})),
        ] {
            let refused = api.call(method, &format!("/agents/{name}{path}")).json(&body).send();
            assert_eq!(refused.status, 409, "{method} {path}: {refused:?}");
            assert!(refused.body.contains(&format!("agent {name} belongs to {owner}")), "{refused:?}");
        }
        let act = |action: &str| api.call("POST", &format!("/agents/{name}/{action}")).expect(200);
        let live = || team.get(&format!("agent/{name}"));
        assert_eq!(act("stop")["data"]["status"], "created", "it was never ready before");
        assert_eq!(annotation(&live(), "suspend"), "true");
        // The tool comes by again, and what it applies leaves the annotation alone.
        apply(&team, manager, &source);
        assert_eq!((annotation(&live(), "suspend"), &live()["spec"]), (&json!("true"), &spec), "{name}");
        assert_eq!(act("deploy")["action"], "deployed");
        assert_eq!(annotation(&live(), "suspend"), &Value::Null);
        assert_eq!(act("restart")["action"], "restarted");
        assert!(annotation(&live(), "restarted-at").is_string());
        let archived = api.call("PATCH", &format!("/agents/{name}/status")).json(&json!({"status": "archived"})).expect(200);
        assert_eq!(archived["data"]["status"], "archived");
        assert_eq!(live()["spec"], spec, "the spec was never written to");
    }
    // One that Git suspends is started by annotation.
    apply(&team, "kustomize-controller", &manifest("asleep", &flux, true));
    api.call("POST", "/agents/asleep/deploy").expect(200);
    let live = team.get("agent/asleep");
    assert_eq!((annotation(&live, "suspend"), &live["spec"]["suspend"]), (&json!("false"), &json!(true)));
    // Whom Flux was told to leave alone belongs to nobody.
    let alone = json!({"labels": flux["labels"], "annotations": {"kustomize.toolkit.fluxcd.io/reconcile": "disabled"}});
    apply(&team, "kustomize-controller", &manifest("alone", &alone, true));
    api.call("PATCH", "/agents/alone/config").json(&json!({"description": "REST's"})).expect(200);
}

#[test]
fn annotations_stop_start_restart_and_archive_the_pods() {
    let team = Team::new("api-annotations");
    let agent = Agent { team: &team, name: "helper".to_owned() };
    apply(&team, "kustomize-controller", &manifest("helper", &json!({}), false));
    agent.ready();
    let first = agent.deployment();
    let annotate = |text: &str| agent.kubectl("annotate --overwrite").arg(format!("agents.slipway.dev/{text}")).ok();
    let replicas =
        |wanted: i64| agent.deployment_until(&format!("{wanted} replicas"), 30, |deployment| deployment["spec"]["replicas"] == wanted);
    annotate("suspend=true");
    replicas(0);
    agent.until("stopped", 60, |agent| agent["status"]["phase"] == "Terminated");
    annotate("suspend-");
    let back = replicas(1);
    assert_eq!(back["spec"]["template"], first["spec"]["template"], "stopping and starting leave the template as it was");
    annotate("archived=true");
    replicas(0);
    annotate("archived-");
    replicas(1);
    agent.ready();
    annotate("restarted-at=noon");
    let restarted = agent.deployment_until("the restart in its pods' template", 30, |deployment| {
        deployment["spec"]["template"]["metadata"]["annotations"]["agents.slipway.dev/restarted-at"] == "noon"
    });
    assert_ne!(restarted["spec"]["template"], first["spec"]["template"]);
    agent.until("restarted", 60, |agent| agent["status"]["restartedAt"] == "noon");
    agent.ready();
}
