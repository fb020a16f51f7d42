//! Knowledge bases, their documents and ingestions.

use serde_json::{Value, json};
use slipway_e2e::{Golden, Reply, Team, platform, poll};
use slipway_peers::skip;

use crate::knowledge::{Caller, form};

#[test]
fn knowledge_bases_answer_as_written_down() {
    if !platform::has_database() {
        skip("the platform has no database");
        return;
    }
    let team = Team::new("golden-knowledge");
    let Some(api) = Caller::admin(&team) else { return };
    // How soon a controller has looked at an object is not the API's.
    let times = ["started_at", "finished_at", "upload", "job_id", "source", "id", "chunk_id", "document_id"];
    let mut golden =
        Golden::of("api_golden/knowledge.json").hiding(&times).uncertain(&["status", "message", "embedding_model", "next_cursor"]);
    golden.keep("POST /knowledge-bases", &api.call("POST", "").json(&json!({"name": "Docs", "description": "Rules."})).send());
    let answered = |method: &str, path: &str, body: &Value| -> Reply {
        // The team's worker may be on its way.
        poll(60, || match api.call(method, path).json(body).send() {
            reply if reply.status == 503 => Err(format!("{reply:?}")),
            reply => Ok(reply),
        })
    };
    let question = json!({"query": "When is the gate shut?"});
    golden.keep("POST /knowledge-bases/{id}/search of nothing", &answered("POST", "/kb_docs/search", &question));
    let (media, file) = form("rules.html", "text/html", "<h1>Rules</h1><p>The gate closes at ten in the evening.</p>");
    let send_file = || api.call("POST", "/kb_docs/ingest").body(&media, file.clone()).send();
    let job = |begun: &Reply| format!("/kb_docs/jobs/{}", begun.json()["data"]["job_id"].as_str().unwrap());
    let begun = send_file();
    golden.keep("POST /knowledge-bases/{id}/ingest", &begun);
    let first = job(&begun);
    let ended = poll(120, || match api.call("GET", &first).send() {
        reply if reply.json()["data"]["status"] == "completed" => Ok(reply),
        reply => Err(format!("the job should be completed: {reply:?}")),
    });
    golden.keep("GET /knowledge-bases/{id}/jobs/{job_id}", &ended);
    // Another replica of REST may have yet to hear of it.
    let listed = poll(30, || match api.call("GET", "/kb_docs/jobs").send() {
        reply if reply.json()["data"][0]["status"] == "completed" => Ok(reply),
        reply => Err(format!("the list should have the job as completed: {reply:?}")),
    });
    golden.keep("GET /knowledge-bases/{id}/jobs", &listed);
    golden.keep("POST /knowledge-bases/{id}/search", &answered("POST", "/kb_docs/search", &question));
    let documents = api.call("GET", "/kb_docs/documents").send();
    golden.keep("GET /knowledge-bases/{id}/documents", &documents);
    let document = documents.json()["data"][0]["id"].as_str().unwrap().to_owned();
    golden.keep("DELETE /knowledge-bases/{id}/documents/{doc}", &api.call("DELETE", &format!("/kb_docs/documents/{document}")).send());
    golden.keep("DELETE /knowledge-bases/{id}/documents", &api.call("DELETE", "/kb_docs/documents?source=uploads").send());
    let cancelled = api.call("POST", &format!("{}/cancel", job(&send_file()))).send();
    golden.keep_but("POST /knowledge-bases/{id}/jobs/{job_id}/cancel", &cancelled, &["started_at", "finished_at"]);
    let counted = ["document_count", "chunk_count", "embedding_dim", "last_job_id"];
    let replaced = api.call("PUT", "/kb_docs").json(&json!({"name": "Docs", "chunk_size": 256})).send();
    golden.keep_but("PUT /knowledge-bases/{id}", &replaced, &counted);
    let all = poll(30, || match api.call("GET", "").send() {
        reply if reply.json()["data"][0]["chunk_size"] == 256 => Ok(reply),
        reply => Err(format!("the list should have the knowledge base as it was replaced: {reply:?}")),
    });
    golden.keep_but("GET /knowledge-bases", &all, &counted);
    golden.keep_but("GET /knowledge-bases/{id}", &api.call("GET", "/kb_docs").send(), &counted);
    golden.keep("DELETE /knowledge-bases/{id}", &api.call("DELETE", "/kb_docs").send());
    assert_eq!(team.kubectl("get knowledgebase/docs --ignore-not-found -o name").ok(), "", "it is gone from the cluster");
    golden.compare();
}
