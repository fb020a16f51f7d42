//! Memories: kept once, found by vectors or words.

use slipway_database::{Category, Embedding, Fault, NewMemory, Store};

use crate::{Database, SERVER, options};

fn memory(content: &str, vector: Option<&[f32]>) -> NewMemory {
    let embedding = vector.map(|vector| Embedding { model: "mini".into(), vector: vector.to_vec() });
    NewMemory { content: content.into(), category: Category::Fact, source: "chat".into(), embedding }
}

fn embedding(vector: &[f32]) -> Embedding {
    Embedding { model: "mini".into(), vector: vector.to_vec() }
}

async fn found(store: &Store, query: &str, vector: Option<&[f32]>) -> Vec<String> {
    let embedding = vector.map(embedding);
    store.search_memories(query, embedding.as_ref(), 10).await.unwrap().into_iter().map(|entry| entry.content).collect()
}

#[tokio::test]
async fn a_memory_is_kept_once_however_it_is_put() {
    let store = Database::migrated().await.tenant("a", "ag_1").await;
    let first = store.remember(memory("Likes green tea.", Some(&[1.0, 0.0, 0.0]))).await.unwrap();
    assert!(!first.existed && first.entry.id.starts_with("mem_"));
    let same = store.remember(memory("  likes GREEN\ntea", None)).await.unwrap();
    assert!(same.existed);
    assert_eq!(same.entry.id, first.entry.id);
    // Cosine 0.995.
    let near = NewMemory { category: Category::Preference, ..memory("Really likes green tea", Some(&[1.0, 0.1, 0.0])) };
    let near = store.remember(near).await.unwrap();
    assert!(near.existed);
    assert_eq!((near.entry.id.as_str(), near.entry.category), (first.entry.id.as_str(), Category::Preference));
    assert_eq!(near.entry.created_at, first.entry.created_at);
    // Cosine 0.93: another one.
    assert!(!store.remember(memory("Likes black tea", Some(&[1.0, 0.5, 0.0]))).await.unwrap().existed);
    // The same vector of another model says nothing.
    let other = Embedding { model: "other".into(), vector: vec![1.0, 0.1, 0.0] };
    assert!(!store.remember(NewMemory { embedding: Some(other), ..memory("Has a cat", None) }).await.unwrap().existed);
    // Nor does a vector of another length.
    assert!(!store.remember(memory("Has a dog", Some(&[1.0, 0.1]))).await.unwrap().existed);
    assert_eq!(store.memory_count().await.unwrap(), 4);
    let contents: Vec<_> = store.memories(10, None).await.unwrap().items.into_iter().map(|entry| entry.content).collect();
    assert_eq!(contents, ["Has a dog", "Has a cat", "Likes black tea", "Really likes green tea"]);
}

#[tokio::test]
async fn two_that_are_told_the_same_at_once_keep_one() {
    let database = Database::migrated().await;
    let stores = [database.tenant("a", "ag_1").await, database.tenant("a", "ag_1").await];
    let told = futures::future::join_all((0..20).map(|n| stores[n % 2].remember(memory("the same", Some(&[1.0, 0.0]))))).await;
    assert_eq!(told.iter().filter(|outcome| !outcome.as_ref().unwrap().existed).count(), 1);
    assert_eq!(stores[0].memory_count().await.unwrap(), 1);
}

#[tokio::test]
async fn words_are_found_by_their_stems_phrases_and_exclusions() {
    let store = Database::migrated().await.tenant("a", "ag_1").await;
    for content in
        ["The user's favourite colour is blue", "Trinkt gerne grünen Tee", "Works as a baker in Lyon", "Was baking bread with The Who"]
    {
        store.remember(memory(content, None)).await.unwrap();
    }
    for (query, expected) in [
        ("What are their favourite colours?", &["The user's favourite colour is blue"][..]),
        ("grünen tee", &["Trinkt gerne grünen Tee"]),
        ("bakes", &["Was baking bread with The Who"]),
        ("\"a baker\"", &["Works as a baker in Lyon"]),
        ("bread lyon", &["Was baking bread with The Who", "Works as a baker in Lyon"]),
        ("blue -favourite", &[]),
        ("the who", &["Was baking bread with The Who"]),
        ("it's \\ 'quoted' & | ! <-> :* http://a.b/?x=1&y=2", &[]),
        ("", &[]),
        ("\0", &[]),
    ] {
        assert_eq!(found(&store, query, None).await, expected, "{query}");
    }
    let hits = store.search_memories("baker in Paris or Lyon", None, 1).await.unwrap();
    assert_eq!(hits.len(), 1);
    let hits = store.search_memories("baker Lyon Paris", None, 5).await.unwrap();
    assert_eq!(hits[0].relevance, Some(2.0 / 3.0), "two of three words");
}

#[tokio::test]
async fn vectors_find_the_nearest_and_words_fill_the_rest() {
    let store = Database::migrated().await.tenant("a", "ag_1").await;
    for (content, vector) in
        [("east", Some(&[1.0, 0.0][..])), ("north", Some(&[0.0, 1.0])), ("west", Some(&[-1.0, 0.0])), ("plain words", None)]
    {
        store.remember(memory(content, vector)).await.unwrap();
    }
    assert_eq!(found(&store, "words", Some(&[0.9, 0.2])).await, ["east", "north", "west", "plain words"]);
    let hits = store.search_memories("words", Some(&embedding(&[1.0, 0.0])), 3).await.unwrap();
    let relevance: Vec<_> = hits.iter().map(|hit| hit.relevance.unwrap()).collect();
    assert_eq!(relevance, [1.0, 0.0, 0.0], "a cosine below 0 is no relevance");
    // A new model: nothing has its vectors yet, so words do; then they come one by one.
    let new = Embedding { model: "maxi".into(), vector: vec![0.0, 1.0, 0.0] };
    let hits = store.search_memories("west", Some(&new), 3).await.unwrap();
    assert_eq!(hits.iter().map(|hit| hit.content.as_str()).collect::<Vec<_>>(), ["west"]);
    let missing = store.unembedded("maxi", 10).await.unwrap();
    assert_eq!(missing.len(), 4);
    for entry in &missing[..3] {
        assert!(store.embed(&entry.id, &new).await.unwrap());
    }
    assert!(!store.embed("mem_nowhere", &new).await.unwrap());
    assert_eq!(store.unembedded("maxi", 10).await.unwrap().into_iter().map(|entry| entry.content).collect::<Vec<_>>(), ["plain words"]);
    assert_eq!(store.search_memories("plain", Some(&new), 10).await.unwrap().len(), 4);
}

#[tokio::test]
async fn memories_are_paged_forgotten_and_refused() {
    let store = Database::migrated().await.tenant("a", "ag_1").await;
    let mut ids = Vec::new();
    for n in 0..5 {
        // Ids are in the order of time to the millisecond.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        let mut vector = [0.0; 5];
        vector[n] = 1.0;
        ids.insert(0, store.remember(memory(&format!("memory {n}"), Some(&vector))).await.unwrap().entry.id);
    }
    let one = store.memories(3, None).await.unwrap();
    let two = store.memories(3, one.next_cursor.as_deref()).await.unwrap();
    assert_eq!(two.next_cursor, None);
    assert_eq!(one.items.iter().chain(&two.items).map(|entry| entry.id.clone()).collect::<Vec<_>>(), ids);
    assert!(store.forget(&ids[0]).await.unwrap());
    assert!(!store.forget(&ids[0]).await.unwrap());
    assert_eq!(store.memory_count().await.unwrap(), 4);
    assert_eq!(found(&store, "x", Some(&[0.0, 0.0, 0.0, 0.0, 1.0])).await.len(), 4, "its vector went along");
    for bad in [memory("  ", None), memory(&"x".repeat(20_000), None), memory("x", Some(&[0.0, 0.0])), memory("x", Some(&[f32::NAN]))] {
        assert!(matches!(store.remember(bad).await, Err(Fault::Refused(_))));
    }
}

#[tokio::test]
async fn without_pgvector_memories_work_and_it_is_said() {
    let database = Database::empty();
    SERVER.psql(&format!("create role plain_{0} login password 'plain-plain-plain-plain'", database.name));
    let admin = database.raw(&database.url).await;
    // The schema exists and is this login's; the database is not, so that no extension can be created.
    drop(admin);
    let mut admin = database.raw(&database.url).await;
    admin.one(&format!("create schema slipway authorization plain_{}", database.name)).await;
    let url = SERVER.url_of(&format!("plain_{}", database.name), "plain-plain-plain-plain", &database.name);
    let migrated = slipway_database::migrate(&url, None, None).await.unwrap();
    assert!(migrated.vectors.to_string().contains("CREATE EXTENSION vector"), "{}", migrated.vectors);
    let store = Store::open(&options(&url, "a", "ag_1")).unwrap();
    store.remember(memory("Likes green tea", Some(&[1.0, 0.0]))).await.unwrap();
    assert_eq!(store.has_vectors(), Some(false));
    assert_eq!(found(&store, "teas", Some(&[1.0, 0.0])).await, ["Likes green tea"]);
    assert!(store.unembedded("mini", 10).await.unwrap().is_empty());
    // An administrator installs it; the next migration uses it, and memories can be given their vectors.
    admin.one("create extension vector").await;
    let migrated = slipway_database::migrate(&url, None, None).await.unwrap();
    assert_eq!(migrated.vectors, slipway_database::Vectors::Ready);
    let store = Store::open(&options(&url, "a", "ag_1")).unwrap();
    let missing = store.unembedded("mini", 10).await.unwrap();
    assert!(store.embed(&missing[0].id, &embedding(&[1.0, 0.0])).await.unwrap());
    assert_eq!(found(&store, "nothing", Some(&[1.0, 0.0])).await, ["Likes green tea"]);
}

/// Prints what docs/database.md tells; run it alone, with `--ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
async fn ten_thousand_memories_are_searched_in_time() {
    let database = Database::migrated().await;
    for dimensions in [384, 768, 1536] {
        let agent = format!("ag_{dimensions}");
        let mut admin = database.raw(&database.url).await;
        admin
            .one(&format!(
                "insert into slipway.memories (team, agent_id, id, content, category, source, digest, created_at, updated_at)
                 select 'a', '{agent}', 'mem_' || n, 'The user likes ' || md5(n::text) || ' and project ' || n % 100, 'fact', 'chat', sha256(n::text::bytea), now(), now()
                 from generate_series(1, 10000) n"
            ))
            .await;
        admin
            .one(&format!(
                "insert into slipway.memory_vectors
                 select 'a', '{agent}', 'mem_' || n, 'mini', {dimensions},
                        (select array_agg(random() - 0.5) from generate_series(1, {dimensions}) where n > 0)::real[]::vector
                 from generate_series(1, 10000) n"
            ))
            .await;
        let store = database.tenant("a", &agent).await;
        let query: Vec<f32> = (0..dimensions).map(|n: u16| (f32::from(n) * 0.7).sin()).collect();
        for (what, embedding) in [("vectors", Some(embedding(&query))), ("words", None)] {
            let mut times = Vec::new();
            for n in 0..20 {
                let start = std::time::Instant::now();
                let hits = store.search_memories(&format!("project {n}"), embedding.as_ref(), 10).await.unwrap();
                times.push(start.elapsed());
                assert_eq!(hits.len(), 10);
            }
            times.sort();
            println!("{dimensions} dimensions, {what}: median {:?}, slowest {:?}", times[10], times[19]);
        }
    }
}
