//! Memories in this process, alone and beside the database.

use std::collections::HashSet;

use slipway_database::{Category, Embedding, MemoryEntry, NewMemory};
use slipway_peers::Postgres;

use super::{MemoryStore, Store};

fn memory(content: &str, vector: Option<&[f32]>) -> NewMemory {
    let embedding = vector.map(embedding);
    NewMemory { content: content.into(), category: Category::Fact, source: "test".into(), embedding }
}

fn embedding(vector: &[f32]) -> Embedding {
    Embedding { model: "mini".into(), vector: vector.to_vec() }
}

/// The same agent in a database and without one.
fn stores(postgres: &Postgres) -> [Store; 2] {
    let (url, team, agent_id) = (postgres.url(), "red".to_owned(), "ag_1".to_owned());
    let options = slipway_database::Options {
        url,
        password: None,
        sslmode: None,
        team,
        agent_id,
        migrate: true,
        prepared_statements: false,
        run: slipway_database::PodRun::default(),
    };
    [Store::Postgresql(Box::new(slipway_database::Store::open(&options).unwrap())), Store::Memory(Box::<MemoryStore>::default())]
}

fn told(found: Vec<MemoryEntry>) -> Vec<(String, f64)> {
    found.into_iter().map(|entry| (entry.content, entry.relevance.unwrap())).collect()
}

#[tokio::test]
async fn memories_with_vectors_come_first_and_are_kept_once_as_in_the_database() {
    let postgres = Postgres::start();
    let mut told_by = Vec::new();
    for store in stores(&postgres) {
        for (content, vector) in [
            ("east", Some(&[1.0, 0.0][..])),
            ("north", Some(&[0.0, 1.0])),
            ("west", Some(&[-1.0, 0.0])),
            ("plain words", None),
            ("Is it so", None),
            ("Is it so?", None),
            ("is  IT so?", Some(&[0.0, -1.0])),
            ("rather north", Some(&[0.01, 0.99995])),
            // Known by its words, it keeps its vector.
            ("East.", None),
        ] {
            store.remember(memory(content, vector)).await.unwrap();
        }
        let mut told_here = vec![told(store.search_memories("plain words", Some(&embedding(&[0.9, 0.2])), 3).await.unwrap())];
        told_here.push(told(store.search_memories("plain words", Some(&embedding(&[0.9, 0.2])), 9).await.unwrap()));
        let listed = store.memories(10, None).await.unwrap().items;
        told_here.push(listed.into_iter().map(|entry| (entry.content, 0.0)).collect());
        told_by.push(told_here);
    }
    let [database, memory] = &told_by[..] else { panic!("two stores") };
    for (database, memory) in database.iter().zip(memory) {
        let words = |told: &[(String, f64)]| told.iter().map(|(content, _)| content.clone()).collect::<HashSet<_>>();
        assert_eq!(words(memory), words(database));
        assert!(memory.iter().zip(database).all(|((_, a), (_, b))| (a - b).abs() < 1e-6), "{memory:?} {database:?}");
    }
    assert_eq!(
        memory[0],
        database[0].iter().zip(&memory[0]).map(|((content, _), (_, close))| (content.clone(), *close)).collect::<Vec<_>>()
    );
}

#[test]
fn a_memory_is_found_by_the_words_of_the_query_that_it_contains() {
    let store = MemoryStore::default();
    for content in
        ["The user's favourite colour is blue", "Prefers green tea in the morning", "Trinkt gerne grünen Tee", "Works as a baker"]
    {
        store.remember(memory(content, None)).unwrap();
    }
    for (query, expected) in [
        ("What are their favourite colours?", &[("The user's favourite colour is blue", 1.0 / 4.0)][..]),
        ("GREEN morning", &[("Prefers green tea in the morning", 1.0)]),
        ("grünen tee", &[("Trinkt gerne grünen Tee", 1.0)]),
        ("green or blue", &[("The user's favourite colour is blue", 0.5), ("Prefers green tea in the morning", 0.5)]),
        ("who is the baker", &[("Works as a baker", 1.0)]),
        // Short words count where there are no others.
        ("tea", &[("Prefers green tea in the morning", 1.0)]),
        ("nothing whatsoever", &[]),
        ("?!", &[]),
        ("", &[]),
    ] {
        let mut found = told(store.search_memories(query, None, 10).unwrap());
        found.reverse();
        let expected: Vec<_> = expected.iter().map(|(content, share)| ((*content).to_owned(), *share)).collect();
        assert_eq!(found, expected, "{query}");
    }
}
