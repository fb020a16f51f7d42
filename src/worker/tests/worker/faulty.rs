//! `slipway-worker ingest` with documents of which each would end the ingestion if it were taken for a fault of all, and with an
//! embedding server of a few lines, since no other refuses a text at will or tells which texts it was sent.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use slipway_peers::scripted::{Scripted, ScriptedAnswer, ScriptedRequest};

use crate::ingesting::{Library, can_mount};

/// A text with this word is refused.
const FLAGGED: &str = "flagged";
/// At a text with this word the server fails.
const CURSED: &str = "cursed";
const ENDED: &str = "concat_ws(' ', phase, seen, changed, failed, removed)";

/// An embedding server of OpenAI's interface, and a team with a folder whose documents it embeds.
struct Embedding {
    library: Library,
    /// Of an answer to any request; 200 for vectors.
    status: Arc<AtomicU16>,
    texts: Arc<Mutex<Vec<String>>>,
}

impl Embedding {
    async fn new() -> Self {
        let (status, texts) = (Arc::new(AtomicU16::new(200)), Arc::<Mutex<Vec<String>>>::default());
        let (answers, log) = (Arc::clone(&status), Arc::clone(&texts));
        let server = Scripted::start(move |asked, _| embed(asked, answers.load(Ordering::Relaxed), &log)).await;
        let mut library = Library::new().await;
        library.set("OPENAI_BASE_URL", &format!("{}/v1", server.url));
        library.set("OPENAI_API_KEY", "sk-of-this-test");
        Self { library, status, texts }
    }

    /// Its exit code, and what it said.
    fn ingest(&self, uid: &str) -> (Option<i32>, String) {
        let embedding = json!({"model": "openai:of-this-test?dimensions=3", "chunk_size": 64, "chunk_overlap": 0});
        let output = self.library.ingest(uid, &json!({"embedding": embedding}));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[track_caller]
    fn succeeds(&self, uid: &str) -> String {
        let (code, said) = self.ingest(uid);
        assert_eq!(code, Some(0), "{said}");
        self.ended(uid)
    }

    fn ended(&self, uid: &str) -> String {
        self.library.platform.value(&format!("select {ENDED} from slipway.ingestions where uid = '{uid}'"))
    }

    /// What an ingestion says of the documents that failed, in their order.
    fn errors(&self, uid: &str) -> Vec<(String, String)> {
        let errors = self.library.platform.value(&format!("select errors from slipway.ingestions where uid = '{uid}'"));
        let errors: Vec<Value> = serde_json::from_str(&errors).unwrap();
        let text = |error: &Value, field: &str| error[field].as_str().unwrap().to_owned();
        errors.iter().map(|error| (text(error, "key"), text(error, "error"))).collect()
    }

    /// Each document, whether it has chunks, and its error.
    fn documents(&self) -> Vec<String> {
        let line = "concat_ws(' ', filename, status, (chunk_count > 0)::text, error)";
        let lines = self.library.platform.value(&format!("select string_agg({line}, chr(10) order by filename) from slipway.documents"));
        lines.lines().map(str::to_owned).collect()
    }

    /// The texts that were sent since the last call.
    fn sent(&self) -> Vec<String> {
        self.texts.lock().unwrap().drain(..).collect()
    }
}

fn embed(asked: &ScriptedRequest, status: u16, log: &Mutex<Vec<String>>) -> ScriptedAnswer {
    let refused = |head: &str, error: Value| {
        ScriptedAnswer(format!("{head}\r\nContent-Type: application/json"), json!({"error": error}).to_string().into_bytes())
    };
    match status {
        401 => return refused("401 Unauthorized", json!({"message": "Incorrect API key provided"})),
        429 => return refused("429 Too Many Requests", json!({"message": "You exceeded your quota", "type": "insufficient_quota"})),
        _ => {}
    }
    let body: Value = serde_json::from_str(&asked.body).unwrap();
    let texts: Vec<String> = body["input"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect();
    if texts.iter().any(|text| text.contains(FLAGGED)) {
        return refused("400 Bad Request", json!({"message": "the input was blocked by a filter", "type": "invalid_request_error"}));
    }
    if texts.iter().any(|text| text.contains(CURSED)) {
        return refused("500 Internal Server Error", json!({"message": "an error occurred", "type": "server_error"}));
    }
    let vectors: Vec<Value> = (0..texts.len()).map(|at| json!({"index": at, "embedding": [1.0, 0.5, 0.25]})).collect();
    log.lock().unwrap().extend(texts);
    ScriptedAnswer::json(&json!({"data": vectors}))
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_cannot_be_taken_stop_no_others() {
    if !can_mount() {
        return;
    }
    let embedding = Embedding::new().await;
    let library = &embedding.library;
    library.write("gone.md", "# Lamp\n\nThe bulb of the lamp is held by a spring.\n");
    library.write("stays.md", "# Fan\n\nThe blades of the fan are behind the grid.\n");
    assert_eq!(embedding.succeeds("one"), "succeeded 2 2 0 0");

    // In the order of names all of these come before the good one.
    library.write_bytes("a.md", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 and no more");
    library.write("b.md", &format!("# Heater\n\nThe fuse of the heater is {FLAGGED}.\n"));
    let folder = "c".repeat(250);
    library.write(&[folder.as_str(); 6].join("/"), "# Deep\n\nThis is below five folders.\n");
    library.write("good.md", "# Pump\n\nThe filter of the pump is below the lid.\n");
    library.remove("gone.md");
    let expected = [("a.md", "is cut off"), ("b.md", "blocked by a filter"), (&*folder, "its path or key has 1505 bytes")];
    // Those that failed are tried again each time, and fail alone each time.
    for (uid, ended) in [("two", "succeeded 5 1 3 1"), ("three", "succeeded 5 0 3 0")] {
        assert_eq!(embedding.succeeds(uid), ended);
        let documents = embedding.documents();
        assert_eq!(documents.len(), 4, "{documents:#?}");
        assert!(documents[0].starts_with("a.md error false ") && documents[0].contains("is cut off"), "{documents:#?}");
        assert!(documents[1].starts_with("b.md error false ") && documents[1].contains("blocked by a filter"), "{documents:#?}");
        assert_eq!(documents[2..], ["good.md ready true", "stays.md ready true"]);
        let mut errors = embedding.errors(uid);
        errors.sort();
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for ((key, error), (name, says)) in errors.iter().zip(expected) {
            assert!(key.starts_with(name) && error.contains(says), "{name} should say {says:?}: {errors:#?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_at_which_the_provider_fails_stops_no_others() {
    if !can_mount() {
        return;
    }
    let embedding = Embedding::new().await;
    // In the order of names it comes before the good one.
    embedding.library.write("b.md", &format!("# Heater\n\nThe fuse of the heater is {CURSED}.\n"));
    embedding.library.write("good.md", "# Pump\n\nThe filter of the pump is below the lid.\n");
    assert_eq!(embedding.succeeds("one"), "succeeded 2 1 1 0");
    let documents = embedding.documents();
    assert!(documents[0].starts_with("b.md error false ") && documents[0].contains("failed (500)"), "{documents:#?}");
    assert_eq!(documents[1..], ["good.md ready true"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_and_an_empty_account_end_the_ingestion() {
    if !can_mount() {
        return;
    }
    let embedding = Embedding::new().await;
    embedding.library.write("good.md", "# Pump\n\nThe filter of the pump is below the lid.\n");
    for (uid, status, says) in [("one", 401, "does not accept the credentials"), ("two", 429, "has no credit left")] {
        embedding.status.store(status, Ordering::Relaxed);
        let (code, said) = embedding.ingest(uid);
        assert_eq!(code, Some(1), "another attempt may succeed: {said}");
        assert!(embedding.ended(uid).starts_with("failed "), "{}", embedding.ended(uid));
        assert!(embedding.errors(uid)[0].1.contains(says), "{:?}", embedding.errors(uid));
        assert!(embedding.documents().is_empty(), "it is no fault of the document: {:?}", embedding.documents());
    }
    embedding.status.store(200, Ordering::Relaxed);
    assert_eq!(embedding.succeeds("three"), "succeeded 1 1 0 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_that_have_not_changed_are_not_embedded_again() {
    const SECTIONS: usize = 8;
    if !can_mount() {
        return;
    }
    let embedding = Embedding::new().await;
    let library = &embedding.library;
    let chunks =
        || library.platform.value("select concat_ws(' ', count(*), sum(chunk_count)) from slipway.documents where status = 'ready'");
    // Each section is a chunk of its own.
    let manual = |changed: &str| {
        let section = |n: usize| {
            let place = if n == 4 { changed } else { "below the lid" };
            format!("# Part {n}\n\nThe filter of part {n} is {place}. Screw {n} is turned to the left until it comes out.\n\n")
        };
        (0..SECTIONS).map(section).collect::<Vec<_>>().concat()
    };
    library.write("manual.md", &manual("below the lid"));
    assert_eq!(embedding.succeeds("one"), "succeeded 1 1 0 0");
    let (all, before) = (embedding.sent(), chunks());
    assert_eq!((all.len(), &*before), (SECTIONS, "1 8"), "each chunk is sent once: {all:#?}");

    library.write("manual.md", &manual("behind a hatch"));
    assert_eq!(embedding.succeeds("two"), "succeeded 1 1 0 0");
    let sent = embedding.sent();
    assert!(sent.len() == 1 && sent[0].contains("behind a hatch"), "one paragraph has changed: {sent:#?}");
    assert_eq!(chunks(), before);

    // Under another name it is another document, with the same texts.
    library.write("handbook.md", &manual("behind a hatch"));
    library.remove("manual.md");
    assert_eq!(embedding.succeeds("three"), "succeeded 1 1 0 1");
    assert_eq!(embedding.sent(), [""; 0], "there are vectors of all of them");
    assert_eq!((chunks(), library.platform.value("select filename from slipway.documents")), (before, "handbook.md".to_owned()));
}
