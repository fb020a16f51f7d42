//! Figures, not assertions: `cargo test --release -p slipway-database --test database knowledge_figures -- --ignored --nocapture`.

#![expect(clippy::print_stdout, clippy::cast_precision_loss, reason = "figures are for people")]

use std::time::{Duration, Instant};

use slipway_database::knowledge::{Filter, Report, SearchQuery};

use crate::Raw;
use crate::knowledge::{Platform, begin, chunk, meta};
use crate::knowledge_search::{Clusters, nearest, recall};

const DIMENSIONS: usize = 384;
const QUERIES: usize = 200;
const CHUNKS_PER_DOCUMENT: usize = 20;

fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    format!("p50 {:6.2} ms, p99 {:6.2} ms", times[times.len() / 2].as_secs_f64() * 1e3, times[times.len() * 99 / 100].as_secs_f64() * 1e3)
}

#[tokio::test]
#[ignore = "takes minutes; prints figures"]
async fn figures() {
    for count in [10_000, 100_000] {
        measure(count).await;
    }
}

async fn measure(count: usize) {
    let platform = Platform::start().await;
    let base = platform.base("a", "kb_docs").await;
    base.fix_model("mini", u32::try_from(DIMENSIONS).unwrap()).await.unwrap();
    let mut clusters = Clusters::new(count / 100, DIMENSIONS);
    let began = Instant::now();
    let mut vectors = Vec::new();
    let [s3, drive] = [begin(&base, "one", "s3").await, begin(&base, "two", "drive").await];
    for document in 0..count / CHUNKS_PER_DOCUMENT {
        let ingestion = if document.is_multiple_of(2) { &s3 } else { &drive };
        let mut chunks = Vec::new();
        for n in 0..CHUNKS_PER_DOCUMENT {
            let (vector, cluster) = clusters.next();
            // Words of a subject, common words, and rare ones.
            let words: Vec<_> = (0..100)
                .map(|n| match n % 3 {
                    0 => format!("subject{cluster}w{}", clusters.dice.below(50)),
                    1 => format!("common{}", clusters.dice.below(clusters_of_words(n))),
                    _ => format!("rare{}", clusters.dice.below(50_000)),
                })
                .collect();
            chunks.push(chunk(u32::try_from(n).unwrap(), &words.join(" "), Some(vector.clone())));
            vectors.push(vector);
        }
        ingestion.put_document(&meta(&document.to_string(), "1"), chunks).await.unwrap();
    }
    let written = began.elapsed();
    let queries: Vec<_> = (0..QUERIES).map(|_| clusters.next()).collect();
    let filter = Filter { sources: vec!["s3".into()], ..Filter::default() };
    let of_s3 = |place: usize| (place / CHUNKS_PER_DOCUMENT).is_multiple_of(2);
    let expected: Vec<_> =
        queries.iter().map(|(query, _)| [nearest(&vectors, query, 10, |_| true), nearest(&vectors, query, 10, of_s3)]).collect();
    println!(
        "{count} chunks of {DIMENSIONS} dimensions, {CHUNKS_PER_DOCUMENT} a document: written in {:.1} s ({:.0} chunks/s)",
        written.as_secs_f64(),
        count as f64 / written.as_secs_f64()
    );

    // While the index is built, searches go on.
    let (builder, mut during) = (base.clone(), Vec::new());
    let began = Instant::now();
    let building = tokio::spawn(async move { builder.build(1).await.unwrap() });
    while !building.is_finished() {
        let began = Instant::now();
        let (query, cluster) = &queries[during.len() % QUERIES];
        base.search(&hybrid(query, *cluster, &Filter::default())).await.unwrap();
        during.push(began.elapsed());
    }
    building.await.unwrap();
    println!("  built in {:.1} s, meanwhile {} searches without index: {}", began.elapsed().as_secs_f64(), during.len(), spread(during));
    s3.end(&Report::default(), true).await.unwrap();

    let mut raw = platform.raw().await;
    let table = raw.one("select chunks::text from slipway.bases where team = 'a'").await;
    raw.ask(&format!("vacuum slipway.{table}")).await.unwrap();
    println!(
        "  table {}, index of vectors {}, of words {}",
        raw.one(&format!("select pg_size_pretty(pg_table_size('slipway.{table}'))")).await,
        raw.one(&format!("select pg_size_pretty(pg_table_size('slipway.{table}_near'))")).await,
        raw.one(&format!("select pg_size_pretty(pg_table_size('slipway.{table}_words'))")).await
    );

    for (name, which, filter) in [("no filter", 0, &Filter::default()), ("half by filter", 1, &filter)] {
        for kind in ["warm", "vector", "hybrid", "text"] {
            let (mut times, mut total) = (Vec::new(), 0.0);
            for ((query, cluster), expected) in queries.iter().zip(&expected) {
                let mut search = hybrid(query, *cluster, filter);
                match kind {
                    "vector" => search.text.clear(),
                    "text" => search.vector = None,
                    _ => {}
                }
                let began = Instant::now();
                let hits = base.search(&search).await.unwrap();
                times.push(began.elapsed());
                let places: Vec<_> = hits
                    .into_iter()
                    .map(|mut hit| {
                        hit.key = (hit.key.parse::<usize>().unwrap() * CHUNKS_PER_DOCUMENT + hit.ordinal as usize).to_string();
                        hit
                    })
                    .collect();
                total += recall(&expected[which], &places);
            }
            if kind != "warm" {
                let recall = if kind == "vector" { format!(", recall@10 {:.4}", total / QUERIES as f64) } else { String::new() };
                println!("  {name}: {kind}: {}{recall}", spread(times));
            }
        }
        let expected: Vec<_> = expected.iter().map(|expected| &expected[which]).collect();
        plain(&mut raw, &table, name, which == 1, &queries, &expected).await;
    }
}

/// What anybody would write who has pgvector and one table: with its defaults, and with as many candidates as ours.
async fn plain(raw: &mut Raw, table: &str, name: &str, filtered: bool, queries: &[(Vec<f32>, usize)], expected: &[&Vec<usize>]) {
    let condition = if filtered { "where d.source = 's3'" } else { "" };
    for (settings, candidates) in [("pgvector's defaults", 40), ("ef_search 100", 100)] {
        let (mut times, mut total) = (Vec::new(), 0.0);
        for ((query, _), expected) in queries.iter().zip(expected) {
            let sql = format!(
                "begin; set local search_path = slipway; set local statement_timeout = '3s'; set local hnsw.ef_search = {candidates};
                 set local hnsw.iterative_scan = strict_order;
                 set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off; set local enable_sort = off;
                 select (d.key::int * {CHUNKS_PER_DOCUMENT} + c.ordinal)::text, c.content, d.uri, d.filename
                 from {table} c join documents d on d.revision = c.revision {condition}
                 order by c.embedding::halfvec({DIMENSIONS}) <=> '{query:?}'::halfvec({DIMENSIONS}) limit 10; commit"
            );
            let began = Instant::now();
            let rows = raw.ask(&sql).await.unwrap();
            times.push(began.elapsed());
            let found: Vec<usize> = rows.iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect();
            total += expected.iter().filter(|place| found.contains(place)).count() as f64 / 10.0;
        }
        println!("  {name}: plain pgvector, {settings}: {}, recall@10 {:.4}", spread(times), total / queries.len() as f64);
    }
}

fn hybrid(query: &[f32], cluster: usize, filter: &Filter) -> SearchQuery {
    SearchQuery {
        text: format!("subject{cluster}w3 subject{cluster}w7 common1 common5"),
        vector: Some(query.to_vec()),
        top_k: 10,
        min_score: None,
        filter: filter.clone(),
    }
}

/// Some words are in most chunks, others in a few of a hundred.
fn clusters_of_words(n: usize) -> usize {
    if n.is_multiple_of(2) { 40 } else { 4_000 }
}
