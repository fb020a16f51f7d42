//! `slipway-worker ingest` with a source that refuses documents. A few lines speak S3's protocol here: no server of others refuses
//! an object at will.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Output;
use std::sync::{Arc, Mutex};

use serde_json::json;
use slipway_peers::scripted::{Scripted, ScriptedAnswer, ScriptedRequest};

use crate::ingesting::{Library, can_mount};

#[derive(Clone, Default)]
struct Object {
    text: String,
    version: u32,
    is_refused: bool,
}

#[derive(Default)]
struct Contents {
    objects: BTreeMap<String, Object>,
    /// The keys of objects that were asked for.
    asked: Vec<String>,
}

/// A bucket, and a team with a knowledge base of it.
struct Bucket {
    library: Library,
    server: Scripted,
    contents: Arc<Mutex<Contents>>,
}

impl Bucket {
    async fn new() -> Self {
        let library = Library::new().await;
        for key in ["access_key_id", "secret_access_key"] {
            library.credential(key, "a-key-of-this-test");
        }
        let contents = Arc::<Mutex<Contents>>::default();
        let shared = Arc::clone(&contents);
        let server = Scripted::start(move |asked, _| answer(asked, &mut shared.lock().unwrap())).await;
        Self { library, server, contents }
    }

    fn put(&self, key: &str, version: u32, is_refused: bool) {
        let object = Object { text: format!("# {key}\n\nThe lid of {key} is on top, version {version}.\n"), version, is_refused };
        self.contents.lock().unwrap().objects.insert(key.to_owned(), object);
    }

    fn remove(&self, key: &str) {
        self.contents.lock().unwrap().objects.remove(key).unwrap();
    }

    /// The keys of objects that were asked for since the last call.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.contents.lock().unwrap().asked)
    }

    fn ingest(&self, uid: &str) -> Output {
        let source = json!({"type": "s3", "bucket": "docs", "endpoint": self.server.url, "credentials_secret": "login"});
        self.library.ingest(uid, &json!({"source": source}))
    }

    /// How an ingestion ended.
    fn ended(&self, uid: &str) -> String {
        self.library.platform.value(&format!(
            "select concat_ws(' ', phase, seen, changed, failed, removed, errors->0->>'error') from slipway.ingestions where uid = '{uid}'"
        ))
    }

    /// Each document, and whether something of it can be searched.
    fn documents(&self) -> String {
        self.library.platform.value(
            "select string_agg(concat_ws(' ', filename, status, (chunk_count > 0)::text), ', ' order by filename) from slipway.documents",
        )
    }
}

fn answer(asked: &ScriptedRequest, contents: &mut Contents) -> ScriptedAnswer {
    let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
    if query.contains("list-type=2") {
        return ScriptedAnswer("200 OK".into(), list(contents).into_bytes());
    }
    let key = path.trim_start_matches("/docs/");
    contents.asked.push(key.to_owned());
    match contents.objects.get(key) {
        Some(object) if object.is_refused => ScriptedAnswer("403 Forbidden".into(), b"<Error><Code>AccessDenied</Code></Error>".to_vec()),
        Some(object) => ScriptedAnswer("200 OK".into(), object.text.clone().into_bytes()),
        None => ScriptedAnswer("404 Not Found".into(), b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
    }
}

fn list(contents: &Contents) -> String {
    let mut body = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
    for (key, Object { text, version, .. }) in &contents.objects {
        let size = text.len();
        write!(body, "<Contents><Key>{key}</Key><ETag>\"{version}\"</ETag><Size>{size}</Size></Contents>").unwrap();
    }
    body + "</ListBucketResult>"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_object_stops_neither_others_nor_deletions() {
    if !can_mount() {
        return;
    }
    let bucket = Bucket::new().await;
    for key in ["a.md", "b.md", "c.md"] {
        bucket.put(key, 1, false);
    }
    let output = bucket.ingest("one");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(bucket.ended("one"), "succeeded 3 3 0 0");

    bucket.put("a.md", 2, true);
    bucket.remove("b.md");
    bucket.put("d.md", 1, false);
    let output = bucket.ingest("two");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ended = bucket.ended("two");
    assert!(ended.starts_with("succeeded 3 1 1 1 ") && ended.contains("may not get this object"), "{ended}");
    assert_eq!(bucket.documents(), "a.md error true, c.md ready true, d.md ready true", "what was indexed of it before stays");

    bucket.put("a.md", 2, false);
    assert!(bucket.ingest("three").status.success());
    assert_eq!((bucket.ended("three").as_str(), bucket.documents().contains("error")), ("succeeded 3 1 0 0", false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_refuses_all_is_asked_for_twenty_documents() {
    if !can_mount() {
        return;
    }
    let bucket = Bucket::new().await;
    bucket.put("gone.md", 1, false);
    assert!(bucket.ingest("one").status.success());
    bucket.remove("gone.md");
    (0..25).for_each(|at| bucket.put(&format!("{at:02}.md"), 1, true));
    bucket.asked();
    let output = bucket.ingest("two");
    let ended = bucket.ended("two");
    assert_eq!(output.status.code(), Some(1), "another attempt may succeed: {}", String::from_utf8_lossy(&output.stderr));
    assert!(ended.starts_with("failed 25 0 25 1 the source refuses one document after the other, and after 20 in a row "), "{ended}");
    assert!(ended.contains("Mend its credentials") && ended.contains(" s3://docs/19.md: ") && ended.contains("may not get"), "{ended}");
    assert_eq!(bucket.asked().len(), 20);
    assert!(!bucket.documents().contains("gone.md"), "what the list lacks is removed all the same");
}
