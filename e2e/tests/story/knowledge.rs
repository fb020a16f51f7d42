//! Steps 6 and 7: a handbook that is ingested and searched, and tools.

use serde_json::{Value, json};
use slipway_e2e::condition;

use crate::handbook::{PAGE, PAGES, SENTENCE};
use crate::stage::{Stage, until};

pub(crate) fn the_handbook(stage: &mut Stage) {
    stage.play("The handbook");
    let base = stage.get("vic", "harbor", "/knowledge-bases/kb_handbook");
    let told = (&base["id"], &base["chunk_size"], &base["chunk_overlap"], &base["document_count"], &base["status"]);
    assert_eq!(told, (&json!("kb_handbook"), &json!(512), &json!(50), &json!(1), &json!("ready")), "{base:#}");
    let documents = stage.get("vic", "harbor", "/knowledge-bases/handbook/documents");
    let document = &documents[0];
    assert_eq!((&document["filename"], &document["pages"], &document["status"]), (&json!("handbook.pdf"), &json!(PAGES), &json!("ready")));

    let asked = json!({"query": "Where does the blue ferry to Gull Island leave from?", "top_k": 3});
    let found = stage.call("vic", "harbor", "POST", "/knowledge-bases/handbook/search").json(&asked).expect(200)["data"]["results"].clone();
    let results = found.as_array().cloned().unwrap_or_default();
    assert!((1..=3).contains(&results.len()), "{found:#}");
    for result in &results {
        assert!(result["score"].as_f64().is_some_and(|score| (0.0..=1.0).contains(&score)), "{result:#}");
        let metadata = &result["metadata"];
        assert!(result["content"].is_string() && metadata["source"].is_string() && metadata["page"].is_i64(), "{result:#}");
        assert!(metadata["chunk_id"].as_str().is_some_and(|id| id.starts_with("chunk_")), "{result:#}");
    }
    let first = &results[0];
    assert!(
        first["content"].as_str().is_some_and(|content| plain(content).contains(SENTENCE)),
        "the sentence should come first: {first:#}"
    );
    assert_eq!(first["metadata"]["page"], json!(PAGE), "{first:#}");
    assert_eq!(stage.call("bob", "depot", "POST", "/knowledge-bases/handbook/search").json(&asked).send().status, 404);
}

/// A text on one line.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn tools(stage: &mut Stage) {
    stage.play("Tools");
    for (name, kind) in [("tide", "http"), ("calculator", "builtin")] {
        let tool = stage.get("vic", "harbor", &format!("/tools/{name}"));
        assert_eq!((&tool["type"], &tool["status"]), (&json!(kind), &json!("available")), "{tool:#}");
    }
    let without = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Tool", "metadata": {"name": "nowhere"}, "spec": {"name": "nowhere", "type": "http"}});
    let refused = stage.harbor.kubectl("apply -f -").input(without).refused();
    assert!(refused.contains("endpoint"), "what is missing should be named: {refused}");
    // What no schema sees is an error of the Tool.
    let headers = json!([{"name": "Authorization", "secret": "not-there", "key": "token"}]);
    stage.harbor.tool("locked", &json!({"type": "http", "endpoint": "https://example.com/x", "headersFrom": headers}));
    until("a Tool whose Secret is not there is in error", 60, || {
        let tool: Value = stage.harbor.get("tool/locked");
        if tool["status"]["phase"] == "Error" && condition(&tool, "Ready")["status"] == "False" {
            Ok(())
        } else {
            Err(tool["status"].clone())
        }
    });
    stage.harbor.kubectl("delete tool locked --timeout=30s").ok();
}
