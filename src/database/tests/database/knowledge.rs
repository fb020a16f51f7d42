//! Knowledge bases: documents, ingestions, uploads, and the end of bases and teams.

use std::time::Duration;

use slipway_database::knowledge::{
    BaseSpec, Begun, DocumentMeta, DocumentStatus, Ending, Ingestion, KnowledgeAdmin, KnowledgeBase, KnowledgeOptions, KnowledgeReader,
    Listed, ModelUse, NewChunk, Place, Quota, Removal, Report, SearchQuery,
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
async fn only_what_changed_needs_work_and_the_unseen_goes() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let listed = |keys: &[(&str, &str)]| keys.iter().map(|(key, version)| listed(key, version)).collect::<Vec<_>>();
    let first = begin(&base, "one", "s3").await;
    let other = begin(&base, "other", "drive").await;
    other.put_document(&meta("z", "1"), vec![chunk(0, "zebra", None)]).await.unwrap();
    assert_eq!(first.changed(&listed(&[("a", "1"), ("b", "1"), ("c", "1")])).await.unwrap().len(), 3);
    for key in ["a", "b", "c"] {
        first.put_document(&meta(key, "1"), vec![chunk(0, &format!("word{key}"), None)]).await.unwrap();
    }
    first.fail_document(&meta("d", "1"), "broken").await.unwrap();
    assert!(first.end(&Report::default(), Ending::Succeeded).await.unwrap());
    assert!(matches!(base.begin_ingestion("one", "s3").await.unwrap(), Begun::Succeeded));

    let second = begin(&base, "two", "s3").await;
    let changed = second.changed(&listed(&[("a", "1"), ("b", "2"), ("d", "1"), ("e", "1")])).await.unwrap();
    let keys: Vec<_> = changed.iter().map(|changed| (changed.key.as_str(), changed.content_hash)).collect();
    assert_eq!(keys, [("b", Some([7; 32])), ("d", None), ("e", None)]);
    // Its content turns out to be the same.
    assert_eq!(second.mark_seen(&listed(&[("b", "2"), ("unknown", "1")])).await.unwrap(), 1);
    assert!(second.changed(&listed(&[("b", "2")])).await.unwrap().is_empty());
    // Killed and begun again: what the first attempt saw does not count.
    let again = begin_after_lease(&platform, &base, "two").await;
    assert!(again.changed(&listed(&[("a", "1")])).await.unwrap().is_empty());
    assert!(matches!(second.remove_unseen(false).await, Err(Fault::Refused(_))), "the first attempt has lost it");
    assert_eq!(again.remove_unseen(false).await.unwrap(), Removal::Removed(3));
    let left: Vec<_> = base.documents(10, None).await.unwrap().items.into_iter().map(|document| document.key).collect();
    assert_eq!(left, ["a", "z"]);
}

#[tokio::test]
async fn a_place_in_a_list_of_changes_is_lost_when_all_is_needed() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    base.fix_model("mini", 2).await.unwrap();
    let (this, other) = ([1; 32], [2; 32]);
    let first = begin(&base, "one", "drive").await;
    let id = first.put_document(&meta("a", "1"), vec![chunk(0, "apples", Some(vec![1.0, 0.0]))]).await.unwrap();
    assert_eq!(first.place(&this).await.unwrap(), None);
    first.keep_place(&this, "7").await.unwrap();
    assert_eq!(first.place(&this).await.unwrap(), None, "without a traversal there is none to move on");
    let kept = |place: Option<Place>| place.map(|kept| (kept.place, kept.age < Duration::from_mins(5)));
    let seven = Some(("7".to_owned(), true));
    traverse(&first, &this).await;
    assert_eq!(kept(first.place(&this).await.unwrap()), seven);
    assert_eq!(first.place(&other).await.unwrap(), None, "it was read in another way");
    first.keep_place(&other, "8").await.unwrap();
    assert_eq!(kept(first.place(&this).await.unwrap()), seven, "the one way tells nothing of the other");
    first.keep_place(&this, "8").await.unwrap();
    assert_eq!(kept(first.place(&this).await.unwrap()), Some(("8".to_owned(), true)));
    assert!(matches!(first.keep_place(&this, &"x".repeat(1_025)).await, Err(Fault::Refused(_))));
    let mut raw = platform.raw().await;
    raw.one("update slipway.places set traversed_at = now() - interval '1 day'").await;
    first.keep_place(&this, "9").await.unwrap();
    assert_eq!(kept(first.place(&this).await.unwrap()), Some(("9".to_owned(), false)), "changes are no traversal");

    // A traversal that breaks off has stored some of what it found, by whatever settings.
    first.begin_traversal().await.unwrap();
    assert_eq!(first.place(&this).await.unwrap(), None);
    traverse(&first, &this).await;
    // So may one of a former version have, which does not say that it traverses.
    first.mark_seen(&[listed("a", "1")]).await.unwrap();
    assert_eq!(first.remove_unseen(false).await.unwrap(), Removal::Removed(0));
    assert_eq!(first.place(&this).await.unwrap(), None);

    // What somebody deletes has to be found again, whether the source is being traversed or was.
    let elsewhere = begin(&base, "two", "jira").await;
    traverse(&elsewhere, &this).await;
    first.begin_traversal().await.unwrap();
    assert!(base.remove_document(&id).await.unwrap());
    first.keep_place(&this, "7").await.unwrap();
    assert_eq!(first.place(&this).await.unwrap(), None, "it may have been seen before");
    let id = first.put_document(&meta("a", "1"), vec![chunk(0, "apples", None)]).await.unwrap();
    traverse(&first, &this).await;
    assert!(base.remove_document(&id).await.unwrap());
    first.keep_place(&this, "8").await.unwrap();
    assert_eq!(first.place(&this).await.unwrap(), None);
    assert_eq!(kept(elsewhere.place(&this).await.unwrap()), seven, "of another source");
    elsewhere.use_model("big", 3, 1).await.unwrap();
    assert_eq!(elsewhere.place(&this).await.unwrap(), None, "another model needs all documents");
}

/// To the end of the source, whose list of changes was at 7 before.
async fn traverse(ingestion: &Ingestion, configuration: &[u8; 32]) {
    ingestion.begin_traversal().await.unwrap();
    ingestion.keep_place(configuration, "7").await.unwrap();
}

#[tokio::test]
async fn documents_of_a_sources_former_name_are_taken_over() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    base.fix_model("mini", 2).await.unwrap();
    let former = begin(&base, "one", "s3-former").await;
    for (key, text) in [("a", "apples"), ("b", "pears")] {
        former.put_document(&meta(key, "1"), vec![chunk(0, text, None)]).await.unwrap();
    }
    let present = begin(&base, "two", "s3-present").await;
    present.put_document(&meta("b", "2"), vec![chunk(0, "plums", None)]).await.unwrap();
    let shown = async || {
        let mut shown: Vec<_> = base.documents(10, None).await.unwrap().items.into_iter().map(|found| (found.source, found.key)).collect();
        shown.sort();
        shown.into_iter().map(|(source, key)| format!("{source}/{key}")).collect::<Vec<_>>().join(" ")
    };
    present.adopt_documents("s3-former").await.unwrap();
    assert_eq!(shown().await, "s3-former/a s3-former/b s3-present/b", "somebody still writes them");
    assert!(former.end(&Report::default(), Ending::Succeeded).await.unwrap());
    for _ in 0..2 {
        present.adopt_documents("s3-former").await.unwrap();
        assert_eq!(shown().await, "s3-present/a s3-present/b");
    }
    assert_eq!(found(&base, "apples").await.len(), 1);
    assert!(found(&base, "pears").await.is_empty(), "what the present name has is the later one");
    present.adopt_documents("s3-present").await.unwrap();
    assert_eq!(shown().await, "s3-present/a s3-present/b");
    let needed = present.changed(&[listed("a", "1"), listed("b", "2")]).await.unwrap();
    assert!(needed.is_empty(), "{needed:?}");
}

#[tokio::test]
async fn what_a_source_says_is_gone_goes_unless_next_to_all_does() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    base.fix_model("mini", 2).await.unwrap();
    let drive = begin(&base, "one", "drive").await;
    for key in ["a", "b", "c"] {
        drive.put_document(&meta(key, "1"), vec![chunk(0, key, None)]).await.unwrap();
    }
    begin(&base, "two", "jira").await.put_document(&meta("a", "1"), vec![chunk(0, "a", None)]).await.unwrap();
    let left = async || {
        let mut left: Vec<_> = base.documents(10, None).await.unwrap().items.into_iter().map(|found| (found.source, found.key)).collect();
        left.sort();
        left.into_iter().map(|(source, key)| format!("{source}/{key}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(drive.remove_gone(&["a", "b", "c", "never there"]).await.unwrap(), Removal::Doubtful { found: 0, missing: 3 });
    assert_eq!(left().await, "drive/a drive/b drive/c jira/a");
    assert_eq!(drive.remove_gone(&["a", "never there"]).await.unwrap(), Removal::Removed(1));
    assert_eq!(drive.remove_gone(&[]).await.unwrap(), Removal::Removed(0));
    assert_eq!(left().await, "drive/b drive/c jira/a");
}

#[tokio::test]
async fn a_renamed_document_shows_its_new_name_without_work() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let first = begin(&base, "one", "drive").await;
    for key in ["a", "b", "c"] {
        let meta = DocumentMeta { filename: format!("{key}.txt"), ..meta(key, "1") };
        first.put_document(&meta, vec![chunk(0, &format!("word{key}"), None)]).await.unwrap();
    }
    first.end(&Report::default(), Ending::Succeeded).await.unwrap();
    let second = begin(&base, "two", "drive").await;
    let named = |key, version, filename: &str| Listed { filename: filename.into(), uri: "drive://new".into(), ..listed(key, version) };
    // Another extension may be read in another way, and then the same bytes are not the same document.
    let all = [named("a", "1", "plan.txt"), named("b", "1", "b.csv"), named("c", "2", "other.TXT")];
    let changed: Vec<_> =
        second.changed(&all).await.unwrap().into_iter().map(|changed| (changed.key, changed.content_hash.is_some())).collect();
    assert_eq!(changed, [("b".to_owned(), false), ("c".to_owned(), true)]);
    assert_eq!(second.mark_seen(&all[2..]).await.unwrap(), 1);
    for (word, filename) in [("worda", "plan.txt"), ("wordb", "b.txt"), ("wordc", "other.TXT")] {
        let query = SearchQuery { text: word.into(), top_k: 1, ..SearchQuery::default() };
        assert_eq!(base.search(&query).await.unwrap()[0].filename, filename);
    }
    let documents = base.documents(10, None).await.unwrap().items;
    assert!(documents.iter().any(|document| document.key == "a" && document.uri == "drive://new"), "{documents:?}");
    assert!(second.changed(&all[..1]).await.unwrap().is_empty(), "and once is enough");
}

#[tokio::test]
async fn a_source_that_has_lost_nearly_everything_is_doubted() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let put = async |ingestion: &Ingestion, numbers: std::ops::Range<u32>| {
        for number in numbers {
            ingestion.put_document(&meta(&number.to_string(), "1"), vec![chunk(0, "word", None)]).await.unwrap();
        }
    };
    let listed = |numbers: std::ops::Range<u32>| numbers.map(|number| listed(&number.to_string(), "1")).collect::<Vec<_>>();
    let first = begin(&base, "one", "s3").await;
    put(&first, 0..30).await;
    // What was never indexed is no loss.
    first.fail_document(&meta("broken", "1"), "it is broken").await.unwrap();
    first.end(&Report::default(), Ending::Succeeded).await.unwrap();
    // How many are listed, how many are new, whether it is confirmed, and what comes of it.
    for (number, (known, new, confirmed, expected)) in [
        (0, 0, false, Removal::Doubtful { found: 0, missing: 30 }),
        (2, 0, false, Removal::Doubtful { found: 2, missing: 28 }),
        // As many others are there: a source whose documents come and go.
        (0, 5, false, Removal::Removed(31)),
        (1, 0, false, Removal::Removed(4)),
        (0, 0, false, Removal::Doubtful { found: 0, missing: 1 }),
        (0, 0, true, Removal::Removed(1)),
    ]
    .into_iter()
    .enumerate()
    {
        let ingestion = begin(&base, &format!("again-{number}"), "s3").await;
        if number == 3 {
            ingestion.changed(&listed(100..101)).await.unwrap();
        } else {
            ingestion.changed(&listed(0..known)).await.unwrap();
        }
        put(&ingestion, 100..100 + new).await;
        assert_eq!(ingestion.remove_unseen(confirmed).await.unwrap(), expected, "{number}");
        ingestion.end(&Report::default(), Ending::Doubtful).await.unwrap();
    }
    assert_eq!(base.counts().await.unwrap().ready, 0);
    let reader = KnowledgeReader::open(&platform.database.url, None, None).unwrap();
    let state = reader.ingestion("a", "kb_docs", &spec("a", "kb_docs", 1).uid, "again-0").await.unwrap().unwrap();
    assert_eq!(Ending::of(&state.report.phase), Ending::Doubtful);
    // It may be tried again, as any that has not succeeded.
    begin(&base, "again-0", "s3").await;
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
    let counted = "select string_agg(concat_ws(' ', base, documents, chunks), ',') from slipway.contents";
    assert_eq!(raw.one(counted).await, format!("{} 1 1", spec("a", more, 1).uid));
    put(&second, "f", 9).await.unwrap();
    // Two that write at once do not both take the last place.
    assert_eq!(second.remove_gone(&["f"]).await.unwrap(), Removal::Removed(1));
    let other = begin(&base(more), "three", "drive").await;
    let (one, two) = tokio::join!(put(&second, "g", 5), put(&other, "h", 5));
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    // Of a team of a former version nothing is known.
    raw.one("update slipway.teams set document_quota = null, chunk_quota = null").await;
    put(&second, "i", 30).await.unwrap();
}

/// As if the process had been killed a minute ago.
async fn begin_after_lease(platform: &Platform, base: &KnowledgeBase, uid: &str) -> Ingestion {
    platform.raw().await.one("update slipway.ingestions set heartbeat = now() - interval '61 s' where ended_at is null").await;
    begin(base, uid, "s3").await
}

#[tokio::test]
async fn two_ingestions_of_a_source_exclude_each_other() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let url = platform.url_of(&platform.team("a").await);
    let begun = futures::future::join_all((0..6).map(|n| {
        let base = open(&url, "a", "kb_docs");
        async move { base.begin_ingestion(&format!("i{n}"), "s3").await.unwrap() }
    }))
    .await;
    let mut first: Vec<_> = begun.into_iter().filter_map(|begun| if let Begun::Ingestion(it) = begun { Some(it) } else { None }).collect();
    assert_eq!(first.len(), 1);
    let first = first.remove(0);
    match base.begin_ingestion("later", "s3").await.unwrap() {
        Begun::Held { by, remaining } => assert!(by.starts_with('i') && remaining > Duration::from_secs(50), "{by} {remaining:?}"),
        other => panic!("{other:?}"),
    }
    let mut report = Report { phase: "traversing".into(), seen: 5, pages: 9, ..Report::default() };
    report.failed("k\0", "bad\0");
    assert!(first.report(&report).await.unwrap());
    let draft = first.draft().await.unwrap();
    let later = begin_after_lease(&platform, &base, "later").await;
    assert!(!first.report(&report).await.unwrap());
    for lost in [
        draft.publish(&meta("a", "1")).await,
        first.put_document(&meta("a", "1"), vec![]).await,
        first.fail_document(&meta("a", "1"), "x").await,
    ] {
        assert!(matches!(lost, Err(Fault::Refused(_))), "{lost:?}");
    }
    assert!(!first.end(&report, Ending::Succeeded).await.unwrap());
    assert!(later.end(&report, Ending::Failed).await.unwrap());
    let reader = KnowledgeReader::open(&platform.database.url, None, None).unwrap();
    let state = reader.ingestion("a", "kb_docs", &spec("a", "kb_docs", 1).uid, "later").await.unwrap().unwrap();
    assert_eq!(
        (state.report.phase.as_str(), state.report.seen, state.report.errors.len(), state.ended_at.is_some()),
        ("failed", 5, 1, true)
    );
    // A failed one may try again.
    begin(&base, "later", "s3").await;
}

#[tokio::test]
async fn a_kill_in_the_middle_leaves_the_old_document() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    base.fix_model("mini", 2).await.unwrap();
    let ingestion = begin(&base, "one", "s3").await;
    ingestion.put_document(&meta("a", "1"), vec![chunk(0, "old words", None)]).await.unwrap();
    let many = |text: &'static str| (0..700_u16).map(move |n| chunk(n.into(), &format!("{text} {n}"), Some(vec![1.0, n.into()])));
    let mut draft = ingestion.draft().await.unwrap();
    for chunk in many("new") {
        draft.add(chunk).await.unwrap();
    }
    let mut raw = platform.raw().await;
    let table = raw.one("select chunks::text from slipway.bases").await;
    let written: u32 = raw.one(&format!("select count(*)::text from slipway.{table}")).await.parse().unwrap();
    assert!(written > 256, "batches have been written: {written}");
    // While it is being written readers see the old one, and so they do after the process and its connections are gone.
    assert_eq!((found(&base, "old").await.len(), found(&base, "new").await.len()), (1, 0));
    raw.ask("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
        .await
        .unwrap();
    drop(draft);
    assert_eq!((found(&base, "old").await.len(), found(&base, "new").await.len()), (1, 0));
    assert_eq!(base.counts().await.unwrap().chunks, 1);
    // The next attempt need not embed again what the killed one has written.
    let again = begin_after_lease(&platform, &base, "one").await;
    let hashes: Vec<_> = many("new").map(|chunk| chunk.hash).collect();
    assert!(base.vectors_of(&hashes).await.unwrap().len() > 256);
    again.put_document(&meta("a", "2"), many("new").collect()).await.unwrap();
    assert_eq!((found(&base, "old").await.len(), found(&base, "new").await.len()), (0, 10));
    // What it left is deleted once it has expired.
    raw.one("update slipway.drafts set expires_at = now()").await;
    again.settle(u32::MAX).await.unwrap();
    assert_eq!(raw.one(&format!("select count(*)::text from slipway.{table}")).await, "700");
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
    let writing = async {
        for version in 1..6 {
            put(version).await.unwrap();
        }
    };
    let mut seen = std::collections::BTreeSet::new();
    let reading = async {
        loop {
            let query = SearchQuery { text: "common".into(), top_k: 100, ..SearchQuery::default() };
            let contents: Vec<_> = base.search(&query).await.unwrap().into_iter().map(|hit| hit.content).collect();
            assert_eq!(contents.len(), 100, "old or new, but never none");
            assert!(contents.iter().all(|content| *content == contents[0]), "of one version");
            seen.insert(contents[0].clone());
        }
    };
    tokio::select! { () = writing => {}, () = reading => {} }
    assert!(seen.len() > 1, "{seen:?}");
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
    let upload = base.begin_upload("a.pdf", "application/pdf").await.unwrap();
    base.put_part(&upload, 0, b"x").await.unwrap();
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
    let mut raw = platform.raw().await;
    assert_eq!(raw.one("select count(*)::text from pg_class where relname like 'chunks%'").await, "0");
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
