//! The table of types beside the schema, and what integrations give to what names them.

use std::collections::BTreeSet;

use kube::CustomResourceExt;
use serde_json::{Value, json};

use super::*;
use crate::model_type::ModelType;
use crate::source::Source;
use crate::tool::ToolSpec;

fn integration(spec: &str) -> Integration {
    let yaml = format!("{{metadata: {{name: my-server, namespace: team-a}}, spec: {{name: My Server, {spec}}}}}");
    serde_yaml::from_str(&yaml).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// The same after the operator has looked at it: its Secret has these keys, and is for the host that it names.
fn seen(spec: &str, keys: &[&str]) -> Integration {
    let mut seen = integration(spec);
    seen.status = Some(IntegrationStatus {
        observed_generation: Some(1),
        credential_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        credentials: Some("hash".to_owned()),
        origin: seen.spec.origin(),
        ..IntegrationStatus::default()
    });
    seen
}

/// One of each type, with no more than it needs.
const ALL: [(IntegrationType, &str); 13] = [
    (IntegrationType::Local, "local: {}"),
    (IntegrationType::GoogleDrive, "googleDrive: {}"),
    (IntegrationType::S3, "s3: {}"),
    (IntegrationType::Confluence, "confluence: {baseUrl: 'https://c.example'}"),
    (IntegrationType::Jira, "jira: {baseUrl: 'https://j.example'}"),
    (IntegrationType::Databricks, "databricks: {host: d.example}"),
    (IntegrationType::Mlflow, "mlflow: {url: 'https://m.example'}"),
    (IntegrationType::Prometheus, "prometheus: {url: 'https://p.example'}"),
    (IntegrationType::Webhook, "webhook: {url: 'https://w.example/in'}"),
    (IntegrationType::Slack, "slack: {}"),
    (IntegrationType::Openai, "openai: {}"),
    (IntegrationType::Anthropic, "anthropic: {}"),
    (IntegrationType::Mcp, "mcp: {url: 'https://mcp.example/mcp'}"),
];

#[test]
fn the_table_of_types_is_that_of_the_schema() {
    let crd = serde_json::to_value(Integration::crd()).unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    let parts = spec.as_object().unwrap().iter().filter(|(name, of)| of["type"] == "object" && *name != "alerts");
    let fields: BTreeSet<&str> = TYPES.iter().map(|of| of.kind.field()).collect();
    assert_eq!(parts.map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>(), fields);
    for (info, kind) in TYPES.iter().zip(IntegrationType::ALL) {
        assert_eq!((info.kind, kind.info()), (*kind, info));
        let names: BTreeSet<&str> = info.credentials.iter().map(|field| field.name).collect();
        assert!(info.one_of.iter().flat_map(|set| set.iter()).all(|name| names.contains(name)), "{kind:?}");
        assert!(!info.uses.is_empty() && info.credentials.len() <= 16);
    }
}

/// A row of the table in the document.
fn row(info: &TypeInfo, part: &Value) -> String {
    let is_required = |name: &str| part["required"].as_array().into_iter().flatten().any(|required| required == name);
    let word = |name: &str, bold: bool| if bold { format!("**`{name}`**") } else { format!("`{name}`") };
    let names: BTreeSet<&String> = part["properties"].as_object().unwrap().keys().collect();
    let fields: Vec<String> = names.into_iter().map(|name| word(name, is_required(name))).collect();
    let sets = info.one_of.iter().map(|set| set.iter().map(|name| word(name, false)).collect::<Vec<_>>().join(" and "));
    let sets: Vec<String> = sets.map(|set| if set.is_empty() { "none".to_owned() } else { set }).collect();
    let keys = info.credentials.iter().map(|field| word(field.name, field.required)).collect::<Vec<_>>().join(", ");
    let login = match (sets.is_empty(), keys.is_empty()) {
        (false, _) => sets.join(", or "),
        (true, true) => "none".to_owned(),
        (true, false) => keys,
    };
    let uses: Vec<&str> = info.uses.iter().copied().map(Use::as_str).collect();
    format!("| `{}` | `{}` | {} | {login} | {} |", info.kind.as_str(), info.kind.field(), fields.join(", "), uses.join(", "))
}

#[test]
fn the_document_has_the_table_of_types() {
    let crd = serde_json::to_value(Integration::crd()).unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    let document = std::fs::read_to_string("../../docs/integrations.md").unwrap();
    for info in &TYPES {
        let row = row(info, &spec[info.kind.field()]);
        assert!(document.lines().any(|line| line == row), "docs/integrations.md should have the row\n{row}");
    }
}

#[test]
fn each_type_says_what_it_is_and_where_its_login_goes() {
    for (kind, spec) in ALL {
        let spec = integration(spec).spec;
        assert_eq!(spec.kind(), Some(kind));
        assert!(spec.config().is_object(), "{kind:?}");
        let has_login = kind != IntegrationType::Local;
        assert_eq!(spec.secret("my-server"), has_login.then(|| "in-my-server".to_owned()));
        let has_server = !matches!(kind, IntegrationType::Local | IntegrationType::Slack);
        assert_eq!(spec.origin().is_some(), has_server, "{kind:?}");
        assert_eq!(spec.tested().kind(), Some(kind));
    }
    assert_eq!(integration("local: {}, s3: {}").spec.kind(), None);
    assert_eq!(integration("mlflow: {url: 'https://m'}, credentialsSecret: own").spec.secret("x").as_deref(), Some("own"));
}

#[test]
fn two_spellings_of_a_host_are_one_origin() {
    let origin = |spec: &str| integration(spec).spec.origin().unwrap();
    let of = |url: &str| origin(&format!("prometheus: {{url: '{url}'}}"));
    assert_eq!(of("https://P.example:443/prom/"), of("https://p.example"));
    assert_ne!(of("http://p.example"), of("https://p.example"));
    assert_ne!(of("https://p.example:8443"), of("https://p.example"));
    assert_eq!(origin("databricks: {host: d.example}"), "https://d.example");
    assert_eq!(origin("s3: {region: eu-1}"), "https://s3.eu-1.amazonaws.com");
    assert_eq!(origin("openai: {}"), "https://api.openai.com");
}

#[test]
fn what_a_secret_lacks_is_told_by_its_keys() {
    for (kind, keys, missing) in [
        (IntegrationType::Local, &[][..], None),
        (IntegrationType::S3, &["access_key_id"], Some("secret_access_key")),
        (IntegrationType::S3, &["access_key_id", "secret_access_key"], None),
        (IntegrationType::Jira, &[], Some("token, or email and api_token")),
        (IntegrationType::Jira, &["email"], Some("token, or email and api_token")),
        (IntegrationType::Jira, &["email", "api_token"], None),
        (IntegrationType::Prometheus, &[], None),
        (IntegrationType::Prometheus, &["username"], Some("token, or username and password")),
        (IntegrationType::Prometheus, &["token"], None),
        (IntegrationType::Openai, &[], None),
        (IntegrationType::Anthropic, &[], Some("api_key")),
    ] {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        assert_eq!(kind.info().missing(&keys).as_deref(), missing, "{kind:?} {keys:?}");
    }
    let needing: Vec<&str> = TYPES.iter().filter(|of| of.needs_login()).map(|of| of.kind.as_str()).collect();
    assert_eq!(needing, ["google-drive", "s3", "confluence", "jira", "databricks", "webhook", "slack", "anthropic"]);
}

#[test]
fn a_subscription_takes_what_it_asks_for() {
    let alerts = |alerts: &str| integration(&format!("slack: {{}}, alerts: {alerts}")).spec.alerts.unwrap();
    let takes = |of: &str| alerts(of).takes(Severity::Warning, "helper", "error_rate_pct");
    assert!(takes("{}") && alerts("{}").resolved);
    assert!(takes("{severities: [warning]}") && !takes("{severities: [critical]}"));
    assert!(takes("{agents: [helper]}") && !takes("{agents: [other]}"));
    assert!(takes("{metrics: [error_rate_pct]}") && !takes("{metrics: [daily_cost_usd]}"));
    assert!(!alerts("{resolved: false}").resolved);
}

fn tool(spec: &str) -> ToolSpec {
    serde_yaml::from_str(&format!("{{name: t, integration: my-server, {spec}}}")).unwrap()
}

#[test]
fn a_tool_gets_server_and_login() {
    let http = "type: http, endpoint: /api/v1/query";
    let bearer = |key: &str| json!([{"name": "Authorization", "secret": "in-my-server", "key": key, "scheme": "bearer"}]);
    let basic =
        json!([{"name": "Authorization", "secret": "in-my-server", "key": "password", "scheme": "basic", "usernameKey": "username"}]);
    for (of, named, has, endpoint, login) in [
        ("prometheus: {url: 'https://p.example/prom/'}", http, &["token"][..], "https://p.example/prom/api/v1/query", bearer("token")),
        ("prometheus: {url: 'https://p.example'}", http, &["username", "password"], "https://p.example/api/v1/query", basic),
        ("prometheus: {url: 'https://p.example'}", http, &[], "https://p.example/api/v1/query", Value::Null),
        ("databricks: {host: d.example}", http, &["token"], "https://d.example/api/v1/query", bearer("token")),
        ("jira: {baseUrl: 'https://j.example'}", http, &[], "https://j.example/api/v1/query", bearer("token")),
        ("openai: {}", http, &["api_key"], "https://api.openai.com/v1/api/v1/query", bearer("api_key")),
        ("webhook: {url: 'https://w.example'}", "type: http, method: POST, endpoint: /x", &[], "https://w.example/x", Value::Null),
    ] {
        let merged = seen(of, has).tool(&tool(named)).unwrap();
        assert_eq!(merged.secret.is_some(), !login.is_null(), "{of}");
        let spec = serde_json::to_value(&merged.spec).unwrap();
        assert_eq!(
            (&spec["endpoint"], &spec["headersFrom"], &spec["integration"]),
            (&json!(endpoint), &login, &json!("my-server")),
            "{of}"
        );
    }
    let mcp = seen("mcp: {url: 'https://mcp.example/mcp', header: X-Key}", &["token"]).tool(&tool("type: mcp")).unwrap().spec;
    assert_eq!(mcp.mcp_endpoint.as_deref(), Some("https://mcp.example/mcp"));
    assert_eq!(json!(mcp.headers_from), json!([{"name": "X-Key", "secret": "in-my-server", "key": "token"}]));
    let anthropic = seen("anthropic: {}", &["api_key"]).tool(&tool(http)).unwrap().spec;
    assert_eq!(anthropic.headers["anthropic-version"], "2023-06-01");
    assert_eq!(anthropic.headers_from[0].name, "x-api-key");
}

#[test]
fn a_tool_that_cannot_name_it_is_told_why() {
    for (of, named, says) in [
        ("s3: {}", "type: http, endpoint: /x", "which a Tool cannot name; these can be: confluence, jira, databricks"),
        ("mcp: {url: 'https://m.example'}", "type: http, endpoint: /x", "a Tool of type http takes one of another type"),
        ("openai: {}", "type: mcp", "a Tool of type mcp takes one of type mcp"),
        ("webhook: {url: 'https://w.example'}", "type: http, endpoint: /x", "takes POST alone"),
        ("webhook: {url: 'https://w.example?a=b'}", "type: http, method: POST, endpoint: /x", "a URL with a query"),
        (
            "databricks: {host: d.example}",
            "type: http, endpoint: /x, headersFrom: [{name: authorization, secret: s, key: k}]",
            "gives the header Authorization",
        ),
    ] {
        let fault = seen(of, &["token"]).tool(&tool(named)).unwrap_err();
        assert!(fault.message.contains("in_my_server") && fault.message.contains(says), "{of}: {}", fault.message);
    }
}

#[test]
fn a_source_gets_server_and_login() {
    for (of, source, config) in [
        ("local: {path: docs/}", "local: {path: /handbook}", json!({"type": "local", "path": "docs/handbook"})),
        ("local: {path: docs}", "local: {path: /}", json!({"type": "local", "path": "docs"})),
        (
            "s3: {endpoint: 'https://s.example', region: eu-1}",
            "s3: {bucket: docs}",
            json!({"type": "s3", "bucket": "docs", "endpoint": "https://s.example", "region": "eu-1", "credentials_secret": "in-my-server"}),
        ),
        (
            "googleDrive: {}",
            "googleDrive: {folderId: f}",
            json!({"type": "google-drive", "folder_id": "f", "credentials_secret": "in-my-server"}),
        ),
        (
            "confluence: {baseUrl: 'https://c.example'}",
            "confluence: {spaceKey: K}",
            json!({"type": "confluence", "space_key": "K", "base_url": "https://c.example", "credentials_secret": "in-my-server"}),
        ),
        (
            "jira: {baseUrl: 'https://j.example'}",
            "jira: {projectKey: K}",
            json!({"type": "jira", "project_key": "K", "base_url": "https://j.example", "credentials_secret": "in-my-server"}),
        ),
        (
            "databricks: {host: d.example, warehouseId: w}",
            "databricks: {path: a.b.c}",
            json!({"type": "databricks", "path": "a.b.c", "host": "d.example", "warehouse_id": "w", "credentials_secret": "in-my-server"}),
        ),
    ] {
        let source: Source = serde_yaml::from_str(&format!("{{integration: in_my_server, {source}}}")).unwrap();
        let merged = seen(of, &[]).source(&source).unwrap();
        assert_eq!(merged.spec.config(), Some(config.clone()), "{of}");
        assert_eq!(merged.secret.as_deref(), config["credentials_secret"].as_str());
    }
    let source: Source = serde_yaml::from_str("{integration: my-server, s3: {bucket: docs}}").unwrap();
    for (of, says) in
        [("jira: {baseUrl: 'https://j.example'}", "a source of type s3 takes one of type s3"), ("slack: {}", "a source cannot name")]
    {
        let fault = seen(of, &[]).source(&source).unwrap_err();
        assert!(fault.message.contains(says), "{of}: {}", fault.message);
    }
}

#[test]
fn an_agents_models_get_server_and_key() {
    let key = Some(("in-my-server".to_owned(), "api_key".to_owned()));
    for (of, keys, provider, base_url, key) in [
        ("openai: {baseUrl: 'https://o.example/v1'}", &[][..], ModelType::Openai, "https://o.example/v1", None),
        ("openai: {}", &["api_key"], ModelType::Openai, "https://api.openai.com/v1", key.clone()),
        ("anthropic: {}", &[], ModelType::Anthropic, "https://api.anthropic.com", key),
    ] {
        let endpoint = seen(of, keys).model(provider).unwrap();
        assert_eq!(seen(of, keys).endpoint().as_ref(), Ok(&endpoint), "{of}");
        assert_eq!(endpoint, ModelEndpoint { base_url: base_url.to_owned(), key }, "{of}");
    }
    for (of, provider, says) in [
        ("mcp: {url: 'https://m.example'}", ModelType::Openai, "in_my_server is of type mcp; modelType openai takes one of type openai"),
        ("openai: {}", ModelType::Anthropic, "modelType anthropic takes one of type anthropic"),
        ("openai: {}", ModelType::Ollama, "modelType ollama takes no integration"),
    ] {
        let fault = seen(of, &[]).model(provider).unwrap_err();
        assert!(fault.field == "modelIntegration" && fault.message.contains(says), "{}", fault.message);
    }
    assert_eq!(seen("mcp: {url: 'https://m.example'}", &[]).endpoint().unwrap_err().reason, INVALID);
}

#[test]
fn a_login_goes_to_no_host_but_the_one_it_was_written_for() {
    let before = seen("prometheus: {url: 'https://p.example'}", &["token"]);
    let with = |spec: &str| Integration { status: before.status.clone(), ..integration(spec) };
    let query = tool("type: http, endpoint: /api/v1/query");
    let reason = |of: &Integration| of.tool(&query).err().map(|fault| fault.reason);
    assert_eq!(reason(&before), None);
    assert_eq!(reason(&integration("prometheus: {url: 'https://p.example'}")), Some(NOT_SEEN));
    assert_eq!(reason(&with("prometheus: {url: 'https://p.example/other'}")), None);
    assert_eq!(reason(&with("prometheus: {url: 'https://evil.example'}")), Some(ANOTHER_HOST));
    assert_eq!(reason(&with("prometheus: {url: 'http://p.example'}")), Some(ANOTHER_HOST), "it would be sent in plain text");
    assert_eq!(reason(&with("prometheus: {url: 'https://evil.example'}, credentialsSecret: labelled")), None, "agents may use that one");
    assert!(before.opens_for("https://p.example:443/api") && !before.opens_for("https://evil.example/"));
    assert!(!integration("prometheus: {url: 'https://p.example'}").opens_for("https://p.example"));
    assert!(before.owns("in-my-server") && !before.owns("in-other"));
}

#[test]
fn nothing_is_sent_before_a_login_is_known_to_be_for_the_host() {
    // The operator has looked before there was a Secret.
    let early = |spec: &str, keys: &[&str]| {
        let mut early = seen(spec, keys);
        let status = early.status.as_mut().unwrap();
        (status.credentials, status.origin) = (None, None);
        early
    };
    let hook = "webhook: {url: 'https://w.example'}, alerts: {}";
    assert_eq!(early(hook, &[]).receiver().map_err(|fault| fault.reason), Err(NO_LOGIN));
    assert_eq!(seen(hook, &["signing_secret"]).receiver(), Ok(()));
    assert_eq!(early("slack: {}, alerts: {}", &[]).receiver(), Ok(()), "its host is in the Secret");
    assert_eq!(early(&format!("{hook}, credentialsSecret: labelled"), &["signing_secret"]).receiver(), Ok(()));
    let model = |of: &Integration, provider| of.model(provider).map(|endpoint| endpoint.key).map_err(|fault| fault.reason);
    assert_eq!(model(&early("anthropic: {}", &[]), ModelType::Anthropic), Err(NO_LOGIN));
    assert_eq!(model(&early("openai: {}", &["api_key"]), ModelType::Openai), Err(NO_LOGIN), "the keys are those of another Secret");
    assert_eq!(model(&early("openai: {}", &[]), ModelType::Openai), Ok(None));
    let source: Source = serde_yaml::from_str("{integration: my-server, s3: {bucket: docs}}").unwrap();
    assert_eq!(early("s3: {}", &[]).source(&source).map(drop).map_err(|fault| fault.reason), Err(NO_LOGIN));
}

#[test]
fn a_secrets_own_word_is_about_its_integration_alone() {
    let of = |spec: &str, origin: &str| integration(spec).given_for(origin).map_err(|fault| fault.reason);
    let there = "prometheus: {url: 'https://P.example:443/api'}";
    assert_eq!(of(there, "https://p.example"), Ok(()));
    assert_eq!(of(there, "https://evil.example"), Err(ANOTHER_HOST));
    assert_eq!(of(&format!("{there}, credentialsSecret: labelled"), "https://evil.example"), Ok(()), "which it does not use");
    assert_eq!(of(&format!("{there}, credentialsSecret: in-my-server"), "https://evil.example"), Err(ANOTHER_HOST));
    assert_eq!(of("slack: {}", "https://p.example"), Err(ANOTHER_HOST));
}

#[test]
fn a_test_is_asked_for_by_a_text_that_fits_into_the_status() {
    for (word, counts) in [("01J", true), ("", false), (&*"x".repeat(64), true), (&*"x".repeat(65), false)] {
        let mut asked = integration("slack: {}");
        asked.metadata.annotations = Some([(labels::TEST.to_owned(), word.to_owned())].into());
        assert_eq!(asked.asked_test(), counts.then_some(word));
    }
}
