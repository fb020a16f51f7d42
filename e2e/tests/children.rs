//! What the operator makes of an Agent, field by field as the specification has it.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use slipway_e2e::{Agent, Second, Team, assert_holds, condition, platform, poll};

fn labels(agent: &Agent) -> Value {
    json!({
        "app.kubernetes.io/name": agent.name,
        "app.kubernetes.io/part-of": "slipway",
        "app.kubernetes.io/managed-by": "slipway-manager",
        "agents.slipway.dev/agent": agent.name,
        "agents.slipway.dev/track": "stable",
        "agents.slipway.dev/framework": "custom",
    })
}

fn selector(agent: &Agent) -> Value {
    json!({"app.kubernetes.io/name": agent.name, "agents.slipway.dev/agent": agent.name, "agents.slipway.dev/track": "stable"})
}

fn storage() -> &'static str {
    if platform::has_database() { "postgresql" } else { "memory" }
}

#[test]
fn the_smallest_agents_variables() {
    let team = Team::new("variables");
    let agent = team.agent("hello", &json!({}));
    let id = agent.until("known", 20, |agent| agent["status"]["id"].is_string())["status"]["id"].clone();
    agent.deployment_until("been made", 10, |_| true);
    let config = agent.config();
    assert_holds("the ConfigMap's metadata", &json!({"labels": labels(&agent)}), &config["metadata"]);
    let key = config["data"]["RUNTIME_CONTROL_PUBLIC_KEY"].as_str().unwrap_or_default();
    assert!(key.len() == 44 && key.ends_with('='), "an Ed25519 key has 32 bytes, in base 64: {key:?}");
    let mut expected = json!({
        "RUNTIME_CHANNEL": "rest",
        "RUNTIME_STRATEGY": "simple",
        "RUNTIME_MODEL_TYPE": "stub",
        "RUNTIME_MODEL_ID": "stub-echo",
        "RUNTIME_STORAGE": storage(),
        "RUNTIME_AGENT_ID": id,
        "RUNTIME_AGENT_NAME": "hello",
        "RUNTIME_TEAM": format!("tk_{}", team.slug),
        "RUNTIME_TRACK": "stable",
        "RUNTIME_CONTROL_PUBLIC_KEY": key,
    });
    // What the chart's values say of the platform, and nothing where they are silent.
    let told = [
        ("RUNTIME_EMBEDDING_MODEL", "SLIPWAY_EMBEDDING_MODEL"),
        ("RUNTIME_PLATFORM_URL", "SLIPWAY_PLATFORM_URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "SLIPWAY_OTLP_ENDPOINT"),
        ("RUNTIME_MLFLOW_URI", "SLIPWAY_MLFLOW_URI"),
        ("OLLAMA_BASE_URL", "OLLAMA_BASE_URL"),
        ("RUNTIME_EGRESS_ALLOW", "SLIPWAY_EGRESS_ALLOW"),
        ("RUNTIME_EGRESS_PROXY", "SLIPWAY_EGRESS_PROXY"),
        ("RUNTIME_SEARCH_URL", "SLIPWAY_SEARCH_URL"),
    ];
    for (variable, setting) in told {
        if platform::setting(setting).is_some() {
            expected[variable] = config["data"][variable].clone();
            assert!(expected[variable].is_string(), "{variable} should be set, as {setting} is");
        }
    }
    if storage() == "postgresql" {
        // Whose login it is, a Secret says.
        expected["RUNTIME_DATABASE_URL"] = config["data"]["RUNTIME_DATABASE_URL"].clone();
        let url = expected["RUNTIME_DATABASE_URL"].as_str().unwrap_or_default();
        assert!(url.starts_with("postgres") && !url.contains('@'), "{url:?}");
    }
    if platform::setting("SLIPWAY_OTLP_ENDPOINT").or_else(|| platform::setting("SLIPWAY_MLFLOW_URI")).is_some() {
        expected["OTEL_RESOURCE_ATTRIBUTES"] = config["data"]["OTEL_RESOURCE_ATTRIBUTES"].clone();
    }
    assert_eq!(config["data"], expected, "each variable is set only when it has a value");
}

#[test]
fn every_variable_under_its_condition() {
    let team = Team::new("conditions");
    let prompt = "Two lines,\nan ümlaut, \"quotes\" and $(NOT_EXPANDED).";
    let spec = json!({
        "strategy": "agent-react", "modelType": "openai", "modelId": "gpt-5", "backgroundModel": "openai:gpt-5-mini",
        "systemPrompt": prompt, "storage": "memory", "databaseUrl": "postgres://db:5433/agents?sslmode=require",
        "suggestionsProvider": "static", "suggestions": "[\"What can you do?\"]", "suspend": true,
    });
    let agent = team.agent("hello", &spec);
    agent.deployment_until("been made", 20, |_| true);
    let host = format!("db.{}.svc.cluster.local", platform::NAMESPACE);
    let expected = json!({
        "RUNTIME_STRATEGY": "agent-react",
        "RUNTIME_MODEL_TYPE": "openai",
        "RUNTIME_MODEL_ID": "gpt-5",
        "RUNTIME_BACKGROUND_MODEL": "openai:gpt-5-mini",
        "RUNTIME_SYSTEM_PROMPT": prompt,
        "RUNTIME_STORAGE": "memory",
        "RUNTIME_DATABASE_URL": format!("postgres://{host}:5433/agents?sslmode=require"),
        "RUNTIME_SUGGESTIONS_PROVIDER": "static",
        "RUNTIME_SUGGESTIONS": "[\"What can you do?\"]",
    });
    assert_holds("the ConfigMap's data", &expected, &agent.config()["data"]);

    // A host with a dot is somebody else's and stays as it is.
    agent.patch(&json!({"databaseUrl": "postgresql://db.example.com/agents", "backgroundModel": ""}));
    agent.until("seen again", 20, |_| agent.config()["data"]["RUNTIME_DATABASE_URL"] == "postgresql://db.example.com/agents");
    let data = agent.config()["data"].clone();
    assert!(data["RUNTIME_BACKGROUND_MODEL"].is_null(), "an empty backgroundModel sets no variable: {data:#}");
    let env = &agent.deployment()["spec"]["template"]["spec"]["containers"][0]["env"];
    let explicit = |name: &str| env.as_array().into_iter().flatten().find(|variable| variable["name"] == name).cloned();
    let path = "metadata.annotations['agents.slipway.dev/run-hash']";
    let hash = explicit("RUNTIME_RUN_HASH").unwrap_or_default();
    assert_eq!(hash["valueFrom"]["fieldRef"]["fieldPath"], path, "{env:#}");
    let policies = explicit("RUNTIME_POLICIES_FILE").unwrap_or_default();
    assert_eq!(policies["value"], "/var/run/slipway/policies/policies.json", "{env:#}");
    let key = explicit("RUNTIME_ACCESS_PUBLIC_KEY").unwrap_or_default();
    assert_eq!(key["value"].as_str().map(str::len), Some(44), "{env:#}");
    for variable in ["RUNTIME_GUARDS", "RUNTIME_POLICIES"] {
        assert!(explicit(variable).is_some_and(|variable| variable["value"].is_null()), "{variable} is empty and set: {env:#}");
    }
    for (variable, setting) in [("RUNTIME_EGRESS_PROXY", "SLIPWAY_EGRESS_PROXY"), ("RUNTIME_SEARCH_URL", "SLIPWAY_SEARCH_URL")] {
        assert_eq!(explicit(variable).is_some(), platform::setting(setting).is_none(), "{variable} is empty where the chart names none");
    }
}

#[test]
fn the_deployment() {
    let team = Team::new("deployment");
    let agent = team.agent("hello", &json!({"version": "1.2", "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}}}));
    let deployment = agent.deployment_until("been made", 20, |_| true);
    let probe = |path: &str, delay, period| json!({"httpGet": {"path": path, "scheme": "HTTP"}, "initialDelaySeconds": delay, "periodSeconds": period});
    let container = json!({
        "name": "agent",
        "image": platform::runtime_image(),
        "imagePullPolicy": if platform::runtime_image().contains('/') { "IfNotPresent" } else { "Never" },
        "ports": [{"containerPort": 8000}, {"containerPort": 8001}],
        "envFrom": [{"secretRef": {"name": "agent-env", "optional": true}}, {"configMapRef": {"name": "hello-config"}}],
        "livenessProbe": probe("/healthz", 5, 10),
        "readinessProbe": probe("/readyz", 3, 5),
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"}, {"name": "policies", "mountPath": "/var/run/slipway/policies", "readOnly": true},
        ],
    });
    let template_labels = {
        let mut all = labels(&agent);
        all["version"] = json!("stable");
        all["app.kubernetes.io/version"] = json!("1.2");
        all
    };
    let expected = json!({
        "metadata": {"labels": labels(&agent)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": selector(&agent)},
            "template": {
                "metadata": {"labels": template_labels},
                "spec": {
                    "automountServiceAccountToken": false,
                    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                    "terminationGracePeriodSeconds": 30,
                    "containers": [container],
                    "volumes": [
                        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
                        {"name": "policies", "configMap": {"name": "slipway-policies", "optional": null}},
                    ],
                },
            },
        },
    });
    assert_holds("the Deployment", &expected, &deployment);
    let pod = &deployment["spec"]["template"]["spec"];
    assert!(
        pod["securityContext"]["runAsUser"].is_null() && pod["containers"][0]["securityContext"]["runAsUser"].is_null(),
        "no fixed user"
    );
    assert!(pod["containers"][0]["startupProbe"].is_null(), "the platform's own image starts at once");
    assert_eq!(deployment["spec"]["selector"]["matchLabels"].as_object().unwrap().len(), 3, "the selector can never change");
    let hash = &deployment["spec"]["template"]["metadata"]["annotations"]["agents.slipway.dev/config-hash"];
    // Of the data, as JSON with sorted keys: anybody can compute it.
    let data = agent.config()["data"].clone();
    assert_eq!(*hash, json!(hex::encode(Sha256::digest(data.to_string()))));
    let run = &deployment["spec"]["template"]["metadata"]["annotations"]["agents.slipway.dev/run-hash"];
    assert!(run.as_str().is_some_and(|hash| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit())), "run-hash: {run}");
    let seen = agent.until("known by it", 10, |agent| agent["status"]["runHash"] == *run);
    assert!(seen.is_object());
}

#[test]
fn settings_of_the_pods() {
    let team = Team::new("podtemplate");
    let spec = json!({
        "replicas": 3, "suspend": true, "image": "no-slash:1",
        "podTemplate": {
            "labels": {"cost-center": "hospitality"},
            "annotations": {"example.com/contact": "desk"},
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}}]}},
            "priorityClassName": "system-cluster-critical",
            "imagePullSecrets": [{"name": "registry"}],
            "runtimeClassName": "sandboxed",
        },
    });
    let agent = team.agent("hello", &spec);
    let deployment = agent.deployment_until("been made", 20, |_| true);
    let settings = &spec["podTemplate"];
    let expected = json!({
        "metadata": {"labels": {"cost-center": "hospitality"}, "annotations": {"example.com/contact": "desk"}},
        "spec": {
            "nodeSelector": settings["nodeSelector"],
            "tolerations": settings["tolerations"],
            "affinity": settings["affinity"],
            "priorityClassName": settings["priorityClassName"],
            "imagePullSecrets": settings["imagePullSecrets"],
            "runtimeClassName": settings["runtimeClassName"],
            "topologySpreadConstraints": [{"maxSkew": 1, "labelSelector": {"matchLabels": selector(&agent)}}],
            "containers": [{
                "image": "no-slash:1", "imagePullPolicy": "Never",
                "startupProbe": {"httpGet": {"path": "/healthz"}, "periodSeconds": 5, "failureThreshold": 36},
                "readinessProbe": {"httpGet": {"path": "/healthz"}},
            }],
        },
    });
    assert_holds("the pod template", &expected, &deployment["spec"]["template"]);
    assert_eq!(deployment["spec"]["replicas"], 0, "suspended");
}

#[test]
fn the_service() {
    let team = Team::new("service");
    let agent = team.agent("hello", &json!({"suspend": true}));
    agent.until("suspended", 20, |agent| agent["status"]["phase"] == "Terminated");
    let port = |port| json!({"port": port, "protocol": "TCP"});
    let expected = json!({
        "metadata": {"labels": labels(&agent)},
        "spec": {"type": "ClusterIP", "selector": selector(&agent), "ports": [port(8000), port(8001)]},
    });
    assert_holds("the Service", &expected, &agent.service());
    assert_eq!(agent.service()["spec"]["selector"], selector(&agent), "nothing but the stable track");
}

#[test]
fn a_service_account_only_for_a_cloud_identity() {
    let team = Team::with("identity", &json!({"gcpServiceAccounts": ["hello@project.example"]}));
    let agent = team.agent("hello", &json!({"gcpServiceAccount": "hello@project.example", "suspend": true}));
    let deployment = agent.deployment_until("been made", 20, |_| true);
    let account = team.get("serviceaccount/hello");
    let annotations = json!({"iam.gke.io/gcp-service-account": "hello@project.example"});
    let expected = json!({"metadata": {"labels": labels(&agent), "annotations": annotations}, "automountServiceAccountToken": false});
    assert_holds("the ServiceAccount", &expected, &account);
    assert_eq!(deployment["spec"]["template"]["spec"]["serviceAccountName"], "hello");

    agent.patch(&json!({"gcpServiceAccount": null}));
    team.kubectl("wait serviceaccount/hello --for=delete --timeout=20s").ok();
    agent.deployment_until("no account of its own", 10, |deployment| {
        deployment["spec"]["template"]["spec"]["serviceAccountName"] != "hello"
    });
}

#[test]
fn credentials_are_mounted_as_files() {
    let team = Team::new("credentials");
    team.secret("cloud", &json!({"key.json": "{}"}));
    let agent = team.agent("hello", &json!({"credentialSecret": "cloud"}));
    let deployment = agent.deployment_until("been made", 20, |_| true);
    let pod = &deployment["spec"]["template"]["spec"];
    let mount = json!({"name": "credentials", "mountPath": "/var/run/slipway/credentials", "readOnly": true});
    let variable = json!({"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/var/run/slipway/credentials/key.json"});
    let env = pod["containers"][0]["env"].as_array().cloned().unwrap_or_default();
    assert!(env.contains(&variable), "{variable} should be in {env:?}");
    let expected = json!({
        "volumeMounts": [{"name": "tmp"}, {"name": "policies"}, mount],
    });
    assert_holds("the container", &expected, &pod["containers"][0]);
    let expected = json!([{"name": "tmp"}, {"name": "policies"}, {"name": "credentials", "secret": {"secretName": "cloud"}}]);
    assert_holds("the volumes", &expected, &pod["volumes"]);
    agent.ready();
}

/// On an API server where nobody collects garbage, so that it stays until the test takes it away.
#[test]
fn what_an_earlier_agent_of_the_name_left_is_waited_for() {
    let (cluster, _operator) = Second::operated("heirs", &[]);
    let agent =
        json!({"kind": "Agent", "metadata": {"name": "hello", "namespace": "team-heirs"}, "spec": {"name": "H", "framework": "custom"}});
    let owner = |object: &str| {
        let found = cluster.kubectl(&format!("get {object} -n team-heirs --ignore-not-found")).json();
        found["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default().to_owned()
    };
    cluster.apply(&agent);
    poll(20, || if owner("service/hello").is_empty() { Err("it should be made".to_owned()) } else { Ok(()) });
    let before = owner("deployment/hello");
    cluster.kubectl("delete agent hello -n team-heirs").ok();
    cluster.apply(&agent);
    poll(20, || {
        let agent = cluster.kubectl("get agent hello -n team-heirs").json();
        let (ready, stalled) = (condition(&agent, "Ready"), condition(&agent, "Stalled"));
        let said = ready["message"].as_str().is_some_and(|message| message.contains("of an earlier Agent of this name"));
        if said && stalled["status"] == "False" { Ok(()) } else { Err(format!("it should wait: {agent:#}")) }
    });
    cluster.kubectl("delete configmap,deployment,service -n team-heirs -l agents.slipway.dev/agent=hello").ok();
    poll(20, || {
        let now = owner("deployment/hello");
        if now.is_empty() || now == before { Err("it should have a Deployment of its own".to_owned()) } else { Ok(()) }
    });
}
