//! Search against an exact computation, with and without an index of vectors.

#![expect(clippy::cast_precision_loss, reason = "counts are small")]

use std::collections::HashSet;
use std::fmt::Write;

use slipway_database::knowledge::{Ending, Filter, Hit, KnowledgeBase, SearchQuery};
use slipway_peers::{Clusters, nearest};

use crate::Raw;
use crate::knowledge::{Platform, begin, chunk, found, meta};

/// The share of the expected that was found.
fn recall(expected: &[usize], hits: &[Hit]) -> f64 {
    let found: HashSet<usize> = hits.iter().map(|hit| hit.key.parse().unwrap()).collect();
    expected.iter().filter(|place| found.contains(place)).count() as f64 / expected.len() as f64
}

const COUNT: usize = 5_000;
/// Whether a filter lets a place through.
type Through = fn(usize) -> bool;

/// A base of documents of one chunk each, written past the doors to save time: the key is the place, of ten one is of `drive`.
async fn filled(platform: &Platform, base: &KnowledgeBase, vectors: &[(Vec<f32>, usize)]) {
    base.fix_model("mini", 64).await.unwrap();
    let mut raw: Raw = platform.raw().await;
    let table = raw.one("select chunks::text from slipway.bases").await;
    for (batch, vectors) in vectors.chunks(500).enumerate() {
        let (mut documents, mut chunks) = (String::new(), String::new());
        for (n, (vector, cluster)) in vectors.iter().enumerate() {
            let (place, comma) = (batch * 500 + n, if n == 0 { "" } else { "," });
            let source = if place.is_multiple_of(10) { "drive" } else { "s3" };
            let revision = format!("00000000-0000-0000-0000-{place:012}");
            write!(
                documents,
                "{comma}('uid-of-a-kb_docs-1', 'doc_{place}', '{source}', '{place}', 'uri', 'file{}', 'text', 'ready', 1, '{revision}', 1)",
                place % 1000
            )
            .unwrap();
            write!(chunks, "{comma}('{revision}', 0, 1, 0, 0, 'x', '', 'cluster{cluster} rare{} everywhere', '{vector:?}')", place / 7)
                .unwrap();
        }
        raw.ask(&format!("insert into slipway.documents (base, id, source, key, uri, filename, content_type, status, bytes, revision, chunk_count) values {documents}")).await.unwrap();
        raw.ask(&format!("set search_path = slipway; insert into {table} (revision, ordinal, tokens, starts, ends, hash, section, content, embedding) values {chunks}")).await.unwrap();
    }
}

fn by_vector(vector: &[f32], top_k: u32, filter: Filter) -> SearchQuery {
    SearchQuery { vector: Some(vector.to_vec()), top_k, filter, ..SearchQuery::default() }
}

#[tokio::test]
async fn search_finds_what_an_exact_computation_finds() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let mut clusters = Clusters::new(40, 64);
    let vectors: Vec<_> = (0..COUNT).map(|_| clusters.vector()).collect();
    filled(&platform, &base, &vectors).await;
    let only: Vec<_> = vectors.iter().map(|(vector, _)| vector.clone()).collect();
    let queries: Vec<_> = (0..20).map(|_| clusters.vector()).collect();
    for indexed in [false, true] {
        let ingestion = begin(&base, if indexed { "two" } else { "one" }, "s3").await;
        ingestion.settle(if indexed { 1_000 } else { u32::MAX }).await.unwrap();
        ingestion.end(&slipway_database::knowledge::Report::default(), Ending::Succeeded).await.unwrap();
        let (info, _) = platform.admin.base("uid-of-a-kb_docs-1").await.unwrap().unwrap();
        assert_eq!(info.indexed, indexed);
        let least = if indexed { 0.97 } else { 0.995 };
        let (all, most, drive, file) = (
            Filter::default(),
            Filter { sources: vec!["s3".into()], ..Filter::default() },
            Filter { sources: vec!["drive".into()], ..Filter::default() },
            Filter { filenames: vec!["file3".into()], ..Filter::default() },
        );
        let cases: [(&Filter, u32, Through); 5] = [
            (&all, 10, |_| true),
            // More documents than are compared one by one.
            (&most, 10, |place| !place.is_multiple_of(10)),
            (&drive, 10, |place| place.is_multiple_of(10)),
            (&file, 10, |place| place % 1000 == 3),
            (&most, 100, |place| !place.is_multiple_of(10)),
        ];
        for (filter, top_k, through) in cases {
            let mut total = 0.0;
            for (query, _) in &queries {
                let hits = base.search(&by_vector(query, top_k, filter.clone())).await.unwrap();
                let expected = nearest(&only, query, top_k as usize, through);
                assert_eq!(hits.len(), expected.len(), "never fewer than there are: {filter:?}");
                assert!(hits.iter().all(|hit| through(hit.key.parse().unwrap())), "{filter:?}");
                assert!(hits.windows(2).all(|pair| pair[0].score > pair[1].score && pair[0].cosine.unwrap() >= pair[1].cosine.unwrap()));
                let cosine: f32 = only[hits[0].key.parse::<usize>().unwrap()].iter().zip(query).map(|(one, other)| one * other).sum();
                assert!((f64::from(cosine) - hits[0].cosine.unwrap()).abs() < 0.002, "{cosine} {:?}", hits[0].cosine);
                total += recall(&expected, &hits);
            }
            let mean = total / queries.len() as f64;
            assert!(mean >= least, "recall@{top_k} of {mean} with {filter:?}, indexed: {indexed}");
        }
        // Two halves: what both find comes first, and what only one finds is there as well.
        let query = SearchQuery { text: "rare3".into(), ..by_vector(&only[24], 10, Filter::default()) };
        let hits = base.search(&query).await.unwrap();
        assert!((hits[0].key.as_str(), hits[0].vector_rank) == ("24", Some(1)) && hits[0].text_rank.is_some(), "{:?}", hits[0]);
        assert!(hits.iter().filter(|hit| hit.content.contains("rare3 ")).count() > 4, "{hits:?}");
        let floor = hits[4].score;
        let above = base.search(&SearchQuery { min_score: Some(floor), ..query.clone() }).await.unwrap();
        assert_eq!(above, hits.iter().filter(|hit| hit.score >= floor).cloned().collect::<Vec<_>>());
        // A word that all have does not drown the one that few have.
        let hits = found(&base, "everywhere rare3").await;
        assert!(hits[..7].iter().all(|content| content.contains("rare3 ")), "{hits:?}");
        assert_eq!(found(&base, "everywhere").await.len(), 10);
        assert_eq!(found(&base, "\"cluster3 rare\" -everywhere").await.len(), 0);
        assert_eq!(found(&base, "").await.len(), 0);
        let one = Filter { document_ids: vec!["doc_5".into(), "doc_x".into()], sources: vec!["s3".into()], ..Filter::default() };
        assert_eq!(base.search(&by_vector(&only[0], 10, one)).await.unwrap().len(), 1);
        let none = Filter { document_ids: vec!["doc_10".into()], sources: vec!["s3".into()], ..Filter::default() };
        assert!(base.search(&by_vector(&only[0], 10, none)).await.unwrap().is_empty());
    }
}

/// An index stops after a number of vectors; what it has not found is found without it.
#[tokio::test]
async fn an_index_that_stops_early_does_not_hide_anything() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let mut clusters = Clusters::new(40, 64);
    let vectors: Vec<_> = (0..COUNT).map(|_| clusters.vector()).collect();
    filled(&platform, &base, &vectors).await;
    let mut raw = platform.raw().await;
    base.build(1_000).await.unwrap();
    // All but the farthest are gone, and are still in the index.
    let query = vectors[0].0.clone();
    let only: Vec<_> = vectors.iter().map(|(vector, _)| vector.clone()).collect();
    let order = nearest(&only, &query, COUNT, |_| true);
    let left: Vec<_> = order[COUNT - 5..].iter().map(|place| format!("'doc_{place}'")).collect();
    raw.ask(&format!("update slipway.documents set revision = null where id not in ({})", left.join(","))).await.unwrap();
    assert_eq!(base.search(&by_vector(&query, 10, Filter::default())).await.unwrap().len(), 5);
}

#[tokio::test]
async fn searches_go_on_while_the_index_is_built() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let mut clusters = Clusters::new(40, 64);
    let vectors: Vec<_> = (0..COUNT).map(|_| clusters.vector()).collect();
    filled(&platform, &base, &vectors).await;
    let (builder, other) = (base.clone(), platform.base("a", "kb_docs").await);
    let building = tokio::spawn(async move { builder.build(1_000).await.unwrap() });
    let mut searches = 0;
    while !building.is_finished() {
        assert_eq!(base.search(&by_vector(&vectors[searches].0, 10, Filter::default())).await.unwrap().len(), 10);
        searches += 1;
    }
    assert!(building.await.unwrap() && searches > 2, "{searches}");
    // Two builds at once are one.
    let (one, two) = Box::pin(futures::future::join(base.build(1_000), other.build(1_000))).await;
    assert!(one.unwrap() || two.unwrap());
}

#[tokio::test]
async fn the_words_of_headings_are_found_too() {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    let ingestion = begin(&base, "one", "s3").await;
    let mut headed = chunk(0, "nothing of it in here", None);
    headed.section = vec!["Backups".into(), "Restoring them".into()];
    ingestion.put_document(&meta("a", "1"), vec![headed, chunk(1, "a backup is mentioned", None)]).await.unwrap();
    assert_eq!(found(&base, "restore backup").await, ["nothing of it in here", "a backup is mentioned"]);
}
