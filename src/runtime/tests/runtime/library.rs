//! Knowledge bases in a real PostgreSQL, as the manager makes them and an ingestion fills them, with vectors of the built-in model.

use std::path::PathBuf;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use slipway_database::knowledge::{
    BaseSpec, Begun, DocumentMeta, Ending, KnowledgeAdmin, KnowledgeBase, KnowledgeOptions, NewChunk, Quota, Report,
};
use slipway_database::{Ensured, Home, Passwords, Tenants, migrate};
use slipway_models::embedding::{self, Purpose};
use slipway_peers::{Postgres, minilm};

pub(crate) const MODEL: &str = "builtin:all-minilm-l6-v2";
const MIB: u64 = 1 << 20;

/// A document of one passage.
#[derive(Clone, Copy)]
pub(crate) struct Document<'a> {
    pub(crate) filename: &'a str,
    pub(crate) page: Option<u32>,
    /// Headings with ` > ` between them.
    pub(crate) section: &'a str,
    pub(crate) text: &'a str,
}

pub(crate) struct Library {
    postgres: Postgres,
    runtime: tokio::runtime::Runtime,
    embedding_folder: PathBuf,
}

impl Library {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let library = Self { postgres: Postgres::start(), runtime, embedding_folder: minilm() };
        library.runtime.block_on(async {
            migrate(&library.postgres.url(), None, None).await.unwrap();
            library.admin().migrate().await.unwrap();
        });
        library
    }

    fn admin(&self) -> KnowledgeAdmin {
        KnowledgeAdmin::open(&self.postgres.url(), None, None).unwrap()
    }

    /// The URL of the documents' database by the team's login, which is made if need be.
    pub(crate) fn url(&self, team: &str) -> String {
        self.runtime.block_on(async {
            let home = Home { team: team.into(), uid: format!("uid-of-{team}"), created: 0, adopts: None, cluster: "here".into() };
            let password = format!("a-long-password-of-team-{team}");
            let passwords = Passwords { own: password.clone(), before: password };
            let ensured = Tenants::open(&self.postgres.url(), None, None).unwrap().ensure(&home, &passwords).await.unwrap();
            let Ensured::Login(login) = ensured else { panic!("a superuser makes a login, but it is {ensured:?}") };
            let admin = self.admin();
            admin.admit(team, &home.uid, &login.user).await.unwrap();
            self.postgres.url_of(&login.user, &login.password, admin.database())
        })
    }

    /// Puts documents into a base of the team, which is made if need be.
    pub(crate) fn add(&self, team: &str, name: &str, documents: &[Document<'_>]) {
        let url = self.url(team);
        self.runtime.block_on(async {
            let kb_id = format!("kb_{name}");
            let spec = BaseSpec {
                uid: format!("uid-of-{team}-{name}"),
                team: team.into(),
                team_uid: format!("uid-of-{team}"),
                kb_id: kb_id.clone(),
                upload_quota: 100 * MIB,
                team_upload_quota: 100 * MIB,
                quota: Quota { documents: 1_000, chunks: 100_000 },
            };
            self.admin().ensure_base(&spec).await.unwrap();
            let options = KnowledgeOptions { url, password: None, sslmode: None, team: team.into(), kb_id, connections: 2 };
            let base = KnowledgeBase::open(&options).unwrap();
            base.fix_model(MODEL, 384).await.unwrap();
            let folder = self.embedding_folder.to_str().unwrap();
            let embedder = embedding::open(MODEL, &|name| (name == "RUNTIME_EMBEDDING_DIR").then(|| folder.to_owned())).unwrap();
            let begun = base.begin_ingestion("uid-of-ingestion", "manuals").await.unwrap();
            let Begun::Ingestion(ingestion) = begun else { panic!("{begun:?}") };
            for (number, document) in documents.iter().enumerate() {
                let vectors = embedder.embed(&[document.text.to_owned()], Purpose::Passage).await.unwrap();
                let meta = DocumentMeta {
                    key: format!("{number}-{}", document.filename),
                    uri: format!("https://intranet.example/{}", document.filename),
                    filename: document.filename.into(),
                    content_type: "text/plain".into(),
                    bytes: document.text.len() as u64,
                    ..DocumentMeta::default()
                };
                let chunk = NewChunk {
                    ordinal: 0,
                    text: document.text.into(),
                    page: document.page,
                    section: document.section.split(" > ").filter(|heading| !heading.is_empty()).map(str::to_owned).collect(),
                    tokens: 50,
                    start: 0,
                    end: document.text.len() as u64,
                    hash: digest(&SHA256, document.text.as_bytes()).as_ref().try_into().unwrap(),
                    vector: vectors.into_iter().next().map(|vector| vector.0),
                };
                ingestion.put_document(&meta, vec![chunk]).await.unwrap();
            }
            ingestion.settle(10_000).await.unwrap();
            assert!(ingestion.end(&Report::default(), Ending::Succeeded).await.unwrap());
        });
    }

    /// `RUNTIME_KNOWLEDGE_BASES` of an agent of the team.
    pub(crate) fn bases(&self, team: &str, names: &[&str]) -> String {
        let url = self.url(team);
        let base = |name: &&str| {
            let embedding = json!({"model": MODEL, "chunk_size": 512, "chunk_overlap": 50});
            json!({"kb_id": format!("kb_{name}"), "name": name, "store": "pgvector", "connection_url": url, "embedding": embedding})
        };
        names.iter().map(base).collect::<Value>().to_string()
    }

    /// What an agent of team red is told besides.
    pub(crate) fn variables(&self) -> [(&str, &str); 2] {
        [("RUNTIME_TEAM", "red"), ("RUNTIME_EMBEDDING_DIR", self.embedding_folder.to_str().unwrap())]
    }

    pub(crate) fn stop(&self) {
        self.postgres.stop();
    }

    pub(crate) fn restart(&self) {
        self.postgres.restart();
    }
}
