//! Schemathesis, which knows nothing of us but the document: it makes up calls, right and wrong ones, follows the
//! document's links, and compares what comes back with what the document says.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use slipway_e2e::{Api, ROOT, Team};
use slipway_peers::{openapi_validator, schemathesis};

/// For how long it makes up calls, each of two times.
const SECONDS: &str = "30";

/// Streams that never end are tried elsewhere. Of an agent that does not run, or is on its way, 503 and 502 are the
/// right answers. What the cluster's own rules refuse (such as a model that the provider does not have) no schema can
/// tell, so a body that fits may still be a 400.
const SETTINGS: &str = r#"
request-timeout = 20
workers = 1
continue-on-failure = true

# Only links that the document has, and none that were guessed.
[phases.stateful.inference]
algorithms = []

[checks.positive_data_acceptance]
enabled = false

[[operations]]
include-operation-id = "getAgentsIdEvents"
enabled = false

[[operations]]
include-path-regex = "^/teams/"
parameters = { team = "TEAM" }

[[operations]]
include-path-regex = "/agents/.id./(releases|versions)"
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", 503]

[[operations]]
include-path-regex = "/agents/.id./(chat|conversations|suggestions|memory)"
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", 502, 503]
"#;

#[test]
fn the_document_is_openapi() {
    let output = openapi_validator(&Path::new(ROOT).join("docs/openapi.json"));
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

/// One team, in which Schemathesis may do everything, and nothing anywhere else: what platform admins do would stay.
struct Ground {
    team: Team,
    token: String,
    api: Api,
    folder: tempfile::TempDir,
}

impl Ground {
    #[track_caller]
    fn new(name: &str) -> Self {
        // Of what it deploys no more than this gets a place on the machine.
        let team = Team::with(name, &json!({"quota": {"pods": 2}}));
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("schemathesis.toml"), SETTINGS.replace("TEAM", &team.slug)).unwrap();
        Self { token: team.token("admin"), api: Api::start(&[]), team, folder }
    }

    #[track_caller]
    fn assert_holds(&self, document: &str, arguments: &[&str]) -> String {
        let header = format!("Authorization: Bearer {}", self.token);
        let arguments = [&["--header", &header, "--max-time", SECONDS], arguments].concat();
        let output = schemathesis(self.folder.path(), document, &arguments);
        let told = String::from_utf8_lossy(&output.stdout).replace(&self.token, "TOKEN");
        assert!(output.status.success(), "{told}\n{}\n{}", String::from_utf8_lossy(&output.stderr), self.api.log());
        told
    }
}

#[test]
fn answers_are_as_the_document_says() {
    let ground = Ground::new("contract-schema");
    ground.team.agent("helper", &json!({})).ready();
    ground.assert_holds(&format!("{}/api/v1/openapi.json", ground.api.url()), &["--phases", "examples,coverage"]);
}

#[test]
fn what_was_made_can_be_used_as_the_links_say() {
    let ground = Ground::new("contract-links");
    // Bodies made up out of all fields are refused by one rule or other, nearly always. With few fields, agents come
    // to be, and what the links lead to is tried on them.
    let mut document = ground.api.call("GET", "/openapi.json").expect(200);
    let framework = document["components"]["schemas"]["NewAgent"]["properties"]["framework"].clone();
    let text = json!({"type": "string", "pattern": "^[a-z]{0,20}$"});
    let only = |fields: Value, required: Value| json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false});
    document["components"]["schemas"]["NewAgent"] = only(
        json!({"name": {"type": "string", "pattern": "^[A-Z][a-z]{2,20}$"}, "framework": framework, "description": text}),
        json!(["name", "framework"]),
    );
    document["paths"]["/agents/{id}/config"]["patch"]["requestBody"]["content"]["application/json"]["schema"] =
        only(json!({"description": text, "system_prompt": text}), json!([]));
    fs::write(ground.folder.path().join("narrow.json"), document.to_string()).unwrap();
    let url = format!("{}/api/v1", ground.api.url());
    let told = ground
        .assert_holds("narrow.json", &["--url", &url, "--phases", "stateful", "--mode", "positive", "--include-path-regex", "^/agents"]);
    let links = told.lines().find_map(|line| line.trim().strip_prefix("API Links:")?.split_whitespace().next()?.parse::<u32>().ok());
    assert!(links.is_some_and(|links| links >= 8), "few of the links were followed:\n{told}");
}
