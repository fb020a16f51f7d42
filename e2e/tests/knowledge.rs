//! Knowledge bases: filled from a volume, by schedules and by uploads, searched by REST and by agents, and gone with all that is in them.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Call, Team, condition, fresh, kubectl, platform, poll, until};
use slipway_peers::{python, repository, skip};

/// How long an ingestion of a few files may take, the start of its pod included.
const SECONDS: u64 = 120;

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "agents.slipway.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn base(team: &Team, name: &str, spec: &Value) {
    let mut whole = object("KnowledgeBase", name, &json!({"name": name, "description": "Rules of the house."}));
    whole["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    team.apply(&whole);
}

/// Waits until an Ingestion has ended, and returns its status.
#[track_caller]
fn ended(team: &Team, name: &str) -> Value {
    until(&format!("ingestions -n {} --field-selector metadata.name={name}", team.namespace), SECONDS, |found| {
        let status = found.first().map(|found| found["status"].clone()).unwrap_or_default();
        match status["phase"].as_str() {
            Some("Completed" | "Failed" | "Cancelled") => Ok(status),
            _ => Err(format!("ingestion {name} should end: {status:#}")),
        }
    })
}

#[track_caller]
fn ingested(team: &Team, name: &str, source: &str) -> Value {
    team.apply(&object("Ingestion", name, &json!({"knowledgeBase": "docs", "sourceName": source})));
    let status = ended(team, name);
    assert_eq!(status["phase"], "Completed", "{status:#}");
    status["documents"].clone()
}

#[track_caller]
fn base_until(team: &Team, what: &str, want: impl Fn(&Value) -> bool) -> Value {
    until(&format!("knowledgebases -n {} --field-selector metadata.name=docs", team.namespace), 30, |found| {
        let found = found.first().cloned().unwrap_or_default();
        if want(&found) { Ok(found) } else { Err(format!("the base should be {what}: {:#}", found["status"])) }
    })
}

/// The installed REST API, as a developer of the team calls it: workers answer the platform alone.
pub(crate) struct Caller {
    api: Api,
    token: String,
}

impl Caller {
    /// None where it cannot be reached from here.
    #[track_caller]
    fn of(team: &Team) -> Option<Self> {
        Self::with(team, "developer")
    }

    #[track_caller]
    pub(crate) fn admin(team: &Team) -> Option<Self> {
        Self::with(team, "admin")
    }

    #[track_caller]
    fn with(team: &Team, role: &str) -> Option<Self> {
        let caller = Self { api: Api::installed()?, token: team.token(role) };
        // It hears of a role a moment after that was given.
        poll(30, || match caller.call("GET", "").send() {
            reply if reply.status == 403 => Err(format!("{reply:?}")),
            _ => Ok(()),
        });
        Some(caller)
    }

    pub(crate) fn call(&self, method: &str, path: &str) -> Call {
        self.api.call(method, &format!("/knowledge-bases{path}")).token(&self.token)
    }
}

/// The sources of what is found, by their files' names.
#[track_caller]
fn found(api: &Caller, query: &str) -> Vec<String> {
    let body = json!({"query": query, "top_k": 5});
    let answer = api.call("POST", "/kb_docs/search").json(&body).expect(200);
    let results = answer["data"]["results"].as_array().cloned().unwrap_or_default();
    for result in &results {
        assert!(result["score"].as_f64().is_some_and(|score| (0.0..=1.0).contains(&score)), "{result:#}");
        assert!(result["content"].is_string() && result["metadata"]["chunk_id"].as_str().is_some_and(|id| id.starts_with("chunk_")));
    }
    results.iter().map(|result| result["metadata"]["source"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A page with one line.
fn pdf(line: &str) -> String {
    let content = format!("BT /F1 12 Tf 72 720 Td ({line}) Tj ET");
    let objects = [
        "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
        "<</Type/Pages/Kids[3 0 R]/Count 1>>".to_owned(),
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 4 0 R>>>>/Contents 5 0 R>>".to_owned(),
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>".to_owned(),
        format!("<</Length {}>>\nstream\n{content}\nendstream", content.len()),
    ];
    let (mut whole, mut places) = ("%PDF-1.4\n".to_owned(), String::new());
    for (number, object) in (1..).zip(&objects) {
        writeln!(places, "{:010} 00000 n ", whole.len()).unwrap();
        writeln!(whole, "{number} 0 obj\n{object}\nendobj").unwrap();
    }
    let start = whole.len();
    write!(whole, "xref\n0 6\n0000000000 65535 f \n{places}trailer\n<</Size 6/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n").unwrap();
    whole
}

/// A document whose second page is the picture of a printed page, as the tests of the reader make it.
fn scan() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let manual = slipway_peers::documents().join("debian/usr/share/doc/debian-policy/fhs/fhs-3.0.pdf.gz");
    let printed = Command::new("gzip").arg("-dc").arg(&manual).output().unwrap().stdout;
    let printed_path = folder.path().join("fhs.pdf");
    fs::write(&printed_path, printed).unwrap();
    let raster = ["-singlefile", "-r", "200", "-f", "12", "-l", "12"];
    let status = Command::new("pdftoppm").args(raster).arg(&printed_path).arg(folder.path().join("page")).status();
    assert!(status.unwrap().success(), "page 12 of {} is rastered", manual.display());
    let script = repository().join("src/knowledge/extract/pdf/tests/documents.py");
    let output = python(&script, &["picture", &folder.path().display().to_string()], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read(folder.path().join("picture.pdf")).unwrap()
}

/// A volume of the team whose files the test writes. None where the node is another machine.
pub(crate) struct Volume {
    folder: tempfile::TempDir,
    name: String,
}

impl Volume {
    #[track_caller]
    pub(crate) fn of(team: &Team) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        // Pods read it as another user.
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let address = kubectl("get nodes -o jsonpath={.items[*].status.addresses[?(@.type=='InternalIP')].address}").ok();
        let here = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
        if !address.split_whitespace().all(|address| here.contains(address)) {
            skip("files on a node are written only where the node is this machine");
            return None;
        }
        let name = format!("{}-handbook", team.slug);
        let common = json!({"accessModes": ["ReadOnlyMany"], "storageClassName": ""});
        let mut volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": common});
        volume["spec"]["capacity"] = json!({"storage": "1Mi"});
        volume["spec"]["hostPath"] = json!({"path": folder.path()});
        kubectl("apply -f -").input(volume).ok();
        let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "handbook"}, "spec": common});
        claim["spec"]["volumeName"] = json!(name);
        claim["spec"]["resources"] = json!({"requests": {"storage": "1Mi"}});
        team.apply(&claim);
        Some(Self { folder, name })
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join(name), content).unwrap();
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        kubectl(format!("delete persistentvolume {} --wait=false --ignore-not-found", self.name)).run();
    }
}

#[test]
fn a_base_follows_its_source_and_agents_answer_from_it() {
    if !platform::has_database() {
        skip("the platform has no database");
        return;
    }
    let team = Team::with(&fresh("knowledge"), &json!({"knowledgeVolume": "handbook"}));
    let Some(volume) = Volume::of(&team) else { return };
    volume.write("leave.html", "<main><h1>Leave</h1><p>Every employee has thirty days of paid holiday a year.</p></main>");
    volume.write("travel.md", "# Travel\n\nTrains are booked in second class. Flights need the consent of the head of department.\n");
    volume.write("prices.csv", "item,price\ncoffee,2.50\ntea,1.80\n");
    volume.write("broken.docx", "this is no archive");
    volume.write("keys.pdf", pdf("The key of the cellar hangs behind the door."));
    volume.write("scan.pdf", scan());
    base(&team, "docs", &json!({"sources": [{"name": "handbook", "local": {"path": "/"}}]}));
    let empty = base_until(&team, "empty", |base| base["status"]["phase"] == "Empty");
    assert_eq!(empty["status"]["id"], "kb_docs", "{:#}", empty["status"]);

    let documents = ingested(&team, "first", "handbook");
    assert_eq!((&documents["seen"], &documents["changed"], &documents["failed"]), (&json!(6), &json!(5), &json!(1)), "{documents}");
    let errors = team.get("ingestion first")["status"]["errors"].clone();
    assert!(errors[0]["document"].as_str().is_some_and(|name| name.contains("broken.docx")), "{errors}");
    let ready = base_until(&team, "ready", |base| base["status"]["phase"] == "Ready");
    assert_eq!((&ready["status"]["documents"], &ready["status"]["failedDocuments"]), (&json!(5), &json!(1)), "{:#}", ready["status"]);
    assert_eq!(condition(&ready, "Ready")["status"], "True");
    let table = team.kubectl("get knowledgebases docs").ok();
    for column in ["PHASE", "DOCUMENTS", "Ready"] {
        assert!(table.contains(column), "{column} should be in {table}");
    }

    let Some(api) = Caller::of(&team) else { return };
    poll(30, || match api.call("POST", "/docs/search").json(&json!({"query": "holiday"})).send() {
        reply if reply.status == 200 => Ok(()),
        reply => Err(format!("the worker should be there: {reply:?}")),
    });
    assert!(found(&api, "How many days of vacation do I get?")[0].contains("leave.html"));
    assert!(found(&api, "price of tea")[0].contains("prices.csv"));
    let keys = api.call("POST", "/docs/search").json(&json!({"query": "cellar key"})).expect(200)["data"]["results"][0].clone();
    assert_eq!((&keys["metadata"]["filename"], &keys["metadata"]["page"]), (&json!("keys.pdf"), &json!(1)), "{keys:#}");
    // The image of the pod has the programs that read pictures.
    let question = json!({"query": "utility to concatenate files to standard output"});
    let seen = api.call("POST", "/docs/search").json(&question).expect(200)["data"]["results"].clone();
    let is_seen = |hit: &Value| {
        hit["metadata"]["filename"] == "scan.pdf" && hit["content"].as_str().is_some_and(|text| text.contains("concatenate files"))
    };
    assert!(seen.as_array().is_some_and(|hits| hits.iter().any(is_seen)), "{seen:#}");
    let listed = api.call("GET", "/docs/documents").expect(200)["data"].clone();
    let notes = |name: &str| listed.as_array().unwrap().iter().find(|document| document["filename"] == name).unwrap()["notes"].clone();
    assert!(notes("scan.pdf")[0].as_str().is_some_and(|note| note.starts_with("page 2 is an image and was read by OCR")), "{listed:#}");
    assert_eq!(notes("keys.pdf"), json!([]), "{listed:#}");

    // An agent is given what is found, and says where it is from.
    let agent = team.agent("helper", &json!({"knowledgeBases": ["kb_docs"]}));
    agent.ready();
    sources_until(&agent, "May I book a flight?", |sources| sources.iter().any(|source| source.contains("travel.md")));

    // What has not changed is not read again; what is gone is found no more.
    assert_eq!(ingested(&team, "again", "handbook")["changed"], 0);
    fs::remove_file(volume.path().join("leave.html")).unwrap();
    fs::rename(volume.path().join("prices.csv"), volume.path().join("menu.csv")).unwrap();
    volume.write("travel.md", "# Travel\n\nBicycles are lent by the porter.\n");
    let documents = ingested(&team, "later", "handbook");
    assert_eq!((&documents["changed"], &documents["removed"]), (&json!(2), &json!(2)), "{documents}");
    assert!(found(&api, "vacation days of employees").iter().all(|source| !source.contains("leave.html")));
    assert!(found(&api, "price of tea")[0].contains("menu.csv"));
    assert!(found(&api, "borrow a bicycle")[0].contains("travel.md"));

    // Another base of its name has nothing of it.
    team.kubectl("delete knowledgebase docs --wait").ok();
    base(&team, "docs", &json!({}));
    base_until(&team, "empty", |base| base["status"]["phase"] == "Empty");
    assert!(found(&api, "price of tea").is_empty());
}

/// Asks until the answer's sources are as wanted: a pod that runs since before an ingestion may know an older state.
#[track_caller]
fn sources_until(agent: &Agent, question: &str, want: impl Fn(&[String]) -> bool) {
    poll(30, || {
        let answer = agent.post("/chat/stream", &json!({"message": question}));
        let mut events = answer.body.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
        let found = events.find(|event| event["type"] == "sources").unwrap_or_default();
        let sources = found["sources"].as_array().cloned().unwrap_or_default();
        let sources: Vec<String> = sources.iter().map(|source| source["source"].as_str().unwrap_or_default().to_owned()).collect();
        if want(&sources) { Ok(()) } else { Err(format!("the answer should have other sources: {sources:?}")) }
    });
}

#[test]
fn a_schedule_makes_one_ingestion_at_its_time() {
    const QUOTA: &str = "count/ingestions.agents.slipway.dev";
    if !platform::has_database() {
        skip("the platform has no database");
        return;
    }
    let team = Team::new(&fresh("schedule"));
    let full = team.beside(&fresh("schedule-full"));
    full.apply_spec(&json!({"quota": {QUOTA: "0"}}));
    until(&format!("resourcequotas -n {}", full.namespace), 30, |found| {
        let is_held = found.iter().any(|quota| quota["status"]["hard"][QUOTA] == "0");
        if is_held { Ok(()) } else { Err(format!("the quota should hold: {found:#?}")) }
    });
    let sources = json!([
        {"name": "handbook", "schedule": "* * * * *", "local": {"path": "/"}},
        {"name": "archive", "local": {"path": "/archive"}},
    ]);
    for team in [&team, &full] {
        base(team, "docs", &json!({"sources": sources}));
    }
    let is_planned = |base: &Value, after: &str| base["status"]["schedules"][0]["nextAt"].as_str().is_some_and(|next| next > after);
    let planned = base_until(&team, "planned", |base| is_planned(base, ""));
    let next = planned["status"]["schedules"][0]["nextAt"].as_str().unwrap();
    // Its name follows from its time.
    let stamp: String = next.chars().filter(char::is_ascii_digit).take(12).collect();
    let made = until(&format!("ingestions -n {}", team.namespace), 75, |found| {
        let is_named = |found: &&Value| found["metadata"]["name"].as_str().is_some_and(|name| name.ends_with(&stamp));
        found.iter().find(is_named).cloned().ok_or_else(|| format!("there should be an ingestion of {next}"))
    });
    assert_eq!((&made["spec"]["knowledgeBase"], &made["spec"]["sourceName"]), (&json!("docs"), &json!("handbook")), "{made:#}");
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&planned["metadata"]["uid"], &json!(true)), "{owner:#}");
    base_until(&team, "planned anew", |base| is_planned(base, next));
    let all = team.kubectl("get ingestions").json();
    let all = all["items"].as_array().unwrap();
    let at_once = all.iter().filter(|found| found["metadata"]["name"].as_str().is_some_and(|name| name.ends_with(&stamp))).count();
    assert!(at_once == 1 && all.iter().all(|found| found["spec"]["sourceName"] == "handbook"), "{all:#?}");

    // Where none can be made, the base says so, and waits for the next time.
    let uid = full.get("knowledgebase docs")["metadata"]["uid"].as_str().unwrap().to_owned();
    until(&format!("events -n {} --field-selector reason=ScheduleMissed,involvedObject.uid={uid}", full.namespace), 75, |events| {
        let notes: Vec<_> = events.iter().filter_map(|event| event["message"].as_str()).collect();
        let is_told = notes.iter().any(|note| note.contains("source handbook was not read at ") && note.contains("quota"));
        if is_told { Ok(()) } else { Err(format!("an Event should say which source was not read, and why: {notes:?}")) }
    });
    assert_eq!(full.kubectl("get ingestions").json()["items"], json!([]));
    base_until(&full, "planned anew", |base| is_planned(base, next));

    team.kubectl("delete knowledgebase docs --wait").ok();
    poll(60, || match team.kubectl("get ingestions").json()["items"].clone() {
        left if left == json!([]) => Ok(()),
        left => Err(format!("ingestions should go with their base: {left:#}")),
    });
}

const BOUNDARY: &str = "e2e-boundary";

/// A form with one file, and its type.
pub(crate) fn form(filename: &str, media: &str, content: &str) -> (String, String) {
    let whole = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{filename}\"\r\nContent-Type: {media}\r\n\r\n{content}\r\n--{BOUNDARY}--\r\n"
    );
    (format!("multipart/form-data; boundary={BOUNDARY}"), whole)
}

#[test]
fn a_file_is_uploaded_found_by_its_team_alone_and_deleted() {
    if !platform::has_database() {
        skip("the platform has no database");
        return;
    }
    let team = Team::new(&fresh("uploads"));
    let Some(api) = Caller::of(&team) else { return };
    let made = api.call("POST", "").json(&json!({"name": "Docs"})).expect(201)["data"].clone();
    assert_eq!(
        (&made["id"], &made["slug"], &made["status"], &made["document_count"], &made["chunk_size"], &made["chunk_overlap"]),
        (&json!("kb_docs"), &json!("docs"), &json!("empty"), &json!(0), &json!(512), &json!(50)),
        "{made:#}"
    );
    let upload = |name: &str, text: &str| {
        let (media, file) = form(name, "text/html", text);
        poll(60, || {
            let reply = api.call("POST", "/kb_docs/ingest").body(&media, file.clone()).send();
            // Its worker may be on its way.
            if reply.status == 503 { Err(format!("{reply:?}")) } else { Ok(reply) }
        })
    };
    let begun = upload("rules.html", "<h1>Rules</h1><p>The gate closes at ten in the evening.</p>");
    assert_eq!(begun.status, 202, "{begun:?}");
    let begun = begun.json();
    let job = begun["data"]["job_id"].as_str().or(begun["job_id"].as_str()).unwrap().to_owned();
    let status = poll(SECONDS, || {
        let job = api.call("GET", &format!("/kb_docs/jobs/{job}")).expect(200)["data"].clone();
        match job["status"].as_str() {
            Some("completed" | "failed" | "cancelled") => Ok(job),
            _ => Err(format!("the job should end: {job:#}")),
        }
    });
    assert_eq!(status["status"], "completed", "{status:#}");
    let documents = api.call("GET", "/kb_docs/documents").expect(200)["data"].clone();
    let document = documents[0].clone();
    assert_eq!((&document["filename"], &document["status"]), (&json!("rules.html"), &json!("ready")), "{documents:#}");
    assert_eq!(found(&api, "When is the gate shut?"), ["rules.html"]);

    // Another team's base of the same name knows nothing of it.
    let other = team.beside(&fresh("uploads-other"));
    let Some(theirs) = Caller::of(&other) else { return };
    theirs.call("POST", "").json(&json!({"name": "Docs"})).expect(201);
    poll(60, || match theirs.call("POST", "/kb_docs/search").json(&json!({"query": "gate"})).send() {
        reply if reply.status == 200 => {
            assert_eq!(reply.json()["data"]["results"], json!([]));
            Ok(())
        }
        reply => Err(format!("the worker should be there: {reply:?}")),
    });

    let path = format!("/kb_docs/documents/{}", document["id"].as_str().unwrap());
    let gone = api.call("DELETE", &path).send();
    assert!(matches!(gone.status, 200 | 204), "{gone:?}");
    assert!(found(&api, "When is the gate shut?").is_empty());
}
