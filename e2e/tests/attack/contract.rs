//! Calls that nobody would make: REST is asked by those whom Schemathesis makes up of its document. No agent runs here;
//! what is asked of one that does is in `api_contract/schema.rs` of the tests on a cluster.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use slipway_e2e::attack::{Installation, Person};
use slipway_e2e::{Api, Contract, ROOT};
use slipway_peers::openapi_validator;
use tempfile::TempDir;

/// How long the examples and what is at the edges of the document may take; it is a minute where nothing else works.
const SECONDS: u64 = 300;
/// How long random calls are made.
const FUZZ_SECONDS: u64 = 60;
/// For how long links are followed.
const LINKS_SECONDS: u64 = 60;

#[test]
fn the_document_is_openapi() {
    let output = openapi_validator(&Path::new(ROOT).join("docs/openapi.json"));
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

/// A team whose admin calls REST, and the history of its releases.
struct Ground {
    _slipway: Arc<Installation>,
    _state: Api,
    _folder: TempDir,
    rest: Api,
    admin: Person,
    team: &'static str,
}

impl Ground {
    #[track_caller]
    fn of(team: &'static str) -> Self {
        let slipway = Installation::shared();
        // Agents are made by the hundred, and nothing runs.
        let quota =
            json!({"count/agents.agents.slipway.dev": 5000, "count/configmaps": 9000, "count/agentreleases.agents.slipway.dev": 5000});
        let spec = json!({"name": team, "quota": quota});
        slipway.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "metadata": {"name": team}, "spec": spec}));
        slipway.kubectl(format!("wait team/{team} --for=condition=Ready --timeout=60s")).ok();
        let admin = slipway.member(&format!("{team}-admin"), "slipway-admin", &format!("team-{team}"));
        slipway.agents_counted(&format!("team-{team}"));
        // REST runs outside of the cluster here, from where agents are reached by the API server's proxy.
        slipway.kubectl(format!("create role relay -n team-{team} --verb=* --resource=services/proxy")).ok();
        let account = "--serviceaccount=slipway-system:slipway-rest";
        slipway.kubectl(format!("create rolebinding relay -n team-{team} --role=relay {account}")).ok();
        let folder = TempDir::new().unwrap();
        let state = slipway.state(folder.path());
        let token = folder.path().join("token");
        std::fs::write(&token, slipway.token_for("slipway-rest", "slipway-state")).unwrap();
        let rest = slipway.rest(&[("SLIPWAY_STATE_URL", &state.url()), ("SLIPWAY_STATE_TOKEN_FILE", &token.display().to_string())]);
        Self { _slipway: slipway, _state: state, _folder: folder, rest, admin, team }
    }

    fn contract(&self) -> Contract<'_> {
        Contract::new(&self.rest, self.team, &self.admin.token)
    }
}

/// Calls of the document's own examples and at its edges, the same each time; then random calls for a minute, or for
/// `SLIPWAY_FUZZ_SECONDS` as `hack/fuzz` sets it.
#[test]
fn answers_are_as_the_document_says() {
    let ground = Ground::of("made-up");
    let contract = ground.contract();
    let document = contract.document();
    let Ok(seconds) = std::env::var("SLIPWAY_FUZZ_SECONDS") else {
        contract.assert_holds(&document, SECONDS, &["--phases", "examples,coverage", "--seed", "1"]);
        contract.assert_holds(&document, FUZZ_SECONDS, &["--phases", "fuzzing", "--seed", "1"]);
        return;
    };
    let seconds = seconds.parse().unwrap_or_else(|e| panic!("SLIPWAY_FUZZ_SECONDS={seconds}: {e}"));
    contract.assert_holds(&document, seconds, &["--phases", "examples,coverage,fuzzing"]);
}

#[test]
fn what_was_made_can_be_used_as_the_links_say() {
    let ground = Ground::of("links");
    let contract = ground.contract();
    // Bodies made up out of all fields are refused by one rule or other, nearly always. With few fields, agents come
    // to be, and what the links lead to is tried on them.
    let mut document = contract.document();
    let framework = document["components"]["schemas"]["NewAgent"]["properties"]["framework"].clone();
    let text = json!({"type": "string", "pattern": "^[a-z]{0,20}$"});
    let only = |fields: Value, required: Value| json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false});
    document["components"]["schemas"]["NewAgent"] = only(
        json!({"name": {"type": "string", "pattern": "^[A-Z][a-z]{2,20}$"}, "framework": framework, "description": text}),
        json!(["name", "framework"]),
    );
    document["paths"]["/agents/{id}/config"]["patch"]["requestBody"]["content"]["application/json"]["schema"] =
        only(json!({"description": text, "system_prompt": text}), json!([]));
    let arguments = ["--phases", "stateful", "--mode", "positive", "--include-path-regex", "^/agents", "--seed", "1"];
    let followed = |told: &str| -> Option<u32> {
        told.lines().find_map(|line| line.trim().strip_prefix("API Links:")?.split_whitespace().next()?.parse().ok())
    };
    // A busy machine comes to few in that time.
    let mut told = contract.assert_holds(&document, LINKS_SECONDS, &arguments);
    if followed(&told) < Some(8) {
        told = contract.assert_holds(&document, 4 * LINKS_SECONDS, &arguments);
    }
    assert!(followed(&told) >= Some(8), "few of the links were followed:\n{told}");
}
