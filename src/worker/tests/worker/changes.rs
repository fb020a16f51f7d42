//! `slipway-worker ingest` with sources that tell their changes: a folder of google-drive-mock, whose files come and go, and a few lines
//! that speak Jira's protocol, since no server of others lets its issues be deleted and searched by time.

use std::process::Output;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use slipway_peers::scripted::{Scripted, ScriptedAnswer, ScriptedRequest};
use slipway_peers::{Server, plain_http};

use crate::ingesting::{Library, can_mount};
use crate::support::Platform;

const FOLDER: &str = "application/vnd.google-apps.folder";

/// A drive with one folder, and a team with a knowledge base of it.
struct Drive {
    library: Library,
    server: Server,
    folder: String,
}

impl Drive {
    async fn new() -> Self {
        let library = Library::new().await;
        // The key of a service account comes from Backlot, and the token for it from a server that gives one for any.
        let backlot = slipway_peers::backlot(
            &json!({"source_type": "google_drive", "folder": "f", "title": "t.txt", "subtype": "txt", "content": "t", "visibility": "public",
                "author_email": "ava@acme.com", "created": "2026-01-15T10:00:00Z", "updated": "2026-01-15T10:00:00Z"})
            .to_string(),
        );
        let mut key = call(backlot.url(), "GET /_meta/credentials", &Value::Null)["service_account"].clone();
        let tokens = Scripted::start(|_, _| ScriptedAnswer::json(&json!({"access_token": "valid-token", "expires_in": 3600}))).await;
        key["token_uri"] = json!(tokens.url);
        library.credential("service_account.json", &key.to_string());
        let server = slipway_peers::google_drive();
        let top = json!({"name": "top", "mimeType": FOLDER, "parents": ["root"]});
        let folder = call(server.url(), "POST /drive/v3/files", &top)["id"].as_str().unwrap().to_owned();
        Self { library, server, folder }
    }

    fn call(&self, line: &str, body: &Value) -> Value {
        call(self.server.url(), line, body)
    }

    /// A new file; its id.
    fn add(&self, name: &str) -> String {
        let content = format!("# {name}\n\nThe lid of {name} is on top.\n");
        let file = json!({"name": name, "mimeType": "text/markdown", "parents": [self.folder], "content": content});
        self.call("POST /drive/v3/files", &file)["id"].as_str().unwrap().to_owned()
    }

    fn patch(&self, id: &str, change: &Value) {
        self.call(&format!("PATCH /drive/v3/files/{id}"), change);
    }

    fn ingest(&self, uid: &str) -> Output {
        let source =
            json!({"type": "google-drive", "folder_id": self.folder, "endpoint": self.server.url(), "credentials_secret": "login"});
        self.library.ingest(uid, &json!({"source": source}))
    }

    fn succeeds(&self, uid: &str) -> String {
        let output = self.ingest(uid);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.ended(uid)
    }

    fn ended(&self, uid: &str) -> String {
        ended(&self.library.platform, uid)
    }

    fn names(&self) -> String {
        names(&self.library.platform)
    }
}

/// How an ingestion ended.
fn ended(platform: &Platform, uid: &str) -> String {
    let counts = "concat_ws(' ', phase, seen, changed, failed, removed)";
    platform.value(&format!("select {counts} from slipway.ingestions where uid = '{uid}'"))
}

fn names(platform: &Platform) -> String {
    platform.value("select string_agg(filename, ' ' order by filename) from slipway.documents")
}

/// One request, and the JSON of its answer.
fn call(url: &str, line: &str, body: &Value) -> Value {
    let (method, path) = line.split_once(' ').unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let headers = [("authorization", "Bearer valid-token"), ("content-type", "application/json")];
    let (status, said) = plain_http(method, &format!("{url}{path}"), &headers, &body);
    assert!((200..300).contains(&status), "{line}: {status} {said}");
    serde_json::from_str(&said).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_source_tells_is_read_and_what_is_doubtful_is_not() {
    if !can_mount() {
        return;
    }
    let drive = Drive::new().await;
    let [a, b, c, d] = ["a.md", "b.md", "c.md", "d.md"].map(|name| drive.add(name));
    assert_eq!(drive.succeeds("one"), "succeeded 4 4 0 0");

    drive.patch(&a, &json!({"content": "# a.md\n\nIts lid is below now, and its screws are beside it.\n"}));
    drive.patch(&b, &json!({"trashed": true}));
    drive.patch(&c, &json!({"name": "renamed.md"}));
    let late = drive.add("e.md");
    // Neither d, which nothing was told of, nor b counts as seen.
    assert_eq!(drive.succeeds("two"), "succeeded 3 2 0 1");
    assert_eq!(drive.names(), "a.md d.md e.md renamed.md");
    assert_eq!(drive.succeeds("three"), "succeeded 0 0 0 0");

    // All of it in the trash is more than a list of changes is believed.
    for id in [&a, &c, &d, &late] {
        drive.patch(id, &json!({"trashed": true}));
    }
    let output = drive.ingest("four");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(drive.ended("four").starts_with("doubtful"), "{}", drive.ended("four"));
    assert_eq!(drive.names(), "a.md d.md e.md renamed.md");

    // What is deleted for good may have been a folder, so that all is read.
    for id in [&a, &c, &d] {
        drive.patch(id, &json!({"trashed": false}));
    }
    drive.call(&format!("DELETE /drive/v3/files/{late}"), &Value::Null);
    assert_eq!(drive.succeeds("five"), "succeeded 3 0 0 1");
    assert_eq!(drive.names(), "a.md d.md renamed.md");
    assert_eq!(drive.succeeds("six"), "succeeded 0 0 0 0");

    // What somebody deletes comes back, though the source has nothing to tell of it.
    let id = drive.library.platform.value("select id from slipway.documents where filename = 'd.md'");
    assert!(drive.library.team.base().remove_document(&id).await.unwrap());
    assert_eq!(drive.succeeds("seven"), "succeeded 3 1 0 0");
}

/// What a Jira has, what was changed of it lately, which issue it refuses, and the searches that it was asked for.
#[derive(Default)]
struct Issues {
    all: Vec<u32>,
    changed: Vec<u32>,
    refused: Option<u32>,
    searches: Vec<String>,
}

fn jira(issues: &Mutex<Issues>, ScriptedRequest { target: path, body, .. }: &ScriptedRequest) -> ScriptedAnswer {
    let issue = |id: &u32| {
        let fields = json!({"summary": format!("Lid {id}"), "labels": ["lids"], "updated": "2026-02-17T03:00:00Z"});
        json!({"id": id.to_string(), "key": format!("PLAT-{id}"), "fields": fields})
    };
    if path.contains("/project/search") {
        return ScriptedAnswer::json(&json!({"values": [{"id": "1", "key": "PLAT"}]}));
    }
    if path.contains("/comment") {
        return ScriptedAnswer::json(&json!({"comments": [], "total": 0}));
    }
    let mut issues = issues.lock().unwrap();
    if let Some((_, id)) = path.split_once("/issue/") {
        let id: u32 = id.split('?').next().unwrap().parse().unwrap();
        return if issues.refused == Some(id) { ScriptedAnswer::status("403 Forbidden") } else { ScriptedAnswer::json(&issue(&id)) };
    }
    let search = serde_json::from_str::<Value>(body).unwrap()["jql"].as_str().unwrap().to_owned();
    let found = if search.contains("updated >=") { &issues.changed } else { &issues.all };
    let answer = ScriptedAnswer::json(&json!({"issues": found.iter().map(issue).collect::<Vec<_>>(), "isLast": true}));
    issues.searches.push(search);
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_untold_wait_for_a_day_or_for_somebody_who_asks() {
    if !can_mount() {
        return;
    }
    let library = Library::new().await;
    library.credential("token", "a-token-of-this-test");
    let platform = &library.platform;
    let issues = Arc::new(Mutex::new(Issues { all: vec![1, 2], ..Issues::default() }));
    let shared = Arc::clone(&issues);
    let server = Scripted::start(move |asked, _| jira(&shared, asked)).await;
    let source = json!({"type": "jira", "base_url": server.url, "project_key": "PLAT", "credentials_secret": "login"});
    let ended = |uid: &str, is_scheduled: bool| {
        let output = library.ingest(uid, &json!({"source": source, "scheduled": is_scheduled}));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lists = issues.lock().unwrap().searches.drain(..).filter(|search| !search.contains("updated >=")).count();
        (ended(platform, uid), lists)
    };
    assert_eq!(ended("one", true), ("succeeded 2 2 0 0".to_owned(), 1));

    {
        let mut issues = issues.lock().unwrap();
        (issues.all, issues.changed) = (vec![1, 3], vec![3]);
    }
    assert_eq!(ended("two", true), ("succeeded 1 1 0 0".to_owned(), 0), "nothing is listed but what has changed");
    assert_eq!(names(platform), "PLAT-1.html PLAT-2.html PLAT-3.html");
    assert_eq!(ended("three", false), ("succeeded 2 0 0 1".to_owned(), 1), "somebody wants to know");
    assert_eq!(names(platform), "PLAT-1.html PLAT-3.html");

    issues.lock().unwrap().all = vec![1];
    platform.value("update slipway.places set traversed_at = traversed_at - interval '25 hours'");
    assert_eq!(ended("four", true), ("succeeded 1 0 0 1".to_owned(), 1), "a day later");

    // An issue that nobody changes any more, and that is refused while all is read.
    {
        let mut issues = issues.lock().unwrap();
        (issues.all, issues.changed, issues.refused) = (vec![1, 4], Vec::new(), Some(4));
    }
    assert_eq!(ended("five", true), ("succeeded 0 0 0 0".to_owned(), 0));
    assert_eq!(ended("six", false), ("succeeded 2 0 1 0".to_owned(), 1));
    issues.lock().unwrap().refused = None;
    assert_eq!(ended("seven", true), ("succeeded 2 1 0 0".to_owned(), 1), "no list of changes would tell of it");
    assert_eq!(ended("eight", true), ("succeeded 0 0 0 0".to_owned(), 0));
}
