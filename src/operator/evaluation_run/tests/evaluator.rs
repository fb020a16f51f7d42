//! Runs of an agent with an image of its own: its pods are never asked on their control port, and an evaluator comes and goes.

use super::*;
use crate::caches::secret::SecretState;

const AGENT: &str = "127.77.19.51";

impl Home {
    /// The agent has this spec, with an image of its own, and a ready pod of it at an address.
    fn foreign(&self, spec: &Value, address: &str) {
        self.agent(spec);
        let agent = self.context().caches.agents.get(&Key::new("team-a", "helper")).unwrap().agent().unwrap();
        let hash = crate::agent::foreign(self.context(), &agent, Track::Stable).unwrap().run_hash;
        let mut pod = self.agent_pod(address);
        pod.annotations_mut().insert(labels::RUN_HASH.to_owned(), hash);
        self.context().caches.pods.seen(&pod);
    }

    fn job(&self) -> Value {
        self.cluster.objects.lock().unwrap().get(&format!("jobs/evaluate-{RUN}")).cloned().unwrap_or_default()
    }

    /// The Job has a ready pod at an address.
    fn evaluator(&self, address: &str) {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": format!("evaluate-{RUN}"), "uid": "j", "controller": true});
        let pod = json!({"metadata": {"name": "evaluator", "namespace": "team-a", "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "evaluator", "image": "slipway.dev/slipway-runtime:1"}]},
            "status": {"podIP": address, "conditions": [{"type": "Ready", "status": "True"}]}});
        self.cluster
            .objects
            .lock()
            .unwrap()
            .insert("pods".to_owned(), json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod]}));
    }

    /// What the Job has come to.
    fn job_ended(&self, kind: &str) {
        let mut job: Object = object(self.job());
        job.data["status"] =
            json!({"conditions": [{"type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}]});
        let key = Key::new("team-a", format!("evaluate-{RUN}"));
        self.context().caches.children(ChildKind::Job).insert(key, Child::look(&job, None, || None, ""));
    }
}

#[tokio::test]
async fn an_image_of_ones_own_is_evaluated_by_a_pod_that_comes_and_goes() {
    let liar = FakePod::open(AGENT).await;
    let evaluator = FakePod::open("127.77.19.52").await;
    let mut home = Home::new(AGENT, &json!({}));
    home.agent(&json!({"image": "example.com/own:1"}));
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], home.reason().as_str()), (&json!("Pending"), "NoPod"), "its pods run something else");
    home.foreign(&json!({"image": "example.com/own:1"}), AGENT);
    home.reconcile().await;
    assert_eq!(home.reason(), "EvaluatorStarting");
    let job = home.job();
    assert_eq!(
        (&job["metadata"]["ownerReferences"][0]["name"], &job["metadata"]["labels"][labels::EVALUATION]),
        (&json!(RUN), &json!(RUN))
    );
    assert!(job["spec"]["template"]["metadata"]["labels"].get(labels::AGENT).is_none(), "no Service of the agent leads to it");
    home.reconcile().await;
    assert_eq!(evaluator.asked("post"), 0);
    home.evaluator("127.77.19.52");
    home.reconcile().await;
    let agent = home.context().caches.agents.get(&Key::new("team-a", "helper")).unwrap().agent().unwrap();
    let hash = crate::agent::foreign(home.context(), &agent, Track::Stable).unwrap().run_hash;
    assert_eq!((&home.status()["phase"], &home.status()["runHash"]), (&json!("Running"), &json!(hash)));
    assert_eq!(evaluator.requests.lock().unwrap()[0]["target"], format!("http://{AGENT}:8000"));
    // The pod of the agent goes, and another one comes.
    home.foreign(&json!({"image": "example.com/own:1"}), "127.77.19.53");
    home.reconcile().await;
    assert_eq!(*evaluator.turned.lock().unwrap(), [json!({"target": "http://127.77.19.53:8000"})]);
    home.reconcile().await;
    assert_eq!(evaluator.asked("put"), 1, "it is told once");
    // Another manager tells it again, and no evaluator twice.
    home.take_over();
    home.reconcile().await;
    assert_eq!((evaluator.asked("post"), evaluator.asked("put")), (1, 2));
    evaluator.say(ID, report(ID, "completed", &[result(0, "scored", Some(1.0)), result(1, "scored", Some(0.5))]));
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], &home.status()["score"]), (&json!("Completed"), &json!(75.0)));
    home.apply(&json!({}));
    home.reconcile().await;
    assert_eq!(*home.cluster.deleted.lock().unwrap(), [format!("jobs/evaluate-{RUN}")]);
    assert_eq!(*liar.asked.lock().unwrap(), [""; 0], "nothing that it would say is believed");
    let tokens = evaluator.tokens.lock().unwrap();
    assert!(tokens.iter().all(|token| token.ends_with("/evaluator")), "no token for the agent opens it: {tokens:?}");
}

#[tokio::test]
async fn an_evaluator_that_was_killed_is_replaced_and_sent_the_run_again() {
    let (first, second) = (FakePod::open("127.77.19.54").await, FakePod::open("127.77.19.55").await);
    let home = Home::new(AGENT, &json!({}));
    home.foreign(&json!({"image": "example.com/own:1"}), AGENT);
    home.reconcile().await;
    home.evaluator("127.77.19.54");
    home.reconcile().await;
    assert_eq!((&home.status()["phase"], first.asked("post")), (&json!("Running"), 1));
    first.restart();
    home.evaluator("127.77.19.55");
    home.controller.remember(&home.key, |under_way| under_way.place = None);
    home.reconcile().await;
    assert_eq!((second.asked("post"), &home.status()["attempt"], &home.status()["phase"]), (1, &json!(2), &json!("Running")));
    // A pod that was told to end leaves a Job that is complete, and a run that is not.
    home.job_ended("Complete");
    home.reconcile().await;
    assert_eq!((home.reason().as_str(), &home.status()["phase"]), ("EvaluatorStarting", &json!("Running")));
    assert_eq!(*home.cluster.deleted.lock().unwrap(), [format!("jobs/evaluate-{RUN}")]);
}

#[tokio::test]
async fn a_run_ends_with_its_agent_or_its_evaluator() {
    let _evaluator = FakePod::open("127.77.19.56").await;
    let begun = async || {
        let home = Home::new(AGENT, &json!({}));
        home.foreign(&json!({"image": "example.com/own:1"}), AGENT);
        home.reconcile().await;
        home.evaluator("127.77.19.56");
        home.reconcile().await;
        assert_eq!(home.status()["phase"], "Running");
        home
    };
    let changed = begun().await;
    changed.foreign(&json!({"image": "example.com/own:2"}), AGENT);
    changed.reconcile().await;
    assert_eq!((&changed.status()["phase"], changed.reason().as_str()), (&json!("Failed"), "AgentChanged"));
    let failed = begun().await;
    failed.job_ended("Failed");
    failed.reconcile().await;
    assert_eq!((&failed.status()["phase"], failed.reason().as_str()), (&json!("Failed"), "EvaluatorFailed"));
    let mut cancelled = begun().await;
    cancelled.apply(&json!({"cancel": true}));
    cancelled.reconcile().await;
    cancelled.apply(&json!({}));
    cancelled.reconcile().await;
    assert_eq!(cancelled.status()["phase"], "Cancelled");
    assert_eq!(*cancelled.cluster.deleted.lock().unwrap(), [format!("jobs/evaluate-{RUN}")]);
}

#[tokio::test]
async fn an_evaluator_is_confined_and_told_what_it_takes() {
    let home = Home::new(AGENT, &json!({}));
    // A server and a key for the agent's own models, and not for its judge.
    let integration = json!({"metadata": {"name": "llm", "namespace": "team-a"},
        "spec": {"name": "LLM", "openai": {"baseUrl": "https://llm.example/v1"}},
        "status": {"observedGeneration": 1, "credentialKeys": ["api_key"], "origin": "https://llm.example"}});
    home.context().caches.integrations.insert(Key::new("team-a", "llm"), Guarded(Ok(object(integration))));
    let login = SecretState { readable: false, keys: vec!["api_key".to_owned()], origin: None, hash: [0; 32] };
    home.context().caches.secrets.insert(Key::new("team-a", "in-llm"), login);
    let spec = json!({"image": "example.com/own:1", "strategy": "custom", "modelType": "openai", "modelId": "gpt-4o", "modelIntegration": "llm",
        "systemPrompt": "a secret of the trade", "governance": {"guards": ["pii-detection"]},
        "podTemplate": {"labels": {"a": "b"}}, "resources": {"limits": {"memory": "64Gi"}}});
    home.foreign(&spec, AGENT);
    home.reconcile().await;
    let job = home.job();
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!((&pod["automountServiceAccountToken"], &pod["serviceAccountName"]), (&json!(false), &json!("default")));
    assert_eq!((&pod["restartPolicy"], &pod["securityContext"]["runAsNonRoot"]), (&json!("Never"), &json!(true)));
    assert!(job["spec"]["activeDeadlineSeconds"].is_number() && job["spec"]["backoffLimit"].is_number());
    let [container] = &pod["containers"].as_array().unwrap()[..] else { panic!("{pod:#}") };
    assert_eq!(container["image"], "slipway.dev/slipway-runtime:1");
    assert_eq!(
        container["securityContext"],
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
    );
    let env: HashMap<&str, &Value> =
        container["env"].as_array().unwrap().iter().map(|env| (env["name"].as_str().unwrap(), &env["value"])).collect();
    assert_eq!(env.len(), container["env"].as_array().unwrap().len(), "each name once");
    let id = ids::agent("team-a", "helper");
    for (name, value) in [
        ("RUNTIME_EVALUATOR", "true"),
        ("RUNTIME_EVALUATED_MODEL", "openai:gpt-4o"),
        ("RUNTIME_AGENT_ID", &*id),
        ("RUNTIME_TRACK", "stable"),
        ("RUNTIME_STORAGE", "memory"),
        ("RUNTIME_GUARDS", r#"["pii-detection"]"#),
    ] {
        assert_eq!(env[name], value, "{name}");
    }
    // They are there, lest a Secret of the team have them.
    for name in slipway_api::contract::EVALUATOR_UNSET {
        assert!(env[name].is_null(), "{name}");
    }
    let sources = container["envFrom"].as_array().unwrap();
    assert!(sources.iter().all(|source| source["secretRef"].is_object()), "{sources:?}");
    let text = job.to_string();
    for word in ["secret of the trade", "64Gi", "own:1", "llm.example", "in-llm"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
}
