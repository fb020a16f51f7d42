//! What a turn reads does not grow with the tables, whatever they looked like when its statements were planned.

use crate::{Database, Raw};

/// Blocks of 8 KiB, of tables, indexes and catalogs; a turn in a small database reads some 45 and 40.
const MOST: u64 = 150;
/// Nothing comes between that would give the server another look at the tables.
const LEFT_ALONE: &str = "
    alter table slipway.conversations set (autovacuum_enabled = false);
    alter table slipway.messages set (autovacuum_enabled = false);
    alter table slipway.turns set (autovacuum_enabled = false)";
/// Without foreign keys, which are not what is tried.
const FILL: &str = "
    set session_replication_role = replica;
    insert into slipway.conversations
    select 'a', 'ag_1', 'conv_' || n, 'Where is the station?', now(), now() - n * interval '1 minute', 2 from generate_series(1, 20000) n;
    insert into slipway.messages
    select 'a', 'ag_1', 'conv_' || n, o, 'msg_' || n || '_' || o, 'user', 'Where is the station?', null, null, false, now()
    from generate_series(1, 20000) n, generate_series(1, 2) o;
    set session_replication_role = origin";
/// Turns that have ended, which are still there for who reads the table from end to end.
const ENDED: &str = "
    set session_replication_role = replica;
    insert into slipway.turns select 'a', 'ag_1', 'conv_' || n, 'turn_x', '', now(), now() from generate_series(1, 20000) n;
    delete from slipway.turns where holder = 'turn_x';
    set session_replication_role = origin";
/// As it was before.
const UNDONE: &str = "
    alter function slipway.take_turn reset all;
    alter function slipway.take_turn set search_path = pg_catalog, pg_temp;
    alter function slipway.end_turn reset all;
    alter function slipway.end_turn set search_path = pg_catalog, pg_temp;
    select pg_clear_attribute_stats('slipway', c.relname, a.attname, false)
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relname in ('conversations', 'messages', 'turns') and a.attnum > 0 and not a.attisdropped";

/// The blocks that the two steps of a turn read, with whatever they set off.
async fn read(raw: &mut Raw, conversation: &str, turn: u32) -> [u64; 2] {
    let begin = format!(
        "slipway.take_turn('a', 'ag_1', '{conversation}', 'title', 'turn_{turn}', 30, 'msg_q{turn}', 'said', null, 'msg_p{turn}', 20, 1000000)"
    );
    let end = format!(
        "slipway.end_turn('a', 'ag_1', '{conversation}', 'turn_{turn}',
                          array['msg_a{turn}'], array['assistant'], array['yes'], array[null], array[null], array[false])"
    );
    let mut blocks = [0, 0];
    for (step, blocks) in [begin, end].iter().zip(&mut blocks) {
        let plan = raw.ask(&format!("explain (analyze, buffers, format json) select * from {step}")).await.unwrap();
        let plan: serde_json::Value = serde_json::from_str(plan[0][0].as_deref().unwrap()).unwrap();
        let of = |name: &str| plan[0]["Plan"][name].as_u64().unwrap();
        *blocks = of("Shared Hit Blocks") + of("Shared Read Blocks");
    }
    blocks
}

/// After the plans have been made, and what else a connection looks up once.
async fn read_later(raw: &mut Raw, from: u32) -> [[u64; 2]; 2] {
    for turn in from..from + 8 {
        read(raw, &format!("conv_{}", turn % 4), turn).await;
    }
    [read(raw, &format!("conv_new_{from}"), from + 8).await, read(raw, "conv_7", from + 9).await]
}

fn most(blocks: &[[u64; 2]]) -> u64 {
    *blocks.iter().flatten().max().unwrap()
}

#[tokio::test]
async fn a_turn_among_many_conversations_reads_as_little_as_among_few() {
    let database = Database::migrated().await;
    let url = database.url_of(&database.login("a").await);
    let mut admin = database.raw(&database.url).await;
    admin.ask(LEFT_ALONE).await.unwrap();
    let mut old = Raw::connect(&url).await;
    let few = read_later(&mut old, 0).await;
    admin.ask("delete from slipway.conversations; delete from slipway.messages").await.unwrap();
    admin.ask(FILL).await.unwrap();
    let kept = [read(&mut old, "conv_new", 100).await, read(&mut old, "conv_7", 101).await];
    let mut fresh = Raw::connect(&url).await;
    let never_looked_at = read_later(&mut fresh, 200).await;
    admin.one("vacuum analyze slipway.turns").await;
    let mut later = Raw::connect(&url).await;
    let empty = read_later(&mut later, 300).await;
    admin.ask(ENDED).await.unwrap();
    let ended = [read(&mut later, "conv_new_4", 400).await, read(&mut later, "conv_7", 401).await];
    for (when, blocks) in [("few", few), ("plans of before", kept), ("no statistics", never_looked_at), ("empty", empty), ("ended", ended)]
    {
        assert!(most(&blocks) <= MOST, "{when}: {blocks:?}");
    }

    // Without what was done about it, the same turns read more: it is not that the tables are too small to tell.
    admin.ask(UNDONE).await.unwrap();
    let mut undone = Raw::connect(&url).await;
    let by_another_index = read_later(&mut undone, 500).await;
    admin.one("vacuum analyze slipway.turns").await;
    read_later(&mut undone, 600).await;
    admin.ask(ENDED).await.unwrap();
    let end_to_end = [read(&mut undone, "conv_7", 700).await];
    assert!(most(&by_another_index) > MOST && most(&end_to_end) > MOST, "{by_another_index:?}, {end_to_end:?}");
}

/// What foreign keys ask is planned in the server, by whatever it believes of the tables.
#[tokio::test]
async fn what_refers_to_a_conversation_finds_it_by_its_key() {
    let database = Database::migrated().await;
    let mut admin = database.raw(&database.url).await;
    admin.ask(LEFT_ALONE).await.unwrap();
    for fill in ["select", FILL, "analyze slipway.conversations, slipway.messages"] {
        admin.ask(fill).await.unwrap();
        for (question, key) in [
            ("select 1 from only slipway.conversations where team = $1 and agent_id = $2 and id = $3 for key share", "conversations_pkey"),
            ("delete from only slipway.messages where team = $1 and agent_id = $2 and conversation_id = $3", "messages_pkey"),
        ] {
            let plan = admin.ask(&format!("explain (generic_plan) {question}")).await.unwrap();
            assert!(format!("{plan:?}").contains(key), "{fill}: {plan:?}");
        }
    }
}
