//! Against Backlot, which plays Drive as it was measured, with its tokens and exports, and against google-drive-mock, whose files
//! can be changed.

use slipway_peers::Server;

use super::scripted::{Scripted, ScriptedAnswer};
use super::*;

const FOLDER: &str = "application/vnd.google-apps.folder";

fn corpus() -> String {
    let file = |folder: &str, title: &str, kind: &str, content: &str| {
        json!({"source_type": "google_drive", "folder": folder, "title": title, "subtype": kind, "content": content, "visibility": "public",
            "author_email": "ava@acme.com", "created": "2026-01-15T10:00:00Z", "updated": "2026-01-15T10:00:00Z"})
        .to_string()
    };
    let mut lines = vec![
        file("handbook", "Onboarding", "document", "Day one: accounts."),
        file("handbook", "Prices", "spreadsheet", "Tier,Price\nSmall,12"),
        file("handbook", "Overview", "presentation", "Slide one."),
        file("handbook", "notes.txt", "txt", "Plain notes."),
        file("other", "secret.txt", "txt", "Not ours."),
    ];
    lines.extend((0..1100).map(|at| file("many", &format!("{at}.txt"), "txt", &format!("number {at}"))));
    lines.join("\n")
}

/// Backlot's key of a service account, with an address of the token service that needs no name.
async fn key(backlot: &Server) -> Value {
    let client = client();
    let answer = client.get(format!("{}/_meta/credentials", backlot.url())).send().await.unwrap();
    let mut key = serde_json::from_str::<Value>(&answer.text().await.unwrap()).unwrap()["service_account"].clone();
    key["token_uri"] = json!(format!("{}/oauth2/token", backlot.url()));
    key
}

fn client() -> reqwest::Client {
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::builder().no_proxy().build().unwrap()
}

fn mounts(key: &Value) -> Mounts {
    Mounts::with(&[("service_account.json", &key.to_string())])
}

fn config(folder: &str, endpoint: &str) -> Value {
    json!({"type": "google-drive", "folder_id": folder, "endpoint": endpoint, "credentials_secret": "s"})
}

#[tokio::test]
async fn a_folder_is_listed_exported_and_paged() {
    let backlot = slipway_peers::backlot(&corpus());
    let key = key(&backlot).await;
    let mounts = mounts(&key);
    let url = format!("{}/drive/v3/files?q=%27root%27+in+parents", backlot.url());
    let answer = client().get(url).header("authorization", "Bearer admin-service-token").send().await.unwrap();
    let folders: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    let id = |name: &str| {
        folders["files"].as_array().unwrap().iter().find(|file| file["name"] == name).unwrap()["id"].as_str().unwrap().to_owned()
    };

    let source = mounts.open(config(&id("handbook"), backlot.url()));
    let items = listed(&*source).await;
    let by_name: BTreeMap<&str, &Item> = items.values().map(|item| (item.filename.as_str(), item)).collect();
    assert_eq!(by_name.keys().copied().collect::<Vec<_>>(), ["Onboarding.docx", "Overview.pdf", "Prices.csv", "notes.txt"]);
    for (name, expected) in [
        ("Onboarding.docx", "Day one: accounts."),
        ("Prices.csv", "Small,12"),
        ("Overview.pdf", "Slide one."),
        ("notes.txt", "Plain notes."),
    ] {
        let content = String::from_utf8(content(&*source, by_name[name]).await.unwrap()).unwrap();
        assert!(content.contains(expected), "{name}: {content}");
    }
    assert!(by_name.values().all(|item| item.version.is_some() && item.uri.starts_with("https://")), "{items:?}");
    assert_eq!(listed(&*mounts.open(config(&id("many"), backlot.url()))).await.len(), 1100);
    assert_eq!(backlot.log().matches("POST /oauth2/token").count(), 2, "one token for each source");

    let absent = traversed(&*mounts.open(config("0Babsent", backlot.url()))).await.unwrap_err();
    assert!(absent.wrong_field() == Some("folder_id") && !absent.is_transient(), "{absent}");
    let error = content(&*source, &Item { key: "0Babsent".into(), ..by_name["notes.txt"].clone() }).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Gone, "{error}");
    // A key that Google does not know (any more).
    let mut stranger = key.clone();
    stranger["client_email"] = json!("stranger@acme.iam.gserviceaccount.com");
    let error = traversed(&*super::google_drive::mounts(&stranger).open(config(&id("handbook"), backlot.url()))).await.unwrap_err();
    assert!(error.wrong_field() == Some("credentials_secret") && error.to_string().contains("service_account.json"), "{error}");
}

/// A drive that can be written to, with a token service that gives any key a token.
struct Drive {
    server: Server,
    client: reqwest::Client,
    mounts: Mounts,
    _tokens: Scripted,
}

impl Drive {
    async fn new() -> Self {
        let backlot = slipway_peers::backlot(&corpus());
        let mut key = key(&backlot).await;
        let tokens = Scripted::start(|_, _| ScriptedAnswer::json(&json!({"access_token": "valid-token", "expires_in": 3600}))).await;
        key["token_uri"] = json!(tokens.url);
        Self { server: slipway_peers::google_drive(), client: client(), mounts: mounts(&key), _tokens: tokens }
    }

    async fn call(&self, method: reqwest::Method, path: &str, body: &Value) -> Value {
        let request =
            self.client.request(method, format!("{}/drive/v3/{path}", self.server.url())).header("authorization", "Bearer valid-token");
        let answer = request.header("content-type", "application/json").body(body.to_string()).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default()
    }

    async fn add(&self, name: &str, kind: &str, parent: &str) -> String {
        let body = json!({"name": name, "mimeType": kind, "parents": [parent], "content": name});
        self.call(reqwest::Method::POST, "files", &body).await["id"].as_str().unwrap().to_owned()
    }

    async fn patch(&self, path: &str, body: Value) {
        self.call(reqwest::Method::PATCH, &format!("files/{path}"), &body).await;
    }
}

#[tokio::test]
async fn changes_renames_moves_and_deletions_are_told() {
    let drive = Drive::new().await;
    let top = drive.add("top", FOLDER, "root").await;
    let inner = drive.add("inner", FOLDER, &top).await;
    let elsewhere = drive.add("elsewhere", FOLDER, "root").await;
    let mut ids = BTreeMap::new();
    for (name, parent) in [("a", &top), ("b", &inner), ("c", &inner), ("d", &top), ("e", &top), ("f", &elsewhere), ("g", &elsewhere)] {
        ids.insert(name, drive.add(&format!("{name}.txt"), "text/plain", parent).await);
    }
    let source = drive.mounts.open(config(&top, drive.server.url()));
    let feed = source.incremental().expect("Drive has a feed");
    assert!(feed.tells_deletions());
    let cursor = feed.now().await.unwrap();
    let before = listed(&*source).await;
    let mut names: Vec<&str> = before.values().map(|item| item.filename.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt"]);

    drive.patch(&ids["a"], json!({"name": "renamed.txt"})).await;
    drive.patch(&ids["b"], json!({"trashed": true})).await;
    drive.call(reqwest::Method::DELETE, &format!("files/{}", ids["c"]), &json!({})).await;
    drive.patch(&format!("{}?addParents={elsewhere}&removeParents={top}", ids["d"]), json!({})).await;
    drive.patch(&format!("{}?addParents={inner}&removeParents={elsewhere}", ids["f"]), json!({})).await;
    drive.patch(&ids["g"], json!({"name": "still elsewhere"})).await;
    let (mut changed, mut removed, mut at) = (BTreeMap::new(), Vec::new(), cursor);
    loop {
        let told = feed.changes(&at).await.unwrap();
        changed.extend(told.changed.into_iter().map(|item| (item.key.clone(), item.filename)));
        removed.extend(told.removed);
        at = told.next;
        if !told.more {
            break;
        }
    }
    let expected = BTreeMap::from([(ids["a"].clone(), "renamed.txt".to_owned()), (ids["f"].clone(), "f.txt".to_owned())]);
    assert_eq!(changed, expected);
    for (name, is_removed) in [("a", false), ("b", true), ("c", true), ("d", true), ("e", false), ("f", false), ("g", true)] {
        assert_eq!(removed.contains(&ids[name]), is_removed, "{name}");
    }
    let after = listed(&*source).await;
    let mut expected: Vec<&str> = ["a", "e", "f"].iter().map(|name| ids[name].as_str()).collect();
    expected.sort_unstable();
    assert_eq!(keys(&after), expected, "a traversal finds what the feed told");
}

#[tokio::test]
async fn a_rate_limit_is_waited_for_and_a_lost_place_is_told() {
    let drive = Drive::new().await;
    let limited = Scripted::start(|_, before| match before {
        0 => ScriptedAnswer(
            "403 Forbidden\r\nRetry-After: 0".into(),
            json!({"error": {"code": 403, "errors": [{"reason": "userRateLimitExceeded"}]}}).to_string().into_bytes(),
        ),
        1 => ScriptedAnswer::json(&json!({"id": "f1", "mimeType": FOLDER})),
        _ => ScriptedAnswer::json(&json!({"files": [], "incompleteSearch": true})),
    })
    .await;
    let error = traversed(&*drive.mounts.open(config("f1", &limited.url))).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("could not search all"), "{error}");
    let lost = Scripted::start(|_, _| ScriptedAnswer::status("410 Gone")).await;
    let source = drive.mounts.open(config("f1", &lost.url));
    let error = source.incremental().unwrap().changes(&ChangeCursor("1".into())).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Gone, "{error}");
    // A shared drive is no file, and takes its files along when it goes.
    for is_gone in [true, false] {
        let page = json!({"changes": [{"changeType": "drive", "removed": is_gone}], "newStartPageToken": "2"});
        let shared = Scripted::start(move |_, _| ScriptedAnswer::json(&page)).await;
        let source = drive.mounts.open(config("f1", &shared.url));
        let changes = source.incremental().unwrap().changes(&ChangeCursor("1".into())).await.unwrap();
        assert_eq!((changes.traverse, changes.more), (is_gone, false), "{changes:?}");
    }
}
