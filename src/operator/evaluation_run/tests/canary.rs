//! Runs of a canary: they go to its own pods, and end when it is another one.

use slipway_release::gate;

use super::*;

impl Home {
    /// The agent has a canary with this prompt.
    fn canary(&self, prompt: &str) -> Agent {
        let canary = json!({"enabled": true, "weight": 10, "systemPrompt": prompt});
        let whole = json!({"metadata": {"name": "helper", "namespace": "team-a", "uid": "a"},
            "spec": {"name": "helper", "framework": "custom", "canary": canary}, "status": {"canary": {"phase": "Progressing"}}});
        self.context().caches.agents.insert(Key::new("team-a", "helper"), Guarded(Ok(object(whole.clone()))).into());
        object(whole)
    }

    /// A ready pod of the canary, with the configuration that it has now.
    fn canary_pod(&self, agent: &Agent, address: &str, hash: &str) {
        let (_, config) = crate::agent::on_track(self.context(), agent, Track::Canary).unwrap();
        let pod: ClusterPod = object(json!({
            "metadata": {"name": "helper-canary-1", "namespace": "team-a",
                "labels": {"agents.slipway.dev/agent": "helper", "agents.slipway.dev/track": "canary"},
                "annotations": {"agents.slipway.dev/config-hash": format!("{config:016x}")}},
            "status": {"podIP": address, "conditions": [{"type": "Ready", "status": "True"}]},
        }));
        self.context().caches.pods.seen(&pod);
        let metadata = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": "helper-canary-1", "namespace": "team-a", "annotations": {"agents.slipway.dev/run-hash": hash}}});
        self.cluster.objects.lock().unwrap().insert("pods/helper-canary-1".to_owned(), metadata);
    }
}

#[tokio::test]
async fn a_canary_is_evaluated_in_its_own_pods_until_it_changes() {
    let pod = FakePod::open("127.77.19.33").await;
    let mut home = Home::new("127.77.19.33", &json!({"track": "canary"}));
    let agent = home.canary("new");
    let content = gate::content_key(&crate::agent::canary_artifact(&agent, home.context()).unwrap());
    home.apply(&json!({"content": content}));
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], home.reason().as_str()), (&json!("Pending"), "NoPod"), "the agent's pods are not the canary's");
    assert_eq!(pod.asked("post"), 0);
    home.canary_pod(&agent, "127.77.19.33", "h2");
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], &home.status()["runHash"], pod.asked("post")), (&json!("Running"), &json!("h2"), 1));
    assert_eq!(home.status().get("version"), None, "it is no release");
    home.apply(&json!({}));
    home.canary("newer");
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], home.reason().as_str()), (&json!("Failed"), "ContentChanged"));
    assert_eq!(pod.asked("delete"), 1, "and it ends in the pod");
}

#[tokio::test]
async fn a_run_of_a_canary_that_is_gone_ends() {
    let pod = FakePod::open("127.77.19.34").await;
    let mut home = Home::new("127.77.19.34", &json!({"track": "canary"}));
    home.canary_pod(&home.canary("new"), "127.77.19.34", "h2");
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], pod.asked("post")), (&json!("Running"), 1));
    home.apply(&json!({}));
    home.agent(&json!({}));
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], home.reason().as_str()), (&json!("Failed"), "NoCanary"));
}
