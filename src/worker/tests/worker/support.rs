//! A team with a knowledge base, and its worker.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use slipway_database::knowledge::{BaseSpec, Begun, DocumentMeta, KnowledgeAdmin, KnowledgeBase, KnowledgeOptions, NewChunk, Quota};
use slipway_database::{Ensured, Home, Login, Passwords, Tenants, migrate};
use slipway_models::embedding::{self, Purpose};
use slipway_peers::{Postgres, minilm};

pub(crate) const BASE: &str = "kb_docs";
pub(crate) const MODEL: &str = "builtin:all-minilm-l6-v2";
const QUOTA: u64 = 1 << 30;

static SERVER: LazyLock<Postgres> = LazyLock::new(Postgres::start);
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A platform's database with its sibling.
pub(crate) struct Platform {
    name: String,
    url: String,
}

/// A team of the platform, with a knowledge base.
pub(crate) struct Team {
    pub(crate) id: String,
    pub(crate) url: String,
}

impl Platform {
    pub(crate) async fn new() -> Self {
        let name = format!("platform{}", NEXT.fetch_add(1, Ordering::Relaxed));
        SERVER.psql(&format!("create database {name}"));
        let url = SERVER.url_of("postgres", "postgres", &name);
        migrate(&url, None, None).await.unwrap();
        Self { name, url }
    }

    pub(crate) async fn team(&self, team: &str) -> Team {
        self.team_with(team, Quota { documents: 1_000, chunks: 100_000 }).await
    }

    pub(crate) async fn team_with(&self, team: &str, quota: Quota) -> Team {
        let home = Home { team: team.into(), uid: format!("uid-of-{team}"), created: 0, adopts: None, cluster: "here".into() };
        let password = format!("a-long-password-of-team-{team}");
        let passwords = Passwords { before: format!("{password}-before"), own: password };
        let ensured = Tenants::open(&self.url, None, None).unwrap().ensure(&home, &passwords).await.unwrap();
        let Ensured::Login(Login { user, password }) = ensured else { panic!("a superuser makes logins") };
        let admin = KnowledgeAdmin::open(&self.url, None, None).unwrap();
        admin.migrate().await.unwrap();
        admin.admit(team, &home.uid, &user).await.unwrap();
        let spec = BaseSpec {
            uid: format!("base-of-{team}"),
            team: team.into(),
            team_uid: home.uid,
            kb_id: BASE.into(),
            upload_quota: QUOTA,
            team_upload_quota: QUOTA,
            quota,
        };
        admin.ensure_base(&spec).await.unwrap();
        let url = SERVER.url_of(&user, &password, admin.database());
        Team { id: team.into(), url }
    }

    /// One column of one row of the sibling database.
    pub(crate) fn value(&self, sql: &str) -> String {
        let output = self.psql().args(["--command", sql]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A session of the sibling database's owner.
    pub(crate) fn psql(&self) -> Command {
        let url = SERVER.url_of("postgres", "postgres", &format!("{}_knowledge", self.name));
        let mut command = Command::new(slipway_peers::root().join("postgresql/lib/18/bin/psql"));
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--dbname", &url]);
        command
    }
}

impl Team {
    pub(crate) fn base(&self) -> KnowledgeBase {
        let (url, team) = (self.url.clone(), self.id.clone());
        let options = KnowledgeOptions { url, password: None, sslmode: None, team, kb_id: BASE.into(), connections: 2 };
        KnowledgeBase::open(&options).unwrap()
    }

    /// Ingests a document of these passages, each on a page of its own.
    pub(crate) async fn document(&self, source: &str, filename: &str, passages: &[&str]) -> String {
        let variable = |name: &str| (name == "RUNTIME_EMBEDDING_DIR").then(|| minilm().to_str().unwrap().to_owned());
        let embedder = embedding::open(MODEL, &variable).unwrap();
        let texts: Vec<String> = passages.iter().map(|text| (*text).to_owned()).collect();
        let vectors = embedder.embed(&texts, Purpose::Passage).await.unwrap();
        let base = self.base();
        base.fix_model(MODEL, u32::try_from(embedder.dimensions()).unwrap()).await.unwrap();
        let uid = format!("ingestion-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let Begun::Ingestion(ingestion) = base.begin_ingestion(&uid, source).await.unwrap() else { panic!("nobody else ingests") };
        let chunks = texts.into_iter().zip(vectors).zip(0..).map(|((text, vector), ordinal)| NewChunk {
            ordinal,
            page: Some(ordinal + 1),
            section: vec!["Manual".into()],
            tokens: 10,
            start: 0,
            end: text.len() as u64,
            hash: [u8::try_from(ordinal).unwrap(); 32],
            vector: Some(vector.0),
            text,
        });
        let meta = DocumentMeta {
            key: filename.into(),
            uri: format!("s3://docs/{filename}"),
            filename: filename.into(),
            content_type: "application/pdf".into(),
            pages: Some(u32::try_from(passages.len()).unwrap()),
            ..DocumentMeta::default()
        };
        let id = ingestion.put_document(&meta, chunks.collect()).await.unwrap();
        ingestion.end(&slipway_database::knowledge::Report::default(), slipway_database::knowledge::Ending::Succeeded).await.unwrap();
        id
    }

    pub(crate) fn worker(&self) -> Worker {
        self.worker_with(&[])
    }

    pub(crate) fn worker_with(&self, more: &[(&str, &str)]) -> Worker {
        self.start(binary("serve"), more)
    }

    pub(crate) fn start(&self, mut command: Command, more: &[(&str, &str)]) -> Worker {
        let folder = minilm();
        let own = [("SLIPWAY_KNOWLEDGE_URL", &*self.url), ("RUNTIME_TEAM", &self.id), ("RUNTIME_EMBEDDING_DIR", folder.to_str().unwrap())];
        command.env("RUNTIME_PORT", "0").envs(own).envs(more.iter().copied());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = Vec::new();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.by_ref().inspect(|line| said.push(line.clone())).find(|line| line.contains("listening"));
        let line: Value = serde_json::from_str(&line.unwrap_or_else(|| panic!("it did not listen: {said:#?}"))).unwrap();
        // Whatever it says later is shown by a test that fails.
        thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
        Worker { child, port: u16::try_from(line["port"].as_u64().unwrap()).unwrap() }
    }
}

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_slipway-worker");

pub(crate) fn binary(role: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_clear().arg(role);
    command
}

pub(crate) struct Worker {
    child: Child,
    port: u16,
}

impl Worker {
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends one request on a connection of its own: status and body.
    pub(crate) fn send(&self, line: &str, headers: &str, body: &[u8]) -> (u16, String) {
        let mut stream = self.connect();
        let length = body.len();
        let head = format!("{line} HTTP/1.1\r\nhost: worker\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses early may stop reading.
        let _ = stream.write_all(body);
        answer(stream)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(&format!("GET {path}"), "", b"");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) fn search(&self, question: &Value) -> (u16, Value) {
        let line = format!("POST /knowledge-bases/{BASE}/search");
        let (status, body) = self.send(&line, "content-type: application/json\r\n", question.to_string().as_bytes());
        (status, serde_json::from_str(&body).unwrap())
    }

    pub(crate) fn upload(&self, headers: &str, body: &[u8]) -> (u16, Value) {
        let (status, body) = self.send(&format!("POST /knowledge-bases/{BASE}/uploads"), headers, body);
        (status, serde_json::from_str(&body).unwrap())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn terminate(&self) {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    (head[9..12].parse().unwrap(), body.to_owned())
}
