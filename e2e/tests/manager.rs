//! The manager's pods: healthy, replaceable, and with no more rights than they use.

use serde_json::{Value, json};
use slipway_e2e::{Team, alone, condition, fresh, kubectl, platform, poll, together, until};

#[test]
fn its_pods_are_healthy_and_count() {
    let _turn = together();
    kubectl(format!("wait deployment/{} -n {} --for=condition=Available --timeout=30s", platform::MANAGER, platform::NAMESPACE)).ok();
    assert_eq!(platform::pods().len(), 2);
    for pod in platform::pods() {
        for path in ["/healthz", "/readyz"] {
            let outcome = platform::ask(&pod, path);
            assert_eq!(outcome.code, Some(0), "{pod} {path}: {outcome:?}");
        }
        assert_ne!(platform::ask(&pod, "/no-such-page").code, Some(0));
        let metrics = platform::ask(&pod, "/metrics").stdout;
        let names = [
            "slipway_reconciles_total",
            "slipway_reconcile_duration_seconds_bucket",
            "slipway_queue_depth",
            "slipway_api_requests_total",
            "slipway_leader",
        ];
        for name in names {
            let leads = pod == platform::leader();
            assert!(!leads || !platform::samples(&metrics, name).is_empty(), "{pod}, which leads, should count {name}: {metrics}");
        }
    }
    assert!(kubectl(format!("get poddisruptionbudgets -n {} -o name", platform::NAMESPACE)).ok().contains("slipway-manager"));
}

#[test]
fn its_log_is_json() {
    let _turn = together();
    let logs = platform::logs();
    let lines: Vec<&str> = logs.lines().filter(|line| !line.is_empty()).collect();
    assert!(!lines.is_empty());
    for line in lines {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "not JSON: {line}");
    }
}

#[test]
fn another_pod_takes_over_from_one_that_is_killed() {
    let team = Team::within(alone("kills the leading manager"), "takeover", &json!({}));
    let agent = team.agent("hello", &json!({}));
    agent.ready();
    let pod = agent.pods()[0]["metadata"]["uid"].clone();
    let generation = agent.deployment()["metadata"]["generation"].clone();

    let leader = platform::leader();
    kubectl(format!("delete pod {leader} -n {} --grace-period=0 --force", platform::NAMESPACE)).ok();
    until(&format!("leases -n {} --field-selector metadata.name={}", platform::NAMESPACE, platform::MANAGER), 60, |leases| {
        let holder = leases.first().and_then(|lease| lease["spec"]["holderIdentity"].as_str()).unwrap_or_default();
        if holder.is_empty() || holder.contains(&leader) {
            Err(format!("another pod should lead, the lease is held by {holder:?}"))
        } else {
            Ok(())
        }
    });
    team.kubectl("scale deployment hello --replicas=3").ok();
    agent.deployment_until("one replica again", 45, |deployment| deployment["spec"]["replicas"] == 1);
    agent.patch(&json!({"systemPrompt": "changed"}));
    agent.until("known to the new leader", 20, |_| agent.config()["data"]["RUNTIME_SYSTEM_PROMPT"] == "changed");
    agent.ready();
    // Twice scaled and once changed: the new leader had no changes of its own to make.
    assert_eq!(agent.deployment()["metadata"]["generation"].as_u64().unwrap(), generation.as_u64().unwrap() + 3, "first pod {pod}");
    poll(60, || {
        if platform::pods().iter().all(|pod| platform::ask(pod, "/readyz").code == Some(0)) {
            Ok(())
        } else {
            Err("both pods should be ready".to_owned())
        }
    });
}

#[test]
fn a_restart_changes_nothing() {
    let team = Team::within(
        alone("restarts the installed manager"),
        &fresh("restart"),
        &json!({"quota": {"pods": 5}, "containerLimits": {"default": {"memory": "64Mi"}}}),
    );
    team.tool("clock", &json!({"name": "datetime", "type": "builtin"}));
    let agent = team.agent("hello", &json!({"tools": ["clock"]}));
    agent.ready();
    // Where releases are kept, the first comes a moment later, and is said to run once the agent has said that it does.
    let is_kept = platform::has_state();
    let released = |agent: &Value| condition(agent, "Released")["message"] == "release v1 runs";
    let settled = agent.until("released", 60, |agent| !is_kept || agent["status"]["activeRelease"] == 1 && released(agent));
    // In a team of its own: this one's quota counts what is in its namespace, in its status.
    let beside = team.beside("restart-beside");
    let versions = || -> Vec<String> {
        let list = team
            .kubectl("get configmaps,services,serviceaccounts,secrets,rolebindings,networkpolicies,resourcequotas,limitranges,tools,agents")
            .json();
        let items = list["items"].as_array().unwrap();
        items.iter().map(|item| format!("{} {} {}", item["kind"], item["metadata"]["name"], item["metadata"]["resourceVersion"])).collect()
    };
    let generation = agent.deployment()["metadata"]["generation"].clone();
    let before = versions();
    kubectl(format!("rollout restart deployment {} -n {}", platform::MANAGER, platform::NAMESPACE)).ok();
    kubectl(format!("rollout status deployment {} -n {} --timeout=90s", platform::MANAGER, platform::NAMESPACE)).ok();
    // A change that the new leader makes shows that it has read everything.
    let other = beside.agent("other", &json!({"suspend": true}));
    other.until("suspended", 45, |agent| agent["status"]["phase"] == "Terminated");
    let changed: Vec<String> = versions().into_iter().filter(|version| !before.contains(version)).collect();
    assert!(changed.is_empty(), "a new manager should find everything in order, but changed: {changed:#?}");
    assert_eq!(agent.deployment()["metadata"]["generation"], generation);
    assert_eq!(agent.get()["status"], settled["status"]);
}

/// What an agent costs the API server: one request for each child, and none to ask whether it is there.
#[test]
fn nothing_is_asked_about_before_it_is_made() {
    let team = Team::within(alone("counts what the manager asks for children of agents"), "requests", &json!({}));
    let leader = platform::leader();
    let count = |verb: &str| -> f64 {
        let metrics = platform::ask(&leader, "/metrics").stdout;
        let ours =
            |labels: &str| ["configmaps", "deployments", "services"].iter().any(|kind| labels.contains(&format!("resource=\"{kind}\"")));
        let samples = platform::samples(&metrics, "slipway_api_requests_total");
        samples.iter().filter(|(labels, _)| labels.contains(&format!("verb=\"{verb}\"")) && ours(labels)).map(|(_, value)| value).sum()
    };
    let before = ["GET", "PATCH"].map(count);
    let agent = team.agent("hello", &json!({"suspend": true}));
    agent.until("suspended", 20, |agent| agent["status"]["phase"] == "Terminated");
    let [asked, written] = ["GET", "PATCH"].map(count);
    assert!((asked - before[0]).abs() < f64::EPSILON, "{} were asked about", asked - before[0]);
    assert!((written - before[1] - 3.0).abs() < f64::EPSILON, "{} were written", written - before[1]);
    let children = team.kubectl("get configmap/hello-config deployment/hello service/hello").json();
    for child in children["items"].as_array().unwrap() {
        let managers = team
            .kubectl(format!(
                "get {}/{} --show-managed-fields",
                child["kind"].as_str().unwrap(),
                child["metadata"]["name"].as_str().unwrap()
            ))
            .json();
        let fields = managers["metadata"]["managedFields"].as_array().unwrap().clone();
        assert!(fields.iter().any(|entry| entry["manager"] == "slipway/agent" && entry["operation"] == "Apply"), "{fields:#?}");
    }
}

#[test]
fn its_rights_end_where_its_work_does() {
    let team = Team::new("rights");
    let manager = kubectl(format!("get deployment {} -n {}", platform::MANAGER, platform::NAMESPACE)).json();
    let account = manager["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap().to_owned();
    let user = format!("system:serviceaccount:{}:{account}", platform::NAMESPACE);
    let can = |what: &str| kubectl(format!("auth can-i {what} --as={user}")).run().stdout.trim() == "yes";
    assert!(can(&format!("list secrets -n {}", team.namespace)), "Secrets of a team are its business");
    for what in [
        "list secrets --all-namespaces",
        "list secrets -n kube-system",
        "get secrets -n default",
        &format!("list secrets -n {}", platform::NAMESPACE),
        "create clusterrolebindings",
        "create clusterroles",
        "create pods -n default",
        "create pods/exec -n default",
        "impersonate users",
        "update agents.agents.slipway.dev --all-namespaces",
        "delete agents.agents.slipway.dev --all-namespaces",
        "* *",
    ] {
        assert!(!can(what), "the manager should not be able to {what}");
    }
    // Of what the specification grants it, what it needs, and no more.
    for (what, may) in [
        ("watch agents.agents.slipway.dev", true),
        ("watch tools.agents.slipway.dev", true),
        ("create tools.agents.slipway.dev", false),
        ("patch agents.agents.slipway.dev --subresource=status", true),
        ("update agents.agents.slipway.dev --subresource=status", false),
        ("patch tools.agents.slipway.dev --subresource=status", true),
        ("update agents.agents.slipway.dev --subresource=finalizers", true),
        ("update tools.agents.slipway.dev --subresource=finalizers", false),
        ("create deployments.apps", true),
        ("delete services", true),
        ("patch configmaps", true),
        ("update deployments.apps", false),
    ] {
        assert_eq!(can(&format!("{what} -n {}", team.namespace)), may, "whether the manager may {what}");
    }
    // What its roles allow, admission confines to team namespaces.
    let refusal = kubectl(format!("create configmap e2e-stray -n default --as={user}")).refused();
    assert!(refusal.contains("team-"), "{refusal}");
    let refusal = kubectl(format!("create namespace e2e-stray --as={user}")).refused();
    assert!(refusal.contains("team-"), "{refusal}");
    let binding = format!("create rolebinding e2e-stray --clusterrole=slipway-team-secrets --user=mallory --as={user}");
    team.kubectl(&binding).refused();
    let elsewhere = format!(
        "create rolebinding e2e-stray --clusterrole=slipway-team-secrets --serviceaccount={}:{account} -n kube-system --as={user}",
        platform::NAMESPACE
    );
    kubectl(elsewhere).refused();
}
