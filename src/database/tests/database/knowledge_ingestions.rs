//! Ingestions of knowledge bases: what they have to read, what goes with its source, and who has one while another is killed.

use std::time::Duration;

use slipway_database::Fault;
use slipway_database::knowledge::{
    Begun, ChangesCursor, DocumentMeta, Ending, Ingestion, KnowledgeBase, KnowledgeReader, Listed, Removal, Report, SearchQuery,
};

use crate::knowledge::{Platform, begin, chunk, found, listed, meta, open, spec};

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
    let kept = |place: Option<ChangesCursor>| place.map(|kept| (kept.place, kept.age < Duration::from_mins(5)));
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

/// As if the process had been killed a minute ago.
async fn begin_after_lease(platform: &Platform, base: &KnowledgeBase, uid: &str) -> Ingestion {
    platform.raw().await.one("update slipway.ingestions set heartbeat = now() - interval '61 s' where ended_at is null").await;
    begin(base, uid, "s3").await
}

#[tokio::test]
async fn a_document_that_two_processes_began_is_read_no_more() {
    const BYTES: [u8; 32] = [7; 32];
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let keys = async |ingestion: &Ingestion| ingestion.unfinished().await.unwrap().into_iter().collect::<Vec<_>>().join(" ");
    let may = async |ingestion: &Ingestion, key: &str, again: bool| ingestion.begin_attempt(key, &BYTES, again).await.unwrap();
    let first = begin(&base, "one", "s3").await;
    // A database that was away is no end of the process.
    assert!(may(&first, "bad", true).await && may(&first, "bad", true).await && may(&first, "good", true).await);
    first.fail_document(&meta("good", "1"), "broken").await.unwrap();
    assert!(may(&first, "slow", true).await);
    let second = begin_after_lease(&platform, &base, "one").await;
    assert_eq!(keys(&second).await, "bad slow", "what failed has come to an end");
    assert!(may(&second, "slow", true).await);
    second.put_document(&meta("slow", "1"), vec![chunk(0, "slow words", None)]).await.unwrap();
    assert!(may(&second, "bad", true).await);
    // Ended from outside, and again without a word.
    second.withdraw_attempts().await.unwrap();
    let third = begin_after_lease(&platform, &base, "one").await;
    assert!(keys(&third).await == "bad" && may(&third, "bad", true).await);
    let fourth = begin_after_lease(&platform, &base, "one").await;
    assert!(!may(&fourth, "bad", true).await, "two have ended");
    fourth.fail_document(&meta("bad", "1"), "it ended two pods").await.unwrap();
    assert!(fourth.end(&Report::default(), Ending::Succeeded).await.unwrap());

    // Another one, unless somebody asked for it.
    let scheduled = begin(&base, "two", "s3").await;
    assert!(!may(&scheduled, "bad", false).await && may(&scheduled, "other", false).await);
    assert!(scheduled.begin_attempt("bad", &[8; 32], false).await.unwrap(), "it has changed");
    assert!(scheduled.end(&Report::default(), Ending::Failed).await.unwrap());
    assert_eq!(keys(&begin(&base, "three", "s3").await).await, "", "one that says why it ends has no suspects");
    for uid in ["four", "five"] {
        for _ in 0..2 {
            assert!(may(&begin_after_lease(&platform, &base, uid).await, "bad", true).await, "{uid}");
        }
        let last = begin_after_lease(&platform, &base, uid).await;
        assert!(!may(&last, "bad", true).await, "{uid} has had its two attempts");
        assert!(last.end(&Report::default(), Ending::Succeeded).await.unwrap());
    }
    let elsewhere = begin(&base, "six", "drive").await;
    assert!(keys(&elsewhere).await.is_empty() && may(&elsewhere, "bad", false).await, "another source's");
    let seventh = begin(&base, "seven", "s3").await;
    for n in 0..120 {
        assert!(may(&seventh, &format!("{n}"), false).await);
    }
    assert_eq!(platform.raw().await.one("select count(*)::text from slipway.attempts").await, "100");
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
