//! `slipway-worker ingest` with a folder of documents and a Secret, which lie where a pod has its volume and its Secret: in a mount
//! namespace of its own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use slipway_api::contract::{CREDENTIALS, EGRESS_ALLOW, INGESTION, LOCAL_FOLDER, UPLOADS};
use slipway_database::knowledge::{Begun, DocumentMeta, Ending, NewChunk, Quota, Report, SearchQuery};
use slipway_models::embedding::{self, Purpose};
use slipway_peers::minilm;
use tempfile::TempDir;

use crate::support::{BASE, MODEL, PROGRAM, Platform, Team};

const SOURCE: &str = "files";
/// Mounts the folders `$1` and `$3`, and becomes the program.
const MOUNT: &str = r#"mount -t tmpfs none /var/lib && mkdir -p "$2" && mount --bind "$1" "$2" &&
    mount -t tmpfs none /var/run && mkdir -p "$4" && mount --bind "$3" "$4" && exec "$5" ingest"#;

/// A team with a folder of documents, and a Secret.
pub(crate) struct Library {
    pub(crate) platform: Platform,
    pub(crate) team: Team,
    folder: TempDir,
    credentials: TempDir,
    /// Of its environment, besides what every pod of an ingestion has.
    variables: Vec<(&'static str, String)>,
}

impl Library {
    pub(crate) async fn new() -> Self {
        Self::with(Quota { documents: 1_000, chunks: 100_000 }).await
    }

    async fn with(quota: Quota) -> Self {
        let platform = Platform::new().await;
        let team = platform.team_with("tk_a", quota).await;
        let [folder, credentials] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        Self { platform, team, folder, credentials, variables: Vec::new() }
    }

    /// Of the Secret that a source names.
    pub(crate) fn credential(&self, key: &str, value: &str) {
        fs::write(self.credentials.path().join(key), value).unwrap();
    }

    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        self.variables.push((name, value.to_owned()));
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        self.write_bytes(name, text.as_bytes());
    }

    /// Makes the folders that lead there, too.
    pub(crate) fn write_bytes(&self, name: &str, bytes: &[u8]) {
        let file = self.folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.folder.path().join(name)).unwrap();
    }

    /// What would be its pod.
    pub(crate) fn start(&self, uid: &str, more: &Value) -> Child {
        let mut config = json!({
            "uid": uid, "name": uid, "kb_id": BASE, "source_name": SOURCE, "source": {"type": "local", "path": "/"}, "upload": null,
            "embedding": {"model": MODEL, "chunk_size": 64, "chunk_overlap": 0},
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut command = Command::new("unshare");
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            MOUNT,
            "sh",
        ]);
        command.arg(self.folder.path()).arg(LOCAL_FOLDER).arg(self.credentials.path()).arg(CREDENTIALS).arg(PROGRAM);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).env(EGRESS_ALLOW, "127.0.0.0/8");
        command.env("SLIPWAY_KNOWLEDGE_URL", &self.team.url).env("RUNTIME_TEAM", &self.team.id).env("RUNTIME_EMBEDDING_DIR", minilm());
        command.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command.env(INGESTION, config.to_string()).spawn().unwrap()
    }

    /// To its end.
    pub(crate) fn ingest(&self, uid: &str, more: &Value) -> Output {
        self.start(uid, more).wait_with_output().unwrap()
    }

    pub(crate) fn succeeds(&self, uid: &str) {
        let output = self.ingest(uid, &json!({}));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// How an ingestion ended: phase, documents that were new or changed, and removed, and its first error.
    pub(crate) fn ended(&self, uid: &str) -> String {
        self.platform.value(&format!(
            "select concat_ws(' ', phase, changed, removed, errors->0->>'error') from slipway.ingestions where uid = '{uid}'"
        ))
    }
}

/// Whether folders can be mounted here at all.
pub(crate) fn can_mount() -> bool {
    let there = Path::new("/usr/bin/unshare").exists();
    let tried = Command::new("unshare").args(["--user", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs none /var/lib"]).output();
    let can = there && tried.is_ok_and(|output| output.status.success());
    if !can {
        slipway_peers::skip("nobody may mount a folder here in a namespace of its own");
    }
    can
}

#[tokio::test]
async fn an_emptied_folder_removes_nothing_until_confirmed() {
    if !can_mount() {
        return;
    }
    let library = Library::new().await;
    library.write("a.md", "# Pumps\n\nThe filter is below the lid.\n");
    library.write("b.md", "# Fans\n\nThe blades are behind the grid.\n");
    library.succeeds("one");
    assert_eq!(library.ended("one"), "succeeded 2 0");
    library.remove("a.md");
    library.remove("b.md");
    let output = library.ingest("two", &json!({}));
    let (said, ended) = (String::from_utf8_lossy(&output.stderr).into_owned(), library.ended("two"));
    assert_eq!(output.status.code(), Some(2), "there is no use in another attempt: {said}");
    assert!(ended.starts_with("doubtful 0 0 ") && ended.contains("confirmRemoval: true"), "{ended}");
    let documents = || library.platform.value("select count(*) from slipway.documents");
    assert_eq!(documents(), "2");
    let output = library.ingest("three", &json!({"confirm_removal": true}));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((library.ended("three").as_str(), documents().as_str()), ("succeeded 0 2", "0"));
}

#[tokio::test]
async fn what_was_left_out_of_a_document_is_listed_until_it_is_whole() {
    if !can_mount() {
        return;
    }
    let library = Library::new().await;
    let worker = library.team.worker();
    let notes = || {
        let page = worker.get(&format!("/knowledge-bases/{BASE}/documents"));
        assert_eq!((page["documents"].as_array().map(Vec::len), &page["documents"][0]["status"]), (Some(1), &json!("ready")), "{page}");
        page["documents"][0]["notes"].clone()
    };
    library.write("parts.csv", &format!("item,price\npump,12\nfan,{}\n", "x".repeat(40 << 10)));
    library.succeeds("one");
    assert_eq!(notes(), json!(["fields of more than 32 KiB that were cut off: 1, the first is row 3"]));
    library.write("parts.csv", "item,price\npump,12\nfan,9\n");
    library.succeeds("two");
    assert_eq!(library.ended("two"), "succeeded 1 0");
    assert_eq!(notes(), json!([]));
}

#[tokio::test]
async fn two_ingestions_of_a_source_at_once_read_it_one_after_the_other() {
    const FILES: usize = 20;
    if !can_mount() {
        return;
    }
    let library = Library::new().await;
    for n in 0..FILES {
        library.write(&format!("{n}.md"), &format!("# Part {n}\n\nPart {n} of the pump is held by {n} screws.\n"));
    }
    for process in ["one", "two"].map(|uid| library.start(uid, &json!({}))) {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut ended = ["one", "two"].map(|uid| library.ended(uid));
    ended.sort();
    assert_eq!(ended, ["succeeded 0 0".to_owned(), format!("succeeded {FILES} 0")], "what one has read is nothing new for the other");
    let documents = library.platform.value("select concat_ws(' ', count(*), count(distinct key), sum(chunk_count)) from slipway.documents");
    assert_eq!(documents, format!("{FILES} {FILES} {FILES}"));
    let together = "select count(*) from slipway.ingestions a join slipway.ingestions b on a.uid < b.uid
        where a.started_at < b.ended_at and b.started_at < a.ended_at";
    assert_eq!(library.platform.value(together), "0", "one begins when the other has ended");
}

#[tokio::test]
async fn uploads_have_vectors_of_a_model_that_comes_later() {
    if !can_mount() {
        return;
    }
    let library = Library::new().await;
    // A file that was uploaded under another model, and is gone.
    let base = library.team.base();
    base.fix_model("openai:text-embedding-3-small", 3).await.unwrap();
    let Begun::Ingestion(upload) = base.begin_ingestion("upload", UPLOADS).await.unwrap() else { panic!("nobody else ingests") };
    let (section, text) = (vec!["Pumps".to_owned(), "Care".to_owned()], "Take the old filter out from below the lid.");
    let chunk = |ordinal, text: &str| NewChunk {
        ordinal,
        page: None,
        section: section.clone(),
        tokens: 10,
        start: 0,
        end: text.len() as u64,
        hash: [u8::try_from(ordinal % 251).unwrap(); 32],
        vector: Some(vec![1.0, 0.0, 0.0]),
        text: text.into(),
    };
    let mut chunks = vec![chunk(0, text)];
    // More than go at once.
    chunks.extend((1..150).map(|n| chunk(n, &format!("Screw number {n}."))));
    let meta = DocumentMeta { key: "pump.pdf".into(), filename: "pump.pdf".into(), ..DocumentMeta::default() };
    upload.put_document(&meta, chunks).await.unwrap();
    upload.end(&Report::default(), Ending::Succeeded).await.unwrap();

    library.write("a.md", "# Fans\n\nThe blades are behind the grid.\n");
    library.succeeds("one");
    assert_eq!(base.model().await.unwrap(), Some((MODEL.to_owned(), 384)));
    let variable = |name: &str| (name == "RUNTIME_EMBEDDING_DIR").then(|| minilm().to_str().unwrap().to_owned());
    let embedder = embedding::open(MODEL, &variable).unwrap();
    let vector = embedder.embed(&[format!("Pumps > Care\n{text}")], Purpose::Passage).await.unwrap().remove(0);
    let query = SearchQuery { vector: Some(vector.0), top_k: 100, ..SearchQuery::default() };
    let hits = base.search(&query).await.unwrap();
    assert!(hits[0].content == text && hits[0].cosine.unwrap() > 0.999, "{:?}", hits[0]);
    assert!(hits.len() == 100 && hits.iter().all(|hit| hit.cosine.is_some()), "all others have one, too");
    assert!(base.unembedded(None, 10).await.unwrap().is_empty());
    assert_eq!(library.platform.value("select unembedded from slipway.bases"), "f");
}

#[tokio::test]
async fn a_retried_pod_of_an_older_spec_keeps_the_present_model() {
    if !can_mount() {
        return;
    }
    let library = Library::new().await;
    library.write("a.md", "# Pumps\n\nThe filter is below the lid.\n");
    let output = library.ingest("one", &json!({"generation": 1}));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Another source, for the model of a later spec.
    let base = library.team.base();
    let Begun::Ingestion(later) = base.begin_ingestion("later", "elsewhere").await.unwrap() else { panic!("nobody else ingests") };
    later.use_model("openai:text-embedding-3-small", 3, 2).await.unwrap();
    let output = library.ingest("two", &json!({"generation": 1}));
    let ended = library.ended("two");
    assert_eq!(output.status.code(), Some(2), "there is no use in another attempt: {}", String::from_utf8_lossy(&output.stderr));
    assert!(ended.starts_with("failed 0 0 ") && ended.contains("has been given openai:text-embedding-3-small since"), "{ended}");
    assert_eq!(base.model().await.unwrap(), Some(("openai:text-embedding-3-small".to_owned(), 3)));
    let output = library.ingest("three", &json!({"generation": 3}));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(base.model().await.unwrap(), Some((MODEL.to_owned(), 384)));
}

#[tokio::test]
async fn a_full_quota_is_told_and_what_goes_makes_room() {
    if !can_mount() {
        return;
    }
    let library = Library::with(Quota { documents: 2, chunks: 100_000 }).await;
    for name in ["a.md", "b.md", "c.md", "d.md"] {
        library.write(name, &format!("# {name}\n\nThe lid of {name} is on top.\n"));
    }
    let output = library.ingest("one", &json!({}));
    let ended = library.ended("one");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(ended.starts_with("full 2 0 ") && ended.contains("have 2 documents, and may have 2"), "{ended}");
    assert_eq!(library.platform.value("select failed from slipway.ingestions"), "2");
    // Nothing that is uploaded would find room either, unless it takes another's place.
    let worker = library.team.worker();
    let (status, refused) = worker.upload("x-filename: e.md\r\n", b"# E");
    assert!(status == 409 && refused["message"].as_str().unwrap().contains("may have 2"), "{status} {refused}");
    library.remove("a.md");
    library.write("b.md", "# b.md\n\nIts lid is below now, and its screws are beside it.\n");
    // b is read again in its own place, c finds none before a has gone.
    let output = library.ingest("two", &json!({}));
    assert_eq!(output.status.code(), Some(2), "{}", library.ended("two"));
    assert!(library.ended("two").starts_with("full 1 1 "), "{}", library.ended("two"));
    library.remove("d.md");
    library.succeeds("three");
    let names = library.platform.value("select string_agg(filename, ' ' order by filename) from slipway.documents");
    assert_eq!(names, "b.md c.md");
}
