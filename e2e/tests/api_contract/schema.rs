//! Schemathesis, which knows nothing of us but the document: it makes up calls, right and wrong ones, follows the
//! document's links, and compares what comes back with what the document says.

use std::fs;
use std::path::Path;

use serde_json::json;
use slipway_e2e::{Api, ROOT, Team};
use slipway_peers::{openapi_validator, schemathesis};

/// For how long it makes up calls.
const SECONDS: &str = "60";

/// Streams that never end are tried elsewhere. Of an agent that does not run, or is on its way, 503 and 502 are the
/// right answers. What the cluster's own rules refuse (such as a model that the provider does not have) no schema can
/// tell, so a body that fits may still be a 400.
const SETTINGS: &str = r#"
request-timeout = 20
workers = 1
continue-on-failure = true

[checks.positive_data_acceptance]
enabled = false

[[operations]]
include-operation-id = "getAgentsIdEvents"
enabled = false

[[operations]]
include-path-regex = "^/teams/"
parameters = { team = "TEAM" }

[[operations]]
include-path-regex = "/agents/.id./(chat|conversations|suggestions|memory)"
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", 502, 503]
"#;

#[test]
fn the_document_is_openapi() {
    let output = openapi_validator(&Path::new(ROOT).join("docs/openapi.json"));
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

#[test]
fn answers_are_as_the_document_says() {
    let team = Team::new("contract-schema");
    // With the right to everything in its team and to nothing else: what platform admins may do would stay.
    let token = team.token("admin");
    team.agent("helper", &json!({})).ready();
    let api = Api::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("schemathesis.toml"), SETTINGS.replace("TEAM", &team.slug)).unwrap();
    let header = format!("Authorization: Bearer {token}");
    let url = format!("{}/api/v1/openapi.json", api.url());
    let output = schemathesis(folder.path(), &url, &["--header", &header, "--max-time", SECONDS, "--phases", "examples,coverage,stateful"]);
    let told = String::from_utf8_lossy(&output.stdout).replace(&token, "TOKEN");
    assert!(output.status.success(), "{told}\n{}\n{}", String::from_utf8_lossy(&output.stderr), api.log());
}
