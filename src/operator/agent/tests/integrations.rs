//! Agents whose Tools and models name integrations, gathered from the caches as they are for a reconcile.

use serde_json::json;
use slipway_api::Integration;
use slipway_cluster::Object;

use super::*;
use crate::caches::child::Child;
use crate::context::Context;

const TEAM_NAMESPACE: &str = "team-a";

fn key(name: &str) -> Key {
    Key::new(TEAM_NAMESPACE, name)
}

/// A controller that knows the team's namespace and these documents.
fn controller(yaml: &str) -> Controller {
    let controller = Controller::new(context());
    let caches = &controller.context.caches;
    let namespace: Object =
        serde_json::from_value(json!({"metadata": {"name": TEAM_NAMESPACE, "labels": {"agents.slipway.dev/team": "a"}}})).unwrap();
    caches.children(ChildKind::Namespace).insert(Key::new("", TEAM_NAMESPACE), Child::look(&namespace, None, || None, ""));
    caches.know_secrets_of(TEAM_NAMESPACE);
    know(&controller.context, yaml);
    controller
}

/// The caches hear of these documents.
fn know(context: &Context, yaml: &str) {
    let (caches, documents) = (&context.caches, documents(yaml));
    for team in all::<Team>(&documents, "Team") {
        caches.teams.insert(Key::new("", team.name_any()), Guarded(Ok(team)));
    }
    for agent in all::<Agent>(&documents, "Agent") {
        caches.agents.insert(key(&agent.name_any()), Guarded(Ok(agent)).into());
    }
    for tool in all::<Tool>(&documents, "Tool") {
        caches.tools.insert(key(&tool.name_any()), Guarded(Ok(tool)));
    }
    for integration in all::<Integration>(&documents, "Integration") {
        caches.integrations.insert(key(&integration.name_any()), Guarded(Ok(integration)));
    }
    for secret in all::<Secret>(&documents, "Secret") {
        caches.secrets.insert(key(&secret.name_any()), SecretState::of(&secret, &context.settings.secrets_hash_key));
    }
}

fn resolved(context: &Context, name: &str) -> Resolved {
    let agent = context.caches.agents.get(&key(name)).unwrap().agent().unwrap();
    let workload = tracks::of(&agent, context).unwrap().workloads.remove(0);
    crate::agent::resolved(&agent, &workload, context)
}

fn plan(context: &Context, name: &str) -> Plan {
    match resolved(context, name) {
        Resolved::Plan(plan) => plan,
        Resolved::Fault(fault) => panic!("{name}: {fault:?}"),
        Resolved::Unknown(what) => panic!("{name}: waits for {what}"),
    }
}

/// An Integration as the operator has seen it, with its Secret.
fn integration(name: &str, of: &str, host: &str, keys: &str) -> String {
    let secret = keys.split(", ").filter(|key| !key.is_empty()).map(|key| format!("{key}: eA==")).collect::<Vec<_>>().join(", ");
    format!(
        "---\nkind: Integration\nmetadata: {{name: {name}, generation: 1}}\nspec: {{name: I, {of}}}\n\
         status: {{observedGeneration: 1, credentialKeys: [{keys}], credentials: 5eef, origin: '{host}'}}\n\
         ---\nkind: Secret\nmetadata: {{name: in-{name}}}\ndata: {{{secret}}}\n"
    )
}

fn llm(host: &str) -> String {
    integration("llm", &format!("openai: {{baseUrl: '{host}/v1'}}"), host, "api_key")
}

fn metrics(host: &str) -> String {
    integration("metrics", &format!("prometheus: {{url: '{host}'}}"), host, "token")
}

const LOAD: &str = "---\nkind: Tool\nmetadata: {name: load}\n\
                    spec: {name: load, type: http, endpoint: /api/v1/query, integration: in_metrics}\n";

fn named(name: &str, spec: &str) -> String {
    format!("---\nkind: Agent\nmetadata: {{name: {name}, namespace: team-a, uid: u}}\nspec: {{name: H, framework: custom, {spec}}}\n")
}

/// Of the configuration, of all that pods run, and of the Secrets.
type Hashes = (String, String, Option<String>);

const MODELS: &str = "modelType: openai, modelId: m, modelIntegration: llm";

#[tokio::test]
async fn an_agent_with_integrations() {
    let yaml = std::fs::read_to_string("testdata/integration.in.yaml").unwrap();
    let controller = controller(&yaml);
    let plan = plan(&controller.context, "helper");
    golden_of(&plan, "integration");
    assert_eq!(plan.variables["RUNTIME_MODEL_BASE_URL"], "https://llm.example.com/$(v1)");
    let judges = ["OPENAI_BASE_URL", "OPENAI_API_KEY"];
    assert!(judges.iter().all(|name| !plan.variables.contains_key(name) && plan.env.iter().all(|variable| variable.name() != *name)));
    // What runs is what a child judged alone is to be, on a replica that stands by, too.
    let config = crate::agent::desired(&controller.context, &key("helper"), ChildKind::ConfigMap, "helper-config").unwrap();
    let tools: Value = serde_json::from_str(config["data"]["RUNTIME_TOOLS"].as_str().unwrap()).unwrap();
    assert_eq!(tools[0]["endpoint"], "https://metrics.example.com/base/api/v1/query");
    let user = tools[1]["auth"]["Authorization"]["user"].as_str().unwrap();
    let of_user = plan.env.iter().find(|variable| variable.name() == user).unwrap();
    assert_eq!(*of_user, super::super::resolve::Variable::secret(user, "in-wiki", "email"));
}

#[tokio::test]
async fn a_changed_integration_rolls_who_names_it_and_no_other() {
    const AGENTS: [&str; 4] = ["both", "models", "plain", "tools"];
    let agents = [
        named("both", &format!("{MODELS}, strategy: agent-react, tools: [load]")),
        named("models", MODELS),
        named("plain", "modelType: openai, modelId: m"),
        named("tools", "strategy: agent-react, tools: [load]"),
    ];
    let yaml = [TEAM, &agents.concat(), LOAD, &llm("https://llm.example"), &metrics("https://metrics.example")].concat();
    let controller = controller(&yaml);
    let context = &controller.context;
    for name in AGENTS {
        let agent = context.caches.agents.get(&key(name)).unwrap().agent().unwrap();
        gather::note(&key(name), &tracks::of(&agent, context).unwrap().workloads, std::iter::empty(), context);
    }
    let hashes = || -> [Hashes; 4] {
        AGENTS.map(|name| {
            let plan = plan(context, name);
            (build::config_hash(&plan), build::run_hash(&plan), plan.secrets_hash)
        })
    };
    let mut before = hashes();
    for (what, yaml, integration, configured, rolled) in [
        ("another server of models", llm("https://other.example"), "llm", &["both", "models"][..], &["both", "models"][..]),
        ("another server of a Tool", metrics("https://other.example"), "metrics", &["both", "tools"], &["both", "tools"]),
        (
            "another way to log in",
            integration("metrics", "prometheus: {url: 'https://other.example'}", "https://other.example", "username, password"),
            "metrics",
            &["both", "tools"],
            &["both", "tools"],
        ),
        ("another password", metrics("https://other.example").replace("eA==", "eQ=="), "metrics", &["both", "tools"], &["both", "tools"]),
        ("another password alone", metrics("https://other.example").replace("eA==", "eg=="), "metrics", &[], &["both", "tools"]),
        (
            "what people read",
            llm("https://other.example").replace("name: I,", "name: Another, description: 'of the platform',"),
            "llm",
            &[],
            &[],
        ),
    ] {
        know(context, &yaml);
        let requested = controller.requests.open();
        controller.changed(&Change::Object(Kind::of::<Integration>(), key(integration)));
        let mut heard: Vec<_> = requested.take(controller.requests.depth()).map(|key| key.name).collect().await;
        heard.sort();
        assert_eq!(heard, if integration == "llm" { ["both", "models"] } else { ["both", "tools"] }, "{what}");
        let now = hashes();
        let changed = |is: fn(&Hashes, &Hashes) -> bool| {
            let pairs = AGENTS.iter().zip(before.iter().zip(&now));
            pairs.filter(|(_, (before, now))| is(before, now)).map(|(name, _)| *name).collect::<Vec<_>>()
        };
        assert_eq!(changed(|before, now| before.0 != now.0), configured, "{what}: the configuration");
        assert_eq!(changed(|before, now| before.1 != now.1), configured, "{what}: what runs");
        assert_eq!(changed(|before, now| before.0 != now.0 || before.2 != now.2), rolled, "{what}: the pods");
        before = now;
    }
}

#[tokio::test]
async fn what_an_integration_cannot_give_is_a_fault_of_its_field() {
    let tools = "strategy: agent-react, tools: [load]";
    let load = |with: &str| LOAD.replace("integration: in_metrics", with);
    let unseen = "---\nkind: Integration\nmetadata: {name: metrics}\nspec: {name: M, prometheus: {url: 'https://m.example'}}\n".to_owned();
    let moved = metrics("https://m.example").replace("url: 'https://m.example'", "url: 'https://evil.example'");
    let closed = "---\nkind: Secret\nmetadata: {name: theirs}\ndata: {token: eA==}\n";
    let borrowed = format!(
        "{}{closed}",
        integration("metrics", "credentialsSecret: theirs, prometheus: {url: 'https://m.example'}", "https://m.example", "token")
    );
    let drive = integration("metrics", "googleDrive: {}", "https://www.googleapis.com", "service_account.json");
    let inside = "---\nkind: Tool\nmetadata: {name: load}\nspec: {name: load, type: mcp, integration: metrics}\n".to_owned()
        + &integration("metrics", "mcp: {url: 'http://10.0.0.1/mcp'}", "http://10.0.0.1", "token");
    let lost = llm("https://llm.example").split("---\nkind: Secret").next().unwrap().to_owned();
    for (spec, others, reason, says) in [
        (MODELS, String::new(), "IntegrationNotFound", "spec.modelIntegration: there is no Integration llm"),
        (
            MODELS,
            metrics("https://m.example").replace("metrics", "llm"),
            "IntegrationInvalid",
            "spec.modelIntegration: in_llm is of type prometheus",
        ),
        (MODELS, lost, "SecretKeyMissing", "spec.modelIntegration: Secret in-llm has no key api_key"),
        (tools, LOAD.to_owned(), "IntegrationNotFound", "spec.tools[0]: Tool load: spec.integration: there is no Integration metrics"),
        (tools, LOAD.to_owned() + &unseen, "IntegrationNotSeen", "spec.integration"),
        (tools, LOAD.to_owned() + &moved, "CredentialsForAnotherHost", "https://m.example"),
        (tools, LOAD.to_owned() + &drive, "IntegrationInvalid", "mlflow, prometheus"),
        (tools, LOAD.to_owned() + &borrowed, "SecretNotAllowed", "Secret theirs lacks the label"),
        (tools, inside, "ToolInvalid", "agents.egressAllow"),
        (
            tools,
            load("integration: metrics, headers: {authorization: mine}") + &metrics("https://m.example"),
            "IntegrationInvalid",
            "gives the header Authorization",
        ),
    ] {
        let yaml = [TEAM, &named("helper", spec), &others].concat();
        let controller = controller(&yaml);
        let Resolved::Fault(found) = resolved(&controller.context, "helper") else { panic!("no fault of {yaml}") };
        assert_eq!(found.reason, reason, "{}", found.message);
        assert!(found.message.contains(says), "{reason}: {}", found.message);
    }
}

/// The Secret of an integration is its users' alone, by way of the integration.
#[tokio::test]
async fn nobody_else_names_the_secret_of_an_integration() {
    let theirs = "---\nkind: Tool\nmetadata: {name: load}\nspec: {name: load, type: http, endpoint: 'https://metrics.example/', \
                  headersFrom: [{name: Authorization, secret: in-metrics, key: token}]}\n";
    for (spec, tool) in [("strategy: agent-react, tools: [load]", theirs), ("envSecrets: [in-metrics]", "")] {
        let yaml = [TEAM, &named("helper", spec), tool, &metrics("https://metrics.example")].concat();
        let controller = controller(&yaml);
        let Resolved::Fault(found) = resolved(&controller.context, "helper") else { panic!("no fault of {spec}") };
        assert_eq!(found.reason, "SecretNotAllowed", "{}", found.message);
    }
}
