//! What the API says of itself.

use serde_json::{Value, json};
use slipway_e2e::{Api, Golden, Team};

#[test]
fn description_page_and_health_answer_as_written_down() {
    let team = Team::new("golden-open");
    let api = Api::of(&team);
    let mut golden = Golden::of("api_golden/open.json");

    let described = api.call("GET", "/openapi.json").send();
    assert!(described.json() == super::document(), "what is described is not what docs/openapi.json says");
    golden.keep_as("GET /openapi.json", &described, &json!("docs/openapi.json"));

    let page = api.call("GET", "/docs").send();
    golden.keep_as("GET /docs", &page, &headings(&page.body));

    // The version is the one that the tests were built with.
    golden.name(env!("CARGO_PKG_VERSION"), "<version>");
    golden.keep("GET /health", &api.call("GET", "/health").send());
    golden.compare();
}

/// What stands between `<h1>` or `<h2>` and its end.
fn headings(page: &str) -> Value {
    let text = |rest: &str| {
        let (mark, rest) = rest.split_once('>')?;
        Some(format!("h{mark} {}", rest.split("</h").next()?))
    };
    page.split("<h").filter(|rest| rest.starts_with("1>") || rest.starts_with("2>")).filter_map(text).collect()
}
