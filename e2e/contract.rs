//! Schemathesis, which knows nothing of us but the document: it makes up calls, right and wrong ones, follows the
//! document's links, and compares what comes back with what the document says.

use std::fs;
use std::path::Path;

use serde_json::Value;
use slipway_peers::{repository, schemathesis};

use crate::api::Api;

/// Streams that never end are tried elsewhere. Of an agent that does not run, or is on its way, 503 and 502 are the
/// right answers. Whether a call that fits is accepted, `what_fits_is_accepted` in peers/contract.py asks.
const SETTINGS: &str = r#"
hooks = "HOOKS"
request-timeout = 20
workers = 1
continue-on-failure = true
# Of another team nothing is known but that it is another's.
parameters = { "header.X-Team" = "TEAM", "header.X-Team-Id" = "tk_TEAM" }

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

# The team's worker answers these, and where no node is none runs.
[[operations]]
include-path-regex = "^/knowledge-bases/.id./(documents|search|ingest)"
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", 502, 503]

# The manager has the team's worker connect, and where no node is none runs.
[[operations]]
include-path-regex = "^/integrations/.id./test"
request-timeout = 40
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", 503, 504]

# Marks are kept in the database, which this API has not.
[[operations]]
include-path-regex = "^/feedback$"
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", 503]

# The key of callbacks is the operator's to make, and there is none beside this API.
[[operations]]
include-path-regex = "/agents/.id./evaluations/.run_id./result"
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", 503]

# A quality gate has two answers: it opens, or 412 whatever is wrong with the call.
[[operations]]
include-path-regex = "^/webhooks/canary-gate"
checks.negative_data_rejection.expected-statuses = [400, 404, 405, 412, 414, 431]

# More cases than there may be are longer than a body may be.
[[operations]]
include-path-regex = "/agents/.id./datasets"
checks.negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]
"#;

/// REST, and somebody who may do everything in one team and nothing anywhere else: what platform admins do would stay.
pub struct Contract<'a> {
    api: &'a Api,
    token: &'a str,
    folder: tempfile::TempDir,
}

impl<'a> Contract<'a> {
    #[track_caller]
    pub fn new(api: &'a Api, team: &str, token: &'a str) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("no folder: {e}"));
        let hooks = repository().join("peers/contract.py");
        let settings = SETTINGS.replace("HOOKS", &hooks.display().to_string()).replace("TEAM", team);
        write(&folder.path().join("schemathesis.toml"), &settings);
        Self { api, token, folder }
    }

    /// The document as REST gives it.
    #[track_caller]
    pub fn document(&self) -> Value {
        self.api.call("GET", "/openapi.json").expect(200)
    }

    /// Makes up calls by `document` for this number of seconds, and fails when an answer is another than that says. What
    /// Schemathesis tells of its work is returned.
    #[track_caller]
    pub fn assert_holds(&self, document: &Value, seconds: u64, arguments: &[&str]) -> String {
        write(&self.folder.path().join("document.json"), &document.to_string());
        let (url, seconds) = (format!("{}/api/v1", self.api.url()), seconds.to_string());
        let header = format!("Authorization: Bearer {}", self.token);
        let arguments = [&["--url", &url, "--header", &header, "--max-time", &seconds], arguments].concat();
        let output = schemathesis(self.folder.path(), "document.json", &arguments);
        let told = String::from_utf8_lossy(&output.stdout).replace(self.token, "TOKEN");
        assert!(output.status.success(), "{told}\n{}\n{}", String::from_utf8_lossy(&output.stderr), self.api.log());
        told
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
