//! Knowledge bases: documents, quotas, models, uploads, and the end of bases and teams.

use std::cell::RefCell;
use std::collections::BTreeSet;

use slipway_database::knowledge::{
    BaseSpec, Begun, DocumentMeta, DocumentStatus, Ending, Ingestion, KnowledgeAdmin, KnowledgeBase, KnowledgeOptions, KnowledgeReader,
    Listed, ModelUse, NewChunk, Quota, Removal, Report, SearchQuery,
};
use slipway_database::{Fault, Login};
use slipway_peers::PgBouncer;

use crate::{Database, Raw, SERVER, home};

pub(crate) const MIB: u64 = 1 << 20;

/// A platform with its sibling database.
pub(crate) struct Platform {
    pub(crate) database: Database,
    pub(crate) admin: KnowledgeAdmin,
}

impl Platform {
    pub(crate) async fn start() -> Self {
        let platform = Self::without_sibling().await;
        platform.admin.migrate().await.unwrap();
        platform
    }

    pub(crate) async fn without_sibling() -> Self {
        let database = Database::migrated().await;
        let admin = KnowledgeAdmin::open(&database.url, None, None).unwrap();
        Self { database, admin }
    }

    /// A team's login, let in.
    pub(crate) async fn team(&self, team: &str) -> Login {
        let login = self.database.login(team).await;
        self.admin.admit(team, &home(team).uid, &login.user).await.unwrap();
        login
    }

    pub(crate) fn url_of(&self, login: &Login) -> String {
        SERVER.url_of(&login.user, &login.password, self.admin.database())
    }

    pub(crate) fn sibling_url(&self) -> String {
        SERVER.url_of("postgres", "postgres", self.admin.database())
    }

    pub(crate) async fn raw(&self) -> Raw {
        Raw::connect(&self.sibling_url()).await
    }

    /// A base of a team, with the team's login.
    pub(crate) async fn base(&self, team: &str, kb: &str) -> KnowledgeBase {
        let login = self.team(team).await;
        self.admin.ensure_base(&spec(team, kb, 1)).await.unwrap();
        open(&self.url_of(&login), team, kb)
    }
}

/// The nth object of a name.
pub(crate) fn spec(team: &str, kb: &str, nth: u32) -> BaseSpec {
    BaseSpec {
        uid: format!("uid-of-{team}-{kb}-{nth}"),
        team: team.into(),
        team_uid: home(team).uid,
        kb_id: kb.into(),
        upload_quota: 3 * MIB,
        team_upload_quota: 4 * MIB,
        quota: Quota { documents: 100_000, chunks: 1_000_000 },
    }
}

pub(crate) fn open(url: &str, team: &str, kb: &str) -> KnowledgeBase {
    let options = KnowledgeOptions { url: url.into(), password: None, sslmode: None, team: team.into(), kb_id: kb.into(), connections: 2 };
    KnowledgeBase::open(&options).unwrap()
}

pub(crate) async fn begin(base: &KnowledgeBase, uid: &str, source: &str) -> Ingestion {
    match base.begin_ingestion(uid, source).await.unwrap() {
        Begun::Ingestion(ingestion) => ingestion,
        other => panic!("{uid} should have begun, and it is {other:?}"),
    }
}

pub(crate) fn meta(key: &str, version: &str) -> DocumentMeta {
    DocumentMeta {
        key: key.into(),
        uri: format!("s3://bucket/{key}"),
        filename: key.rsplit('/').next().unwrap_or(key).into(),
        content_type: "text/plain".into(),
        version: Some(version.into()),
        content_hash: Some([7; 32]),
        pages: Some(2),
        bytes: 100,
        notes: Vec::new(),
    }
}

/// As a source lists a document of [`meta`].
pub(crate) fn listed(key: &str, version: &str) -> Listed {
    let DocumentMeta { key, version, filename, uri, .. } = meta(key, version);
    Listed { key, version, filename, uri }
}

pub(crate) fn hash(text: &str) -> [u8; 32] {
    let mut hash = [0_u8; 32];
    for (n, byte) in text.bytes().enumerate() {
        hash[n % 32] = u8::wrapping_add(hash[n % 32].rotate_left(3), byte);
    }
    hash
}

pub(crate) fn chunk(ordinal: u32, text: &str, vector: Option<Vec<f32>>) -> NewChunk {
    NewChunk {
        ordinal,
        text: text.into(),
        page: Some(ordinal + 1),
        section: vec!["Guide".into(), "Part".into()],
        tokens: 3,
        start: 0,
        end: text.len() as u64,
        hash: hash(text),
        vector,
    }
}

pub(crate) async fn found(base: &KnowledgeBase, text: &str) -> Vec<String> {
    let query = SearchQuery { text: text.into(), top_k: 10, ..SearchQuery::default() };
    base.search(&query).await.unwrap().into_iter().map(|hit| hit.content).collect()
}

#[tokio::test]
async fn a_document_is_put_found_replaced_and_removed() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    assert_eq!(base.model().await.unwrap(), None);
    base.fix_model("mini", 2).await.unwrap();
    base.fix_model("mini", 2).await.unwrap();
    for (model, dimensions) in [("other", 2), ("mini", 3)] {
        let refused = base.fix_model(model, dimensions).await.unwrap_err();
        assert!(matches!(&refused, Fault::Refused(words) if words.contains("embedded again")), "{refused:?}");
    }
    let ingestion = begin(&base, "one", "s3").await;
    let id = ingestion
        .put_document(&meta("dir/a.txt", "1"), vec![chunk(0, "apples are red", Some(vec![1.0, 0.0])), chunk(1, "pears \0 are green", None)])
        .await
        .unwrap();
    let query = SearchQuery { text: "apple".into(), vector: Some(vec![1.0, 0.0]), top_k: 10, ..Default::default() };
    let hit = base.search(&query).await.unwrap().remove(0);
    assert_eq!((hit.content.as_str(), hit.page, hit.ordinal, hit.score), ("apples are red", Some(1), 0, 1.0));
    assert_eq!((hit.vector_rank, hit.text_rank, hit.cosine), (Some(1), Some(1), Some(1.0)));
    assert_eq!(
        (hit.section, hit.filename.as_str(), hit.uri.as_str()),
        (vec!["Guide".to_owned(), "Part".into()], "a.txt", "s3://bucket/dir/a.txt")
    );
    assert!(hit.document_id == id && hit.chunk_id.starts_with("chunk_") && hit.source == "s3" && hit.key == "dir/a.txt");
    assert_eq!(found(&base, "pears").await, ["pears \u{fffd} are green"]);
    assert_eq!(base.vectors_of(&[hash("apples are red"), hash("unknown")]).await.unwrap(), [(hash("apples are red"), vec![1.0, 0.0])]);

    // The same key keeps its id.
    assert_eq!(ingestion.put_document(&meta("dir/a.txt", "2"), vec![chunk(0, "plums are blue", Some(vec![0.0, 1.0]))]).await.unwrap(), id);
    assert!(found(&base, "apples").await.is_empty() && found(&base, "plums").await.len() == 1);
    let counts = base.counts().await.unwrap();
    assert_eq!((counts.ready, counts.failed, counts.chunks, counts.bytes), (1, 0, 1, 100));
    // What cannot be read any more says so and is still found.
    ingestion.fail_document(&meta("dir/a.txt", "3"), "the file is\0 broken").await.unwrap();
    ingestion.fail_document(&meta("b.txt", "1"), "too long").await.unwrap();
    let documents = base.documents(1, None).await.unwrap();
    assert_eq!(
        (documents.items[0].key.as_str(), documents.items[0].status, documents.items[0].chunk_count),
        ("b.txt", DocumentStatus::Error, 0)
    );
    let documents = base.documents(1, documents.next_cursor.as_deref()).await.unwrap();
    assert_eq!((documents.items[0].error.as_deref(), documents.items[0].chunk_count), (Some("the file is\u{fffd} broken"), 1));
    assert_eq!(documents.next_cursor, None);
    assert_eq!(found(&base, "plums").await.len(), 1);

    let reader = KnowledgeReader::open(&platform.database.url, None, None).unwrap();
    let uid = spec("a", "kb_docs", 1).uid;
    assert_eq!(reader.documents("a", "kb_docs", &uid, 10, None).await.unwrap().items.len(), 2);
    assert_eq!(reader.counts("a", "kb_docs", &uid).await.unwrap().failed, 2);
    for (team, kb, uid) in [("b", "kb_docs", uid.as_str()), ("a", "kb_other", &uid), ("a", "kb_docs", "another")] {
        assert!(reader.documents(team, kb, uid, 10, None).await.unwrap().items.is_empty());
        assert_eq!(reader.counts(team, kb, uid).await.unwrap().failed, 0);
        assert_eq!(reader.ingestion(team, kb, uid, "one").await.unwrap(), None);
    }
    assert!(base.remove_document(&id).await.unwrap() && !base.remove_document(&id).await.unwrap());
    assert!(found(&base, "plums").await.is_empty());
    assert_eq!(base.remove_source("s3").await.unwrap(), 1);
    base.sweep().await.unwrap();
    let mut raw = platform.raw().await;
    let table = raw.one("select chunks::text from slipway.bases").await;
    assert_eq!(raw.one(&format!("select count(*)::text from slipway.{table}")).await, "0", "nothing is left behind");
    assert_eq!(raw.one("select count(*)::text from slipway.drafts").await, "0");
}

#[tokio::test]
async fn a_team_has_no_more_documents_and_chunks_than_its_quota() {
    let platform = Platform::start().await;
    let team = platform.team("a").await;
    let quota = Quota { documents: 3, chunks: 10 };
    let [docs, more] = ["kb_docs", "kb_more"];
    for kb in [docs, more] {
        platform.admin.ensure_base(&BaseSpec { quota, ..spec("a", kb, 1) }).await.unwrap();
    }
    let base = |kb| open(&platform.url_of(&team), "a", kb);
    let (first, second) = (begin(&base(docs), "one", "s3").await, begin(&base(more), "two", "s3").await);
    let put = async |ingestion: &Ingestion, key: &str, chunks: u32| {
        ingestion.put_document(&meta(key, "1"), (0..chunks).map(|n| chunk(n, "word", None)).collect()).await
    };
    put(&first, "a", 4).await.unwrap();
    put(&second, "b", 4).await.unwrap();
    let full = |outcome: Result<String, Fault>, words: &str| match outcome {
        Err(Fault::Full(said)) => assert!(said.contains(words), "{said}"),
        other => panic!("{words}: {other:?}"),
    };
    full(put(&first, "c", 3).await, "8 chunks, and with this document more than the 10");
    full(put(&first, "huge", 300).await, "alone has more than the 10 chunks");
    // What takes another's place takes its room.
    put(&first, "a", 6).await.unwrap();
    full(put(&second, "b", 5).await, "10 chunks");
    put(&second, "b", 1).await.unwrap();
    put(&second, "c", 1).await.unwrap();
    full(put(&first, "d", 1).await, "3 documents, and may have 3");
    let unreadable = second.fail_document(&meta("e", "1"), "broken").await;
    full(unreadable, "3 documents");
    second.fail_document(&meta("c", "2"), "broken").await.unwrap();
    full(base(docs).begin_upload("new.pdf", "application/pdf").await, "3 documents");
    // What is counted is what is there, whatever came and went.
    assert_eq!(second.remove_gone(&["c"]).await.unwrap(), Removal::Removed(1));
    base(docs).begin_upload("new.pdf", "application/pdf").await.unwrap();
    platform.admin.drop_base(&spec("a", docs, 1).uid).await.unwrap();
    let mut raw = platform.raw().await;
    let counted = "select string_agg(concat_ws(' ', base, source, documents, chunks), ',' order by source)
                   from slipway.contents where documents > 0";
    let uid = spec("a", more, 1).uid;
    assert_eq!(raw.one(counted).await, format!("{uid} s3 1 1"));
    put(&second, "f", 9).await.unwrap();
    // Two that write at once do not both take the last place.
    assert_eq!(second.remove_gone(&["f"]).await.unwrap(), Removal::Removed(1));
    let other = begin(&base(more), "three", "drive").await;
    put(&other, "b", 2).await.unwrap();
    assert_eq!(raw.one(counted).await, format!("{uid} drive 1 2,{uid} s3 1 1"), "by source");
    let (one, two) = tokio::join!(put(&second, "g", 5), put(&other, "h", 5));
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    // Of a team of a former version nothing is known.
    raw.one("update slipway.teams set document_quota = null, chunk_quota = null").await;
    put(&second, "i", 30).await.unwrap();
}

#[tokio::test]
async fn notes_are_listed_with_what_is_found_of_a_document() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let reader = KnowledgeReader::open(&platform.database.url, None, None).unwrap();
    let uid = spec("a", "kb_docs", 1).uid;
    let ingestion = begin(&base, "one", "s3").await;
    let put = async |notes: Vec<String>| {
        ingestion.put_document(&DocumentMeta { notes, ..meta("a.pdf", "1") }, vec![chunk(0, "apples", None)]).await.unwrap();
    };
    let listed = async || {
        let notes = base.documents(10, None).await.unwrap().items.remove(0).notes;
        assert_eq!(reader.documents("a", "kb_docs", &uid, 10, None).await.unwrap().items.remove(0).notes, notes);
        notes
    };
    put(vec!["page 2 cannot\0 be read".into()]).await;
    assert_eq!(listed().await, ["page 2 cannot\u{fffd} be read"]);
    put((1..=20).map(|page| format!("{page} {}", "\u{fc}".repeat(500))).collect()).await;
    let kept = listed().await;
    let lengths: Vec<_> = kept.iter().map(String::len).collect();
    assert_eq!(lengths, [200, 200, 200, 200, 200, 200, 200, 200, 11], "{kept:?}");
    assert!(kept[7].starts_with("8 \u{fc}") && kept[8] == "and 12 more", "{kept:?}");
    // What it had is still found, with what is missing of it.
    let broken = DocumentMeta { notes: vec!["page 1 cannot be read".into()], ..meta("a.pdf", "2") };
    ingestion.fail_document(&broken, "broken").await.unwrap();
    assert_eq!(listed().await, kept);
    put(Vec::new()).await;
    assert!(listed().await.is_empty());
    assert_eq!(platform.raw().await.one("select count(*)::text from slipway.documents where notes is null").await, "1");
    ingestion.fail_document(&DocumentMeta { key: "b.pdf".into(), ..broken }, "broken").await.unwrap();
    assert!(listed().await.is_empty(), "nothing of it is found");
}

#[tokio::test]
async fn readers_never_see_half_a_document() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let writer = base.clone();
    let ingestion = begin(&writer, "one", "s3").await;
    let put = async |version: u32| {
        let chunks = (0..300).map(|n| chunk(n, &format!("common version{version}"), None)).collect();
        ingestion.put_document(&meta("a", &version.to_string()), chunks).await
    };
    put(0).await.unwrap();
    let seen = RefCell::new(BTreeSet::new());
    // A reader on a busy machine may miss some.
    let writing = async {
        for version in 1..100 {
            put(version).await.unwrap();
            if version >= 5 && seen.borrow().len() > 1 {
                break;
            }
        }
    };
    let reading = async {
        loop {
            let query = SearchQuery { text: "common".into(), top_k: 100, ..SearchQuery::default() };
            let contents: Vec<_> = base.search(&query).await.unwrap().into_iter().map(|hit| hit.content).collect();
            assert_eq!(contents.len(), 100, "old or new, but never none");
            assert!(contents.iter().all(|content| *content == contents[0]), "of one version");
            seen.borrow_mut().insert(contents[0].clone());
        }
    };
    tokio::select! { () = writing => {}, () = reading => {} }
    assert!(seen.borrow().len() > 1, "{seen:?}");
}

#[tokio::test]
async fn another_model_empties_vectors_and_needs_all_documents() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    base.fix_model("mini", 2).await.unwrap();
    let ingestion = begin(&base, "one", "s3").await;
    ingestion.put_document(&meta("a", "1"), vec![chunk(0, "apples", Some(vec![1.0, 0.0]))]).await.unwrap();
    let wrong = ingestion.put_document(&meta("b", "1"), vec![chunk(0, "pears", Some(vec![1.0, 0.0, 0.0]))]).await;
    assert!(matches!(&wrong, Err(Fault::Refused(words)) if words.contains("dimensions")), "{wrong:?}");
    ingestion.settle(1).await.unwrap();
    let mut draft = ingestion.draft().await.unwrap();
    draft.add(chunk(0, "plums", Some(vec![1.0, 0.0]))).await.unwrap();
    draft.flush().await.unwrap();
    assert_eq!(ingestion.use_model("big", 3, 1).await.unwrap(), ModelUse::Replaced { former: "mini".into() });
    assert_eq!(base.model().await.unwrap(), Some(("big".into(), 3)));
    assert!(matches!(draft.publish(&meta("c", "1")).await, Err(Fault::Refused(_))), "it was embedded by the former model");
    assert_eq!(
        ingestion.changed(&[listed("a", "1")]).await.unwrap(),
        [slipway_database::knowledge::Changed { key: "a".into(), content_hash: None }]
    );
    assert!(base.vectors_of(&[hash("apples")]).await.unwrap().is_empty());
    let query = |vector: Vec<f32>| SearchQuery { text: "apples".into(), vector: Some(vector), top_k: 3, ..SearchQuery::default() };
    let hits = base.search(&query(vec![1.0, 0.0, 0.0])).await.unwrap();
    assert_eq!((hits.len(), hits[0].cosine, hits[0].text_rank), (1, None, Some(1)));
    assert!(matches!(base.search(&query(vec![1.0, 0.0])).await, Err(Fault::Refused(_))));
    ingestion.put_document(&meta("a", "1"), vec![chunk(0, "apples", Some(vec![0.0, 0.0, 2.0]))]).await.unwrap();
    ingestion.settle(1).await.unwrap();
    assert_eq!(base.search(&query(vec![0.0, 0.0, 1.0])).await.unwrap()[0].vector_rank, Some(1));
}

#[tokio::test]
async fn an_older_ingestion_takes_no_later_model_away() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let older = begin(&base, "one", "s3").await;
    assert_eq!(older.use_model("mini", 2, 1).await.unwrap(), ModelUse::Kept, "the first one");
    older.put_document(&meta("a", "1"), vec![chunk(0, "apples", Some(vec![1.0, 0.0]))]).await.unwrap();
    let newer = begin(&base, "two", "drive").await;
    assert_eq!(newer.use_model("big", 3, 2).await.unwrap(), ModelUse::Replaced { former: "mini".into() });
    newer.put_document(&meta("b", "1"), vec![chunk(0, "pears", Some(vec![0.0, 0.0, 1.0]))]).await.unwrap();

    let outdated = ModelUse::Outdated { present: "big".into() };
    assert_eq!(older.use_model("mini", 2, 1).await.unwrap(), outdated);
    assert_eq!(base.model().await.unwrap(), Some(("big".into(), 3)));
    assert_eq!(base.vectors_of(&[hash("pears")]).await.unwrap().len(), 1);
    // What the platform chooses can change without the spec: then the ingestion counts that began last.
    let last = begin(&base, "three", "jira").await;
    assert_eq!(last.use_model("huge", 4, 2).await.unwrap(), ModelUse::Replaced { former: "big".into() });
    assert_eq!(newer.use_model("big", 3, 2).await.unwrap(), ModelUse::Outdated { present: "huge".into() });
    assert_eq!(last.use_model("huge", 4, 2).await.unwrap(), ModelUse::Kept);
    // A later spec that wants the same keeps an earlier one off, too.
    assert_eq!(last.use_model("huge", 4, 4).await.unwrap(), ModelUse::Kept);
    let of_the_third = begin(&base, "four", "confluence").await;
    assert_eq!(of_the_third.use_model("mini", 2, 3).await.unwrap(), ModelUse::Outdated { present: "huge".into() });
}

#[tokio::test]
async fn uploads_come_in_parts_within_quotas() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let other = platform.base("a", "kb_other").await;
    let part = vec![1_u8; 1 << 20];
    let upload = base.begin_upload("a.pdf", "application/pdf").await.unwrap();
    for ordinal in [1, 0, 0] {
        base.put_part(&upload, ordinal, &part).await.unwrap();
    }
    assert!(matches!(base.put_part(&upload, 2, &vec![1; (1 << 20) + 1]).await, Err(Fault::Refused(_))));
    assert_eq!(base.read_part(&upload, 0).await.unwrap(), None, "not before it is complete");
    for (parts, bytes) in [(1, 2 * MIB), (3, 2 * MIB), (2, MIB)] {
        assert!(base.finish_upload(&upload, parts, bytes).await.is_err(), "{parts} {bytes}");
    }
    base.put_part(&upload, 2, b"end").await.unwrap();
    base.finish_upload(&upload, 3, 2 * MIB + 3).await.unwrap();
    assert!(base.put_part(&upload, 0, b"x").await.is_err(), "it is closed");
    assert_eq!(base.read_part(&upload, 2).await.unwrap().as_deref(), Some(&b"end"[..]));
    assert_eq!(base.read_part(&upload, 3).await.unwrap(), None);
    let known = base.upload(&upload).await.unwrap().unwrap();
    assert_eq!((known.filename.as_str(), known.bytes, known.complete), ("a.pdf", 2 * MIB + 3, true));
    assert_eq!(other.upload(&upload).await.unwrap(), None);

    let more = base.begin_upload("b.pdf", "application/pdf").await.unwrap();
    let full = base.put_part(&more, 0, &part).await;
    assert!(matches!(&full, Err(Fault::Full(words)) if words.contains("knowledge base has no room")), "{full:?}");
    let elsewhere = other.begin_upload("c.pdf", "application/pdf").await.unwrap();
    other.put_part(&elsewhere, 0, &part).await.unwrap();
    let full = other.put_part(&elsewhere, 1, &part).await;
    assert!(matches!(&full, Err(Fault::Full(words)) if words.contains("team has no room")), "{full:?}");
    // What has been ingested makes room.
    assert!(base.remove_upload(&upload).await.unwrap() && !base.remove_upload(&upload).await.unwrap());
    other.put_part(&elsewhere, 1, &part).await.unwrap();
    let mut raw = platform.raw().await;
    raw.one("update slipway.uploads set touched_at = now() - interval '61 min'").await;
    platform.admin.prune().await.unwrap();
    assert_eq!(raw.one("select count(*)::text from slipway.upload_parts").await, "0");
}

#[tokio::test]
async fn a_base_of_an_old_name_begins_with_nothing() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let ingestion = begin(&base, "one", "s3").await;
    ingestion.put_document(&meta("a", "1"), vec![chunk(0, "apples", None)]).await.unwrap();
    base.fix_model("mini", 2).await.unwrap();
    ingestion.put_document(&meta("c", "1"), vec![chunk(0, "pears", Some(vec![1.0, 0.0]))]).await.unwrap();
    ingestion.settle(1).await.unwrap();
    let upload = base.begin_upload("a.pdf", "application/pdf").await.unwrap();
    base.put_part(&upload, 0, b"x").await.unwrap();
    let mut raw = platform.raw().await;
    let functions = "select count(*)::text from pg_proc where proname like 'chunks%'";
    assert_eq!(raw.one(functions).await, "2");
    platform.admin.ensure_base(&spec("a", "kb_docs", 1)).await.unwrap();
    assert_eq!(found(&base, "apples").await.len(), 1, "the same object keeps what it has");
    platform.admin.ensure_base(&spec("a", "kb_docs", 2)).await.unwrap();
    assert!(found(&base, "apples").await.is_empty());
    assert_eq!(base.upload(&upload).await.unwrap(), None);
    assert!(matches!(ingestion.put_document(&meta("b", "1"), vec![]).await, Err(Fault::Refused(_))), "the ingestion was the former's");
    let bases = platform.admin.bases().await.unwrap();
    assert_eq!((bases.len(), bases[0].uid.as_str()), (1, spec("a", "kb_docs", 2).uid.as_str()));
    let (_, counts) = platform.admin.base(&bases[0].uid).await.unwrap().unwrap();
    assert_eq!(counts.ready, 0);
    platform.admin.drop_base(&spec("a", "kb_docs", 2).uid).await.unwrap();
    platform.admin.drop_base("never-was").await.unwrap();
    assert!(matches!(base.counts().await, Err(Fault::Refused(_))));
    assert_eq!(raw.one("select count(*)::text from pg_class where relname like 'chunks%'").await, "0");
    assert_eq!(raw.one(functions).await, "0");
    assert_eq!(raw.one("select (select count(*) from slipway.documents) + (select count(*) from slipway.uploads) || ''").await, "0");
}

#[tokio::test]
async fn a_team_that_has_gone_leaves_nothing() {
    let platform = Platform::start().await;
    let (a, b) = (platform.base("a", "kb_docs").await, platform.base("b", "kb_docs").await);
    for base in [&a, &b] {
        begin(base, "one", "s3").await.put_document(&meta("a", "1"), vec![chunk(0, "apples", None)]).await.unwrap();
    }
    // A large object of its own would keep its role.
    let login = platform.team("a").await;
    Raw::connect(&platform.url_of(&login)).await.one("select lo_create(0)").await;
    platform.admin.team_has_gone("a", "another-uid").await.unwrap();
    assert_eq!(found(&a, "apples").await.len(), 1, "a Team of the name that was another");
    platform.admin.team_has_gone("a", &home("a").uid).await.unwrap();
    assert!(matches!(a.counts().await, Err(Fault::Refused(_))));
    assert_eq!(found(&b, "apples").await.len(), 1);
    platform.database.tenants().remove("a").await.unwrap();
    assert!(Raw::try_connect(&platform.url_of(&login)).await.is_err());
    platform.admin.team_has_gone("a", &home("a").uid).await.unwrap();
    let mut raw = platform.raw().await;
    assert_eq!(raw.one("select string_agg(team, ',') from slipway.tenants").await, "b");
    assert_eq!(raw.one("select string_agg(team, ',') from slipway.bases").await, "b");
}

#[tokio::test]
async fn many_doors_share_few_connections_of_a_pgbouncer() {
    let bouncer = PgBouncer::start(&SERVER);
    let database = Database::migrated().await;
    let admin = KnowledgeAdmin::open(&bouncer.url("postgres", "postgres", &database.name), None, None).unwrap();
    admin.migrate().await.unwrap();
    let mut work = Vec::new();
    for team in ["a", "b"] {
        let login = database.login(team).await;
        admin.admit(team, &home(team).uid, &login.user).await.unwrap();
        admin.ensure_base(&spec(team, "kb_docs", 1)).await.unwrap();
        for n in 0..4 {
            let base = open(&bouncer.url(&login.user, &login.password, admin.database()), team, "kb_docs");
            // One after the other: a login takes long in a build without optimisation.
            base.fix_model("mini", 2).await.unwrap();
            work.push(async move {
                let ingestion = begin(&base, &format!("i{n}"), &format!("s{n}")).await;
                for m in 0..5 {
                    let chunks = vec![chunk(0, &format!("words of {team}"), Some(vec![1.0, 1.0]))];
                    ingestion.put_document(&meta(&format!("{n}-{m}"), "1"), chunks).await.unwrap();
                    let hits = base
                        .search(&SearchQuery { text: "words".into(), vector: Some(vec![1.0, 1.0]), top_k: 100, ..Default::default() })
                        .await
                        .unwrap();
                    assert!(!hits.is_empty() && hits.iter().all(|hit| hit.content.ends_with(team)));
                    assert_eq!(base.vectors_of(&[hash(&format!("words of {team}"))]).await.unwrap().len(), 1);
                }
                ingestion.settle(u32::MAX).await.unwrap();
                assert!(ingestion.end(&Report::default(), Ending::Succeeded).await.unwrap());
                base
            });
        }
    }
    for base in futures::future::join_all(work).await {
        assert_eq!(base.counts().await.unwrap().ready, 20);
    }
}
