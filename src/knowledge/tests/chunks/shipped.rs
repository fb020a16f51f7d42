//! The search that ships: a knowledge base in a database, whose chunks are the passages.

use slipway_database::knowledge::{
    BaseSpec, Begun, DocumentMeta, Ending, INDEX_THRESHOLD, KnowledgeAdmin, KnowledgeBase, KnowledgeOptions, NewChunk, Quota, Report,
    SearchQuery,
};
use slipway_models::embedding::Vector;
use slipway_peers::Postgres;

use crate::MODELS;

const TEAM: &str = "tk_python";
const BASE: &str = "kb_faq";
const QUOTA: u64 = 1 << 30;
/// How many passages are asked for. Each half has as many candidates as for any fewer.
const TOP_K: u32 = 25;

pub(crate) struct Shipped {
    base: KnowledgeBase,
    _postgres: Postgres,
}

impl Shipped {
    pub(crate) async fn start() -> Self {
        let postgres = Postgres::start();
        let admin = KnowledgeAdmin::open(&postgres.url(), None, None).unwrap();
        admin.migrate().await.unwrap();
        let spec = BaseSpec {
            uid: "base".into(),
            team: TEAM.into(),
            team_uid: "team".into(),
            kb_id: BASE.into(),
            upload_quota: QUOTA,
            team_upload_quota: QUOTA,
            quota: Quota { documents: QUOTA, chunks: QUOTA },
        };
        admin.ensure_base(&spec).await.unwrap();
        let url = postgres.url_of("postgres", "postgres", admin.database());
        let options = KnowledgeOptions { url, password: None, sslmode: None, team: TEAM.into(), kb_id: BASE.into(), connections: 2 };
        Self { base: KnowledgeBase::open(&options).unwrap(), _postgres: postgres }
    }

    /// Takes of each passage the headings above, the text and the vector, as one ingestion of one document.
    pub(crate) async fn fill(&self, passages: impl Iterator<Item = (Vec<String>, String, Vector)>) {
        let chunks: Vec<NewChunk> =
            (0..).zip(passages).map(|(ordinal, (section, text, vector))| chunk(ordinal, section, text, vector)).collect();
        let dimensions = chunks.iter().find_map(|chunk| chunk.vector.as_ref().map(Vec::len)).unwrap();
        self.base.fix_model(MODELS[0], u32::try_from(dimensions).unwrap()).await.unwrap();
        let Begun::Ingestion(ingestion) = self.base.begin_ingestion("one", "faq").await.unwrap() else { panic!("nobody else ingests") };
        let meta = DocumentMeta { key: "faq".into(), filename: "faq.html".into(), ..DocumentMeta::default() };
        ingestion.put_document(&meta, chunks).await.unwrap();
        // How frequent words are is counted then.
        ingestion.settle(INDEX_THRESHOLD).await.unwrap();
        ingestion.end(&Report::default(), Ending::Succeeded).await.unwrap();
    }

    /// The places of passages, the best first: by words, by a vector, or by both.
    pub(crate) async fn ranked(&self, text: &str, vector: Option<&Vector>) -> Vec<usize> {
        let vector = vector.map(|vector| vector.0.clone());
        let query = SearchQuery { text: text.into(), vector, top_k: TOP_K, ..SearchQuery::default() };
        self.base.search(&query).await.unwrap().iter().map(|hit| hit.ordinal as usize).collect()
    }
}

fn chunk(ordinal: u32, section: Vec<String>, text: String, vector: Vector) -> NewChunk {
    let mut hash = [0; 32];
    hash[..4].copy_from_slice(&ordinal.to_be_bytes());
    NewChunk { ordinal, page: None, section, tokens: 1, start: 0, end: text.len() as u64, hash, vector: Some(vector.0), text }
}
