//! What a turn reads does not grow with what the agent has said before, though the tables have no statistics.

use std::time::{Duration, Instant};

use futures::future::join_all;

use crate::{Database, talk};

const TURNS: usize = 500;
/// Rows of conversations that a turn may read through indexes: it finds its own a few times.
const ROWS_A_TURN: usize = 8;

#[tokio::test]
async fn a_turn_reads_no_other_conversations_of_its_agent() {
    let database = Database::migrated().await;
    let mut admin = database.raw(&database.url).await;
    // Nothing is vacuumed: plans are those that were made while the tables were empty.
    for table in ["conversations", "messages", "turns"] {
        admin.ask(&format!("alter table slipway.{table} set (autovacuum_enabled = off)")).await.unwrap();
    }
    let store = database.tenant("a", "ag_1").await;
    for begun in (0..TURNS).step_by(10) {
        join_all((begun..begun + 10).map(|n| {
            let store = &store;
            async move { talk(store, &format!("conv_{n}"), "q", "a").await.unwrap() }
        }))
        .await;
    }
    drop(store);
    let scans =
        "select coalesce(sum(idx_scan), 0)::text from pg_stat_user_indexes where schemaname = 'slipway' and relname = 'conversations'";
    let rows =
        "select coalesce(sum(idx_tup_read), 0)::text from pg_stat_user_indexes where schemaname = 'slipway' and relname = 'conversations'";
    let began = Instant::now();
    // Sessions tell of what they did once a second at most.
    while admin.one(scans).await.parse::<usize>().unwrap() < 2 * TURNS {
        assert!(began.elapsed() < Duration::from_secs(30), "the server tells of no scans");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let read: usize = admin.one(rows).await.parse().unwrap();
    assert!(read <= TURNS * ROWS_A_TURN, "{TURNS} turns read {read} rows of conversations");
    let sequential: usize = admin
        .one("select coalesce(sum(seq_tup_read), 0)::text from pg_stat_user_tables where schemaname = 'slipway' and relname in ('turns', 'messages', 'conversations')")
        .await
        .parse()
        .unwrap();
    assert!(sequential <= TURNS, "{TURNS} turns read {sequential} rows from end to end");
}
