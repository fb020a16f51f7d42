//! Searches and documents.

use serde_json::json;

use crate::support::{BASE, Platform};

const PASSAGES: [&str; 4] = [
    "To change the filter, open the lid and take the old filter out.",
    "The device needs a voltage of 230 volts.",
    "Dispose of used batteries at a collection point.",
    "The warranty ends after two years.",
];

#[tokio::test]
async fn a_search_finds_a_passage_with_its_page() {
    let team = Platform::new().await.team("tk_a").await;
    let id = team.document("manuals", "pump.pdf", &PASSAGES).await;
    let worker = team.worker();
    let (status, found) = worker.search(&json!({"query": "How do I replace the filter?", "top_k": 2}));
    assert_eq!(status, 200, "{found}");
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.len(), 2, "{found}");
    assert_eq!(results[0]["content"], PASSAGES[0]);
    let metadata = &results[0]["metadata"];
    assert_eq!(
        (&metadata["page"], &metadata["source"], &metadata["document_id"], &metadata["filename"], &metadata["section"]),
        (&json!(1), &json!("s3://docs/pump.pdf"), &json!(id), &json!("pump.pdf"), &json!(["Manual"]))
    );
    assert!(metadata["chunk_id"].as_str().unwrap().starts_with("chunk_"), "{metadata}");
    let scores: Vec<f64> = results.iter().map(|result| result["score"].as_f64().unwrap()).collect();
    assert!(scores[0] >= scores[1] && scores.iter().all(|score| (0.0..=1.0).contains(score)), "{scores:?}");
}

#[tokio::test]
async fn a_search_is_narrowed_to_a_source_or_a_document() {
    let team = Platform::new().await.team("tk_a").await;
    let pump = team.document("manuals", "pump.pdf", &PASSAGES[..1]).await;
    team.document("notes", "note.pdf", &["The filter of the fan is changed from below."]).await;
    let worker = team.worker();
    for (narrowed, filename) in [(json!({"source": "notes"}), "note.pdf"), (json!({"document": pump}), "pump.pdf")] {
        let mut question = json!({"query": "filter", "top_k": 10});
        question.as_object_mut().unwrap().extend(narrowed.as_object().unwrap().clone());
        let (_, found) = worker.search(&question);
        let names: Vec<_> = found["results"].as_array().unwrap().iter().map(|result| result["metadata"]["filename"].clone()).collect();
        assert_eq!(names, [filename], "{found}");
    }
}

#[tokio::test]
async fn an_empty_knowledge_base_has_no_results() {
    let team = Platform::new().await.team("tk_a").await;
    let worker = team.worker();
    assert_eq!(worker.search(&json!({"query": "filter"})), (200, json!({"results": []})));
    assert_eq!(worker.get(&format!("/knowledge-bases/{BASE}/documents")), json!({"documents": []}));
}

#[tokio::test]
async fn what_a_search_may_not_be_is_refused() {
    let team = Platform::new().await.team("tk_a").await;
    let worker = team.worker();
    for (question, word) in [
        (json!({"query": ""}), "query"),
        (json!({"query": "x", "top_k": 101}), "top_k"),
        (json!({"query": "x", "min_score": 2}), "min_score"),
        (json!({"query": "x", "kb": "other"}), "unknown field"),
        (json!({}), "query"),
    ] {
        let (status, refused) = worker.search(&question);
        assert!(status == 400 && refused["message"].as_str().unwrap().contains(word), "{question}: {status} {refused}");
    }
}

#[tokio::test]
async fn documents_are_listed_page_by_page_and_deleted() {
    let team = Platform::new().await.team("tk_a").await;
    let mut ids = Vec::new();
    for name in ["one.pdf", "two.pdf", "three.pdf"] {
        ids.push(team.document("manuals", name, &PASSAGES[..2]).await);
    }
    let worker = team.worker();
    let path = format!("/knowledge-bases/{BASE}/documents");
    let first = worker.get(&format!("{path}?limit=2"));
    let names = |page: &serde_json::Value| -> Vec<String> {
        page["documents"].as_array().unwrap().iter().map(|document| document["filename"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&first), ["three.pdf", "two.pdf"]);
    let document = &first["documents"][0];
    assert_eq!(
        (&document["status"], &document["pages"], &document["chunk_count"], &document["source"], &document["content_type"]),
        (&json!("ready"), &json!(2), &json!(2), &json!("manuals"), &json!("application/pdf"))
    );
    assert!(document["created_at"].as_str().unwrap().ends_with('Z'), "{document}");
    let second = worker.get(&format!("{path}?limit=2&after={}", first["next"].as_str().unwrap()));
    assert_eq!((names(&second), second.get("next")), (vec!["one.pdf".to_owned()], None));
    assert_eq!(worker.send(&format!("DELETE {path}/{}", ids[1]), "", b"").0, 204);
    assert_eq!(worker.send(&format!("DELETE {path}/{}", ids[1]), "", b"").0, 404);
    assert_eq!(names(&worker.get(&path)), ["three.pdf", "one.pdf"]);
    assert_eq!(worker.send(&format!("GET {path}?limit=0"), "", b"").0, 400);
    assert_eq!(worker.send(&format!("GET {path}?page=1"), "", b"").0, 400);
}

#[tokio::test]
async fn all_documents_of_a_source_are_deleted_at_once() {
    let platform = Platform::new().await;
    let (team, other) = (platform.team("tk_a").await, platform.team("tk_b").await);
    for (source, name) in [("manuals", "one.pdf"), ("manuals", "two.pdf"), ("notes", "three.pdf")] {
        team.document(source, name, &PASSAGES[..2]).await;
    }
    other.document("manuals", "four.pdf", &PASSAGES[..2]).await;
    let worker = team.worker();
    let path = format!("DELETE /knowledge-bases/{BASE}/documents");
    for (query, expected) in [
        ("?source=manual", (200, r#"{"removed":0}"#)),
        ("?source=manuals", (200, r#"{"removed":2}"#)),
        ("?source=manuals", (200, r#"{"removed":0}"#)),
    ] {
        let (status, body) = worker.send(&format!("{path}{query}"), "", b"");
        assert_eq!((status, body.trim()), expected, "{query}");
    }
    for query in ["", "?source=", "?source=notes&all=true"] {
        assert_eq!(worker.send(&format!("{path}{query}"), "", b"").0, 400, "{query}");
    }
    let left = "select string_agg(filename, ' ' order by filename) from slipway.documents";
    assert_eq!(platform.value(left), "four.pdf three.pdf");
    let (_, found) = worker.search(&json!({"query": "filter", "top_k": 10}));
    let names: Vec<_> = found["results"].as_array().unwrap().iter().map(|result| &result["metadata"]["filename"]).collect();
    assert!(names.iter().all(|name| *name == "three.pdf") && !names.is_empty(), "{found}");
}

#[tokio::test]
async fn a_team_finds_nothing_of_another_teams() {
    let platform = Platform::new().await;
    let (first, second) = (platform.team("tk_a").await, platform.team("tk_b").await);
    let id = first.document("manuals", "pump.pdf", &PASSAGES).await;
    let worker = second.worker();
    let (status, found) = worker.search(&json!({"query": "How do I replace the filter?"}));
    assert_eq!((status, &found["results"]), (200, &json!([])), "{found}");
    assert_eq!(worker.send(&format!("DELETE /knowledge-bases/{BASE}/documents/{id}"), "", b"").0, 404);
    let line = "POST /knowledge-bases/kb_other/search";
    let (status, body) = worker.send(line, "content-type: application/json\r\n", br#"{"query": "x"}"#);
    assert!(status == 503 && body.contains("no such knowledge base"), "{status} {body}");
}
