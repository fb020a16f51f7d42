//! `slipway-worker ingest` with a source that refuses documents. A few lines speak S3's protocol here: no server of others refuses
//! an object at will.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};
use slipway_api::contract::{CREDENTIALS, EGRESS_ALLOW, INGESTION};
use slipway_peers::minilm;
use tempfile::TempDir;

use crate::ingesting::can_mount;
use crate::support::{BASE, MODEL, PROGRAM, Platform, Team};

/// Mounts the folder `$1` as the Secret, and becomes the program.
const MOUNT: &str = r#"mount -t tmpfs none /run && mkdir -p "$2" && mount --bind "$1" "$2" && exec "$3" ingest"#;

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
    platform: Platform,
    team: Team,
    secret: TempDir,
    url: String,
    contents: Arc<Mutex<Contents>>,
}

impl Bucket {
    async fn new() -> Self {
        let platform = Platform::new().await;
        let team = platform.team("tk_a").await;
        let secret = tempfile::tempdir().unwrap();
        for key in ["access_key_id", "secret_access_key"] {
            fs::write(secret.path().join(key), "a-key-of-this-test").unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let contents = Arc::<Mutex<Contents>>::default();
        let served = Arc::clone(&contents);
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| answer(stream, &mut served.lock().unwrap())));
        Self { platform, team, secret, url, contents }
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
        let source = json!({"type": "s3", "bucket": "docs", "endpoint": self.url, "credentials_secret": "login"});
        ingest(&self.team, self.secret.path(), uid, &json!({"source": source}))
    }

    /// How an ingestion ended.
    fn ended(&self, uid: &str) -> String {
        self.platform.value(&format!(
            "select concat_ws(' ', phase, seen, changed, failed, removed, errors->0->>'error') from slipway.ingestions where uid = '{uid}'"
        ))
    }

    /// Each document, and whether something of it can be searched.
    fn documents(&self) -> String {
        self.platform.value(
            "select string_agg(concat_ws(' ', filename, status, (chunk_count > 0)::text), ', ' order by filename) from slipway.documents",
        )
    }
}

/// What would be the pod of an ingestion, to its end, with the Secret in a folder.
pub(crate) fn ingest(team: &Team, secret: &Path, uid: &str, more: &Value) -> Output {
    let mut config = json!({
        "uid": uid, "name": uid, "kb_id": BASE, "source_name": "remote", "upload": null,
        "embedding": {"model": MODEL, "chunk_size": 64, "chunk_overlap": 0},
    });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut command = Command::new("unshare");
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh"]).arg(secret).arg(CREDENTIALS).arg(PROGRAM);
    command.env("SLIPWAY_KNOWLEDGE_URL", &team.url).env("RUNTIME_TEAM", &team.id).env("RUNTIME_EMBEDDING_DIR", minilm());
    command.env(EGRESS_ALLOW, "127.0.0.0/8").env(INGESTION, config.to_string()).output().unwrap()
}

/// One request on a connection.
fn answer(mut stream: TcpStream, contents: &mut Contents) {
    let lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let Some(target) = head.first().and_then(|line| line.split(' ').nth(1)) else { return };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let key = path.trim_start_matches("/docs/");
    let (status, body) = if query.contains("list-type=2") {
        ("200 OK", list(contents))
    } else {
        contents.asked.push(key.to_owned());
        match contents.objects.get(key) {
            Some(object) if object.is_refused => ("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>".to_owned()),
            Some(object) => ("200 OK", object.text.clone()),
            None => ("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>".to_owned()),
        }
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    // A client that has heard enough may have gone.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}

fn list(contents: &Contents) -> String {
    let mut body = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
    for (key, Object { text, version, .. }) in &contents.objects {
        let size = text.len();
        write!(body, "<Contents><Key>{key}</Key><ETag>\"{version}\"</ETag><Size>{size}</Size></Contents>").unwrap();
    }
    body + "</ListBucketResult>"
}

#[tokio::test]
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

#[tokio::test]
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
    assert!(ended.starts_with("failed 25 0 25 1 s3://docs/19.md: ") && ended.contains("may not get this object"), "{ended}");
    assert_eq!(bucket.asked().len(), 20);
    assert!(!bucket.documents().contains("gone.md"), "what the list lacks is removed all the same");
}
