//! What an agent that runs answers is as the document says. Everything else that the document says is tried where no
//! agent runs, by `attack/contract.rs`.

use serde_json::json;
use slipway_e2e::{Api, Contract, Team};

const SECONDS: u64 = 30;

#[test]
fn what_an_agent_answers_is_as_the_document_says() {
    let team = Team::new("contract-schema");
    let api = Api::start(&[]);
    team.agent("helper", &json!({})).ready();
    let token = team.token("admin");
    let contract = Contract::new(&api, &team.slug, &token);
    let of_it = "^/agents/.id./(chat|conversations|suggestions|memory)";
    contract.assert_holds(&contract.document(), SECONDS, &["--phases", "examples,coverage", "--seed", "1", "--include-path-regex", of_it]);
}
