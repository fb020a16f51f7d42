//! Every source that is read over the network, from its server to a search: four documents are ingested, one is changed, one
//! renamed, one deleted, and the next ingestion leaves what the server has now, in the database and in what is found.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use slipway_peers::plain_http;
use slipway_peers::scripted::{Scripted, ScriptedAnswer, ScriptedRequest};

use crate::ingesting::{Library, can_mount};
use crate::support::{MODEL, Worker};

const PUMP: &str = "The filter of the pump is below the lid.";
const CHANGED_PUMP: &str = "The filter of the pump is behind a blue hatch.";
const FAN: &str = "The blades of the fan are behind the grid.";
const HEATER: &str = "The fuse of the heater is beside its valve.";
const LAMP: &str = "The bulb of the lamp is held by a spring.";
const BEFORE: [(&str, &str); 4] = [("pump", PUMP), ("fan", FAN), ("heater", HEATER), ("lamp", LAMP)];

/// A document as it is to be shown.
struct Shown<'a> {
    filename: &'a str,
    heading: &'a str,
    text: &'a str,
}

/// Of files without headings.
fn files<const N: usize>(files: [(&'static str, &'static str); N]) -> [Shown<'static>; N] {
    files.map(|(filename, text)| Shown { filename, heading: "", text })
}

/// A team whose documents are at a source, and its worker.
struct Trial {
    library: Library,
    worker: Worker,
}

impl Trial {
    async fn new(credentials: &[(&str, &str)]) -> Self {
        let library = Library::new().await;
        for (key, value) in credentials {
            library.credential(key, value);
        }
        let worker = library.team.worker();
        Self { library, worker }
    }

    /// Ingests the source, and compares what is there with what should be. How the ingestion ended: documents that were new or
    /// changed, and removed.
    #[track_caller]
    fn ingests(&self, uid: &str, source: &Value, documents: &[Shown<'_>]) -> String {
        // A document is one chunk.
        let embedding = json!({"model": MODEL, "chunk_size": 128, "chunk_overlap": 0});
        let output = self.library.ingest(uid, &json!({"source": source, "embedding": embedding}));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let names =
            self.library.platform.value("select string_agg(filename || ' ' || status, ', ' order by filename) from slipway.documents");
        let mut expected: Vec<String> = documents.iter().map(|document| format!("{} ready", document.filename)).collect();
        expected.sort_unstable();
        assert_eq!(names, expected.join(", "));
        for document in documents {
            self.finds(document, documents);
        }
        self.library.ended(uid)
    }

    /// The document comes first, and others are as they should be: by vectors all of a base this small are found.
    #[track_caller]
    fn finds(&self, document: &Shown<'_>, all: &[Shown<'_>]) {
        let (status, answer) = self.worker.search(&json!({"query": document.text, "top_k": 20}));
        assert_eq!(status, 200, "{answer}");
        let results = answer["results"].as_array().unwrap();
        let shows = |result: &Value, document: &Shown<'_>| {
            let text = format!("{} {}", result["metadata"]["section"], result["content"]);
            result["metadata"]["filename"] == document.filename && text.contains(document.heading) && text.contains(document.text)
        };
        assert!(shows(&results[0], document), "{} should come first: {answer:#}", document.filename);
        assert!(results.iter().all(|result| all.iter().any(|document| shows(result, document))), "{answer:#}");
        assert_eq!(results.len(), all.len(), "{answer:#}");
    }

    /// The id under which REST shows a document.
    fn id(&self, filename: &str) -> String {
        self.library.platform.value(&format!("select id from slipway.documents where filename = '{filename}'"))
    }
}

#[track_caller]
fn send(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> String {
    let (status, answer) = plain_http(method, url, headers, body);
    assert!((200..300).contains(&status), "{method} {url}: {status} {answer}");
    answer
}

/// Where a name is the key, a rename is a deletion and an addition.
#[track_caller]
fn of_named_files(trial: &Trial, source: &Value, send: impl Fn(&str, &str, &str)) {
    for (name, text) in BEFORE {
        send("PUT", &format!("{name}.txt"), text);
    }
    let before = files([("pump.txt", PUMP), ("fan.txt", FAN), ("heater.txt", HEATER), ("lamp.txt", LAMP)]);
    assert_eq!(trial.ingests("one", source, &before), "succeeded 4 0");
    send("PUT", "pump.txt", CHANGED_PUMP);
    send("PUT", "blower.txt", FAN);
    send("DELETE", "fan.txt", "");
    send("DELETE", "heater.txt", "");
    let after = files([("pump.txt", CHANGED_PUMP), ("blower.txt", FAN), ("lamp.txt", LAMP)]);
    assert_eq!(trial.ingests("two", source, &after), "succeeded 2 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_bucket_are_followed() {
    // Whom Moto takes for the bucket's owner; it looks at no signature.
    const OWNER: &str = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x";
    if !can_mount() {
        return;
    }
    let moto = slipway_peers::moto();
    let trial = Trial::new(&[("access_key_id", "AKIAIOSFODNN7EXAMPLE"), ("secret_access_key", "of-a-test")]).await;
    let headers = [("authorization", OWNER), ("content-type", "text/plain")];
    send("PUT", &format!("{}/papers", moto.url()), &headers, "");
    let source = json!({"type": "s3", "bucket": "papers", "prefix": "docs/", "endpoint": moto.url(), "credentials_secret": "s"});
    of_named_files(&trial, &source, |method, name, text| {
        send(method, &format!("{}/papers/docs/{name}", moto.url()), &headers, text);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_databricks_volume_are_followed() {
    if !can_mount() {
        return;
    }
    let lake = slipway_peers::minilake();
    let trial = Trial::new(&[("token", "dapi1")]).await;
    let source = json!({"type": "databricks", "host": lake.url(), "path": "/Volumes/main/default/docs", "credentials_secret": "s"});
    of_named_files(&trial, &source, |method, name, text| {
        send(method, &format!("{}/api/2.0/fs/files/Volumes/main/default/docs/{name}", lake.url()), &[], text);
    });
}

/// All rows are one document with the table's name: rows change and go, and nothing is renamed.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_databricks_table_are_followed() {
    const TABLE: &str = "house.parts.manual";
    if !can_mount() {
        return;
    }
    let lake = slipway_peers::minilake();
    let trial = Trial::new(&[("token", "dapi1")]).await;
    let post = |path: &str, body: &Value| {
        let headers = [("content-type", "application/json")];
        let answer = send("POST", &format!("{}/api/{path}", lake.url()), &headers, &body.to_string());
        serde_json::from_str::<Value>(&answer).unwrap_or_default()
    };
    let warehouse = post("2.0/sql/warehouses", &json!({"name": "w"}))["id"].clone();
    post("2.1/unity-catalog/catalogs", &json!({"name": "house"}));
    post("2.1/unity-catalog/schemas", &json!({"name": "parts", "catalog_name": "house"}));
    let runs = |statement: &str| post("2.0/sql/statements", &json!({"warehouse_id": warehouse, "statement": statement}));
    runs(&format!("CREATE TABLE {TABLE} (part STRING, place STRING)"));
    runs(&format!("INSERT INTO {TABLE} VALUES ('pump', '{PUMP}'), ('heater', '{HEATER}')"));
    let source = json!({"type": "databricks", "host": lake.url(), "path": TABLE, "warehouse_id": warehouse, "credentials_secret": "s"});
    let shows = |text: &'static str| files([("house.parts.manual.csv", text)]);
    assert_eq!(trial.ingests("one", &source, &shows(HEATER)), "succeeded 1 0");
    // A table tells no version: it is read to be compared.
    assert_eq!(trial.ingests("two", &source, &shows(PUMP)), "succeeded 0 0");
    runs(&format!("UPDATE {TABLE} SET place = '{CHANGED_PUMP}' WHERE part = 'pump'"));
    runs(&format!("INSERT INTO {TABLE} VALUES ('fan', '{FAN}')"));
    runs(&format!("DELETE FROM {TABLE} WHERE part = 'heater'"));
    assert_eq!(trial.ingests("three", &source, &shows(CHANGED_PUMP)), "succeeded 1 0");
    let (_, answer) = trial.worker.search(&json!({"query": HEATER, "top_k": 20}));
    let found = answer.to_string();
    assert!(found.contains(FAN) && !found.contains(HEATER) && !found.contains(PUMP), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_google_drive_are_followed() {
    if !can_mount() {
        return;
    }
    let drive = slipway_peers::google_drive();
    // The mock has no service of tokens, and takes this one.
    let tokens = Scripted::start(|_, _| ScriptedAnswer::json(&json!({"access_token": "valid-token", "expires_in": 3600}))).await;
    let account = json!({"client_email": "reader@acme.iam.gserviceaccount.com", "private_key": rsa_key(), "token_uri": tokens.url});
    let trial = Trial::new(&[("service_account.json", &account.to_string())]).await;
    let call = |method: &str, path: &str, body: &Value| {
        let headers = [("authorization", "Bearer valid-token"), ("content-type", "application/json")];
        let answer = send(method, &format!("{}/drive/v3/files{path}", drive.url()), &headers, &body.to_string());
        serde_json::from_str::<Value>(&answer).unwrap_or_default()["id"].as_str().unwrap_or_default().to_owned()
    };
    let top = call("POST", "", &json!({"name": "top", "mimeType": "application/vnd.google-apps.folder", "parents": ["root"]}));
    let ids = BEFORE.map(|(name, text)| {
        call("POST", "", &json!({"name": format!("{name}.txt"), "mimeType": "text/plain", "parents": [top], "content": text}))
    });
    let source = json!({"type": "google-drive", "folder_id": top, "endpoint": drive.url(), "credentials_secret": "s"});
    let before = files([("pump.txt", PUMP), ("fan.txt", FAN), ("heater.txt", HEATER), ("lamp.txt", LAMP)]);
    assert_eq!(trial.ingests("one", &source, &before), "succeeded 4 0");
    let fan = trial.id("fan.txt");

    call("PATCH", &format!("/{}", ids[0]), &json!({"content": CHANGED_PUMP}));
    call("PATCH", &format!("/{}", ids[1]), &json!({"name": "blower.txt"}));
    call("DELETE", &format!("/{}", ids[2]), &json!({}));
    let after = files([("pump.txt", CHANGED_PUMP), ("blower.txt", FAN), ("lamp.txt", LAMP)]);
    // What has another name alone is not read again.
    assert_eq!(trial.ingests("two", &source, &after), "succeeded 1 1");
    assert_eq!(trial.id("blower.txt"), fan, "it is the same document");
}

/// In PKCS #8, as Google's keys are.
fn rsa_key() -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "rsa", "-b", "2048", "-m", "PKCS8", "-N", "", "-f"]).arg(&file).status();
    assert!(made.unwrap().success(), "ssh-keygen makes a key");
    fs::read_to_string(file).unwrap()
}

fn issue(at: usize, title: &str, text: &str, updated: &str) -> String {
    json!({"source_type": "jira", "doc_id": format!("i{at}"), "key": format!("PLAT-{at}"), "project": "platform", "title": title,
        "content": text, "comments": [], "issuetype": "Task", "status": "Done", "created": "2026-02-17T02:20:00Z", "updated": updated,
        "visibility": "public", "labels": ["house"], "author_email": "ava@acme.com"})
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn issues_of_jira_are_followed() {
    const EARLIER: &str = "2026-02-17T03:00:00Z";
    const LATER: &str = "2026-03-01T00:00:00Z";
    if !can_mount() {
        return;
    }
    let trial = Trial::new(&[("token", "admin-service-token")]).await;
    // Backlot's corpus stays as it is: what is changed stands in another one, with the same issues by id.
    let ingests = |uid: &str, issues: &[String], documents: &[Shown<'_>]| {
        let server = slipway_peers::backlot(&issues.join("\n"));
        let base = format!("{}/atlassian", server.url());
        trial.ingests(uid, &json!({"type": "jira", "base_url": base, "project_key": "PLAT", "credentials_secret": "s"}), documents)
    };
    let lamp = || issue(4, "Lamp", LAMP, EARLIER);
    let issues = [issue(1, "Pump", PUMP, EARLIER), issue(2, "Fan", FAN, EARLIER), issue(3, "Heater", HEATER, EARLIER), lamp()];
    let before = [
        Shown { filename: "PLAT-1.html", heading: "Pump", text: PUMP },
        Shown { filename: "PLAT-2.html", heading: "Fan", text: FAN },
        Shown { filename: "PLAT-3.html", heading: "Heater", text: HEATER },
        Shown { filename: "PLAT-4.html", heading: "Lamp", text: LAMP },
    ];
    assert_eq!(ingests("one", &issues, &before), "succeeded 4 0");
    let pump = trial.id("PLAT-1.html");

    let issues = [issue(1, "Pump", CHANGED_PUMP, LATER), issue(2, "Blower", FAN, LATER), lamp()];
    let after = [
        Shown { filename: "PLAT-1.html", heading: "Pump", text: CHANGED_PUMP },
        Shown { filename: "PLAT-2.html", heading: "Blower", text: FAN },
        Shown { filename: "PLAT-4.html", heading: "Lamp", text: LAMP },
    ];
    assert_eq!(ingests("two", &issues, &after), "succeeded 2 1");
    assert_eq!(trial.id("PLAT-1.html"), pump, "it is the same document");
}

/// A page of Confluence.
struct Page {
    title: &'static str,
    version: u32,
    text: &'static str,
}

/// By id.
type Space = Arc<Mutex<BTreeMap<u32, Page>>>;

/// Confluence's REST v2, which no server that is to be had speaks: as in the source's own tests, whose answers a client checks
/// that was made from Atlassian's OpenAPI document.
fn confluence(space: Space) -> impl Fn(&ScriptedRequest, usize) -> ScriptedAnswer {
    move |asked, _| {
        let pages = space.lock().unwrap();
        let path = asked.target.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.strip_prefix("/wiki/api/v2/").unwrap_or_default().split('/').collect();
        let list = |results: Vec<Value>| ScriptedAnswer::json(&json!({"results": results, "_links": {}}));
        match parts.as_slice() {
            ["spaces"] => list(vec![json!({"id": "77", "key": "ENG"})]),
            ["spaces", "77", "pages"] => {
                let head = |(id, Page { title, version, .. }): (&u32, &Page)| {
                    json!({"id": id.to_string(), "status": "current", "title": title, "spaceId": "77", "version": {"number": version},
                        "_links": {"webui": format!("/spaces/ENG/pages/{id}")}})
                };
                list(pages.iter().map(head).collect())
            }
            ["pages", _, "attachments"] => list(Vec::new()),
            ["pages", id] => match id.parse::<u32>().ok().and_then(|id| pages.get(&id)) {
                Some(Page { title, text, .. }) => {
                    let body = json!({"view": {"value": format!("<p>{text}</p>"), "representation": "view"}});
                    ScriptedAnswer::json(&json!({"id": id, "title": title, "body": body}))
                }
                None => ScriptedAnswer::status("404 Not Found"),
            },
            _ => ScriptedAnswer::status("404 Not Found"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_confluence_are_followed() {
    if !can_mount() {
        return;
    }
    let titles = [("Pump", PUMP), ("Fan", FAN), ("Heater", HEATER), ("Lamp", LAMP)];
    let pages = titles.map(|(title, text)| Page { title, version: 1, text });
    let space = Space::new(Mutex::new((1..).zip(pages).collect()));
    let server = Scripted::start(confluence(space.clone())).await;
    let trial = Trial::new(&[("email", "ava@acme.com"), ("api_token", "of-a-test")]).await;
    let source = json!({"type": "confluence", "space_key": "ENG", "base_url": server.url, "credentials_secret": "s"});
    let before = [
        Shown { filename: "Pump.html", heading: "Pump", text: PUMP },
        Shown { filename: "Fan.html", heading: "Fan", text: FAN },
        Shown { filename: "Heater.html", heading: "Heater", text: HEATER },
        Shown { filename: "Lamp.html", heading: "Lamp", text: LAMP },
    ];
    assert_eq!(trial.ingests("one", &source, &before), "succeeded 4 0");
    let fan = trial.id("Fan.html");

    let changed = [(1, Page { title: "Pump", version: 2, text: CHANGED_PUMP }), (2, Page { title: "Blower", version: 2, text: FAN })];
    {
        let mut pages = space.lock().unwrap();
        pages.extend(changed);
        pages.remove(&3);
    }
    let after = [
        Shown { filename: "Pump.html", heading: "Pump", text: CHANGED_PUMP },
        Shown { filename: "Blower.html", heading: "Blower", text: FAN },
        Shown { filename: "Lamp.html", heading: "Lamp", text: LAMP },
    ];
    assert_eq!(trial.ingests("two", &source, &after), "succeeded 2 1");
    assert_eq!(trial.id("Blower.html"), fan, "it is the same document");
}

/// Confluence's titles have 255 characters at most, which are up to 1,020 bytes, and the filename has an ending besides.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_with_the_longest_title_stops_no_others() {
    if !can_mount() {
        return;
    }
    let longest = "\u{1f980}".repeat(255).leak();
    let pages = [Page { title: longest, version: 1, text: PUMP }, Page { title: "Fan", version: 1, text: FAN }];
    let space = Space::new(Mutex::new((1..).zip(pages).collect()));
    let server = Scripted::start(confluence(space)).await;
    let library = Library::new().await;
    library.credential("email", "ava@acme.com");
    library.credential("api_token", "of-a-test");
    let source = json!({"type": "confluence", "space_key": "ENG", "base_url": server.url, "credentials_secret": "s"});
    for (uid, ended) in [("one", "succeeded 2 0"), ("two", "succeeded 0 0")] {
        let output = library.ingest(uid, &json!({"source": source}));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(library.ended(uid), ended);
        let line = "concat_ws(' ', status, octet_length(filename), right(filename, 5))";
        let documents = library.platform.value(&format!("select string_agg({line}, ', ' order by key) from slipway.documents"));
        assert_eq!(documents, "ready 1021 .html, ready 8 .html");
    }
}
