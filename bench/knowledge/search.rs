//! Searches of a base by how many chunks it has: recall and latency, by vector and by both halves, with filters that let more or
//! fewer documents through, beside plain HNSW and an exact scan of the same table.

use std::time::{Duration, Instant};

use anyhow::bail;
use slipway_database::knowledge::{Begun, DocumentMeta, Ending, Filter, Hit, Ingestion, KnowledgeBase, NewChunk, Report, SearchQuery};
use slipway_peers::{Clusters, nearest};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Executor, PgConnection, Row};

use super::tenant::Tenant;
use crate::numbers::percentile;
use crate::table;

const DIMENSIONS: u16 = 384;
const QUERIES: usize = 200;
/// An exact scan takes its time.
const SCANS: usize = 20;
const FOUND: usize = 10;
const CHUNKS_A_DOCUMENT: usize = 20;
/// The sources, with the first of a hundred documents that belong to them.
const SOURCES: [(&str, usize); 4] = [("one in a hundred", 0), ("one in ten", 1), ("half", 11), ("the rest", 61)];

/// The medians, in seconds, by what was let through and searched.
pub(super) async fn measure(size: u32) -> anyhow::Result<Vec<(String, f64)>> {
    let tenant = Tenant::prepare("tk_bench").await?;
    let base = tenant.base()?;
    base.fix_model("mini", u32::from(DIMENSIONS)).await?;
    table::part(&format!(
        "Search: {size} chunks of {DIMENSIONS} dimensions, {CHUNKS_A_DOCUMENT} a document; {QUERIES} queries for {FOUND}"
    ));
    let mut clusters = Clusters::new((size as usize / 100).max(1), usize::from(DIMENSIONS));
    let begun = Instant::now();
    let vectors = fill(&base, &mut clusters, size as usize).await?;
    table::alone("written, without embedding", &table::per_second(f64::from(size) / begun.elapsed().as_secs_f64()), "");
    let begun = Instant::now();
    base.build(1).await?;
    table::alone("index of vectors", &table::seconds(begun.elapsed().as_secs_f64()), "");
    let mut owner = tenant.owner().await?;
    let chunks: String = owner.fetch_one("SELECT chunks::text FROM slipway.bases").await?.try_get(0)?;
    owner.execute(sqlx::raw_sql(AssertSqlSafe(format!("VACUUM slipway.{chunks}")))).await?;

    let mut medians = Vec::new();
    let queries: Vec<_> = (0..QUERIES).map(|_| clusters.vector()).collect();
    for share in ["all", "half", "one in ten", "one in a hundred"] {
        let through = |place: usize| share == "all" || source(place / CHUNKS_A_DOCUMENT) == share;
        let asked: Vec<_> = queries.iter().map(|(query, cluster)| (query, *cluster, nearest(&vectors, query, FOUND, through))).collect();
        // Once for the caches, of which the floor has as much.
        let [mut near, mut both, mut hnsw, mut scan] = [const { Measured::new() }; 4];
        ours(&base, share, true, &asked, &mut Measured::new()).await?;
        // By turns, so that both have the same machine at each moment, and neither is always the second to ask.
        for (turn, query) in asked.chunks(1).enumerate() {
            if turn % 2 == 0 {
                plain(&mut owner, &chunks, share, true, query, &mut hnsw).await?;
            }
            ours(&base, share, false, query, &mut near).await?;
            if turn % 2 == 1 {
                plain(&mut owner, &chunks, share, true, query, &mut hnsw).await?;
            }
        }
        ours(&base, share, true, &asked, &mut both).await?;
        plain(&mut owner, &chunks, share, false, &asked[..SCANS], &mut scan).await?;
        for (what, percent, goal) in [("p50", 50, "<= 1.3 x"), ("p99", 99, "")] {
            let (measured, floor) = (near.at(percent), hnsw.at(percent));
            let shown = (table::milliseconds(measured), table::milliseconds(floor));
            table::beside(&format!("{share}: vectors, {what}"), (&shown.0, measured), (&shown.1, floor), goal);
        }
        table::alone(&format!("{share}: vectors, recall@{FOUND}"), &format!("{:.4}", near.recall()), ">= 0.97");
        table::alone(&format!("{share}: with words, p50"), &table::milliseconds(both.at(50)), "");
        table::alone(&format!("{share}: with words, p99"), &table::milliseconds(both.at(99)), "");
        medians.extend([(format!("{share}: vectors, p50"), near.at(50)), (format!("{share}: with words, p50"), both.at(50))]);
        let exact = table::milliseconds(scan.at(50));
        table::remark(&format!("recall@{FOUND} of the floor {:.4}; an exact scan takes {exact} (p50 of {SCANS})", hnsw.recall()));
    }
    table::remark(
        "the floor is what anybody would write who has pgvector: HNSW with ef_search 100, iterative, and a join with the documents",
    );
    Ok(medians)
}

fn source(document: usize) -> &'static str {
    let of = document % 100;
    SOURCES.iter().rev().find(|(_, first)| of >= *first).map_or("", |(name, _)| name)
}

/// Texts with words of a subject, common words, and rare ones. The vectors, in order.
async fn fill(base: &KnowledgeBase, clusters: &mut Clusters, size: usize) -> anyhow::Result<Vec<Vec<f32>>> {
    let mut ingestions = Vec::new();
    for (number, (name, _)) in SOURCES.iter().enumerate() {
        let Begun::Ingestion(ingestion) = base.begin_ingestion(&number.to_string(), name).await? else {
            bail!("another ingestion is under way")
        };
        ingestions.push((*name, ingestion));
    }
    let mut vectors = Vec::new();
    for document in 0..size / CHUNKS_A_DOCUMENT {
        let mut chunks = Vec::new();
        for ordinal in 0..CHUNKS_A_DOCUMENT {
            let (vector, cluster) = clusters.vector();
            chunks.push(chunk(ordinal, text(clusters, cluster), vector.clone()));
            vectors.push(vector);
        }
        let meta = DocumentMeta { key: document.to_string(), filename: format!("{document}.txt"), ..DocumentMeta::default() };
        let ingestion: &Ingestion = &ingestions.iter().find(|(name, _)| *name == source(document)).unwrap_or(&ingestions[0]).1;
        ingestion.put_document(&meta, chunks).await?;
        // Filling takes longer than an ingestion may be silent.
        if document % 100 == 0 {
            for (_, ingestion) in &ingestions {
                ingestion.report(&Report::default()).await?;
            }
        }
    }
    for (_, ingestion) in &ingestions {
        ingestion.end(&Report::default(), Ending::Succeeded).await?;
    }
    Ok(vectors)
}

fn text(clusters: &mut Clusters, cluster: usize) -> String {
    let dice = &mut clusters.dice;
    let word = |n: usize| match n % 3 {
        0 => format!("subject{cluster}w{}", dice.below(50)),
        1 => format!("common{}", dice.below(if n.is_multiple_of(2) { 40 } else { 4_000 })),
        _ => format!("rare{}", dice.below(50_000)),
    };
    (0..100).map(word).collect::<Vec<_>>().join(" ")
}

fn chunk(ordinal: usize, text: String, vector: Vec<f32>) -> NewChunk {
    let mut hash = [0; 32];
    for (place, value) in vector.iter().take(8).enumerate() {
        hash[place * 4..place * 4 + 4].copy_from_slice(&value.to_be_bytes());
    }
    NewChunk {
        ordinal: u32::try_from(ordinal).unwrap_or_default(),
        page: Some(1),
        section: vec!["Guide".to_owned()],
        tokens: 100,
        start: 0,
        end: text.len() as u64,
        hash,
        vector: Some(vector),
        text,
    }
}

/// A query, its cluster, and the places that an exact computation finds.
type Asked<'a> = (&'a Vec<f32>, usize, Vec<usize>);

struct Measured {
    seconds: Vec<f64>,
    found: usize,
    expected: usize,
}

impl Measured {
    const fn new() -> Self {
        Self { seconds: Vec::new(), found: 0, expected: 0 }
    }

    fn add(&mut self, took: Duration, expected: &[usize], found: &[usize]) {
        self.seconds.push(took.as_secs_f64());
        self.found += expected.iter().filter(|place| found.contains(place)).count();
        self.expected += expected.len();
    }

    fn at(&self, percent: usize) -> f64 {
        percentile(&self.seconds, percent)
    }

    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    fn recall(&self) -> f64 {
        self.found as f64 / self.expected as f64
    }
}

async fn ours(base: &KnowledgeBase, share: &str, words: bool, asked: &[Asked<'_>], measured: &mut Measured) -> anyhow::Result<()> {
    let sources = if share == "all" { Vec::new() } else { vec![share.to_owned()] };
    let filter = Filter { sources, ..Filter::default() };
    for (query, cluster, expected) in asked {
        let text = if words { format!("subject{cluster}w3 subject{cluster}w7 common1 common5") } else { String::new() };
        let search = SearchQuery { text, vector: Some((*query).clone()), top_k: 10, min_score: None, filter: filter.clone() };
        let begun = Instant::now();
        let hits = base.search(&search).await?;
        measured.add(begun.elapsed(), expected, &hits.iter().map(place).collect::<Vec<_>>());
    }
    Ok(())
}

fn place(hit: &Hit) -> usize {
    hit.key.parse::<usize>().unwrap_or_default() * CHUNKS_A_DOCUMENT + hit.ordinal as usize
}

async fn plain(
    owner: &mut PgConnection,
    chunks: &str,
    share: &str,
    indexed: bool,
    asked: &[Asked<'_>],
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let condition = if share == "all" { String::new() } else { format!("WHERE d.source = '{share}'") };
    let plan = if indexed {
        "set local hnsw.ef_search = 100; set local hnsw.iterative_scan = strict_order; set local enable_seqscan = off;
         set local enable_hashjoin = off; set local enable_mergejoin = off; set local enable_sort = off"
    } else {
        "set local enable_indexscan = off; set local max_parallel_workers_per_gather = 0"
    };
    for (query, _, expected) in asked {
        let sql = format!(
            "begin; set local search_path = slipway; {plan};
             select (d.key::int * {CHUNKS_A_DOCUMENT} + c.ordinal)::text, c.content, d.uri, d.filename
             from {chunks} c join documents d on d.revision = c.revision {condition}
             order by c.embedding::halfvec({DIMENSIONS}) <=> '{query:?}'::halfvec({DIMENSIONS}) limit {FOUND}; commit"
        );
        let begun = Instant::now();
        let rows = owner.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
        let took = begun.elapsed();
        let found = |row: &PgRow| row.try_get::<String, _>(0).ok().and_then(|place| place.parse().ok());
        measured.add(took, expected, &rows.iter().filter_map(found).collect::<Vec<_>>());
    }
    Ok(())
}
