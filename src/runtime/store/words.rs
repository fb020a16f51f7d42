//! Full text without a database: a query's words, phrases, alternatives and exclusions, compared as
//! they stand and by their English stems. It follows PostgreSQL's `websearch_to_tsquery`; where it
//! cannot, `docs/database.md` says so.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

/// So many characters of a query count, as in the database.
const LONGEST: usize = 500;

/// Words that say nothing about a text's subject, by PostgreSQL's English dictionary.
static STOP: LazyLock<HashSet<&str>> = LazyLock::new(|| STOPPED.split_whitespace().collect());
const STOPPED: &str = "a about above after again against all am an and any are as at be because been before being below between both but by \
    can did do does doing don down during each few for from further had has have having he her here hers herself him himself his how i \
    if in into is it its itself just me more most my myself no nor not now of off on once only or other our ours ourselves out over own \
    s same she should so some such t than that the their theirs them themselves then there these they this those through to too under \
    until up very was we were what when where which while who whom why will with you your yours yourself yourselves";

pub(super) struct Query {
    /// One of these must fit, in one of the two spellings.
    alternatives: Vec<Vec<Term>>,
    /// The stems of all that is said, each once.
    stems: HashSet<u64>,
    excludes: bool,
}

/// A text's words, ready to be compared.
pub(super) struct Text(Box<[Word]>);

/// A word or a phrase.
struct Term {
    words: Text,
    excluded: bool,
}

/// Words are known by their hashes: they take little room, and comparing them little time.
struct Word {
    plain: u64,
    /// 0 for a word that says nothing.
    stem: u64,
}

impl Query {
    pub(super) fn read(query: &str) -> Self {
        let query: String = query.chars().take(LONGEST).collect();
        let mut alternatives = vec![Vec::new()];
        let mut minus = false;
        // Every other piece stood in quotes, and what stands before it may exclude it.
        for (number, piece) in query.split('"').enumerate() {
            if number % 2 == 1 {
                push(&mut alternatives, piece, minus);
                continue;
            }
            for part in piece.split_whitespace() {
                if part.eq_ignore_ascii_case("or") {
                    alternatives.push(Vec::new());
                } else {
                    push(&mut alternatives, part, part.starts_with('-'));
                }
            }
            minus = piece.strip_suffix('-').is_some_and(|before| before.is_empty() || before.ends_with(char::is_whitespace));
        }
        let stems = Text::read(&query).0.iter().map(|word| word.stem).filter(|stem| *stem != 0).collect();
        let excludes = alternatives.iter().flatten().any(|term| term.excluded && term.words.0.iter().any(|word| word.stem != 0));
        Self { alternatives, stems, excludes }
    }

    /// Which share of the query a text has: all of it when the whole query fits, otherwise of its words.
    /// None when it has nothing of it, or something was excluded.
    #[expect(clippy::cast_precision_loss, reason = "a query has few words")]
    pub(super) fn share(&self, text: &Text) -> Option<f64> {
        if [false, true].iter().any(|stemmed| self.alternatives.iter().any(|terms| fits(terms, text, *stemmed))) {
            return Some(1.0);
        }
        let mut terms = self.alternatives.iter().flatten();
        if self.excludes || !terms.any(|term| term.is_in(text, true) == Some(true)) {
            return None;
        }
        let found = self.stems.iter().filter(|stem| text.0.iter().any(|word| word.is(**stem))).count();
        Some(found as f64 / self.stems.len() as f64)
    }
}

impl Text {
    pub(super) fn read(text: &str) -> Self {
        let stemmer = Stemmer::create(Algorithm::English);
        let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
        let words = words.map(|word| {
            let plain = word.to_lowercase();
            let stem = if STOP.contains(plain.as_str()) { 0 } else { hash(&stemmer.stem(&plain)) };
            Word { plain: hash(&plain), stem }
        });
        Self(words.collect())
    }
}

impl Term {
    /// Whether a text has it; none where words that say nothing make it up.
    fn is_in(&self, text: &Text, stemmed: bool) -> Option<bool> {
        let words = &*self.words.0;
        if stemmed && words.iter().all(|word| word.stem == 0) {
            return None;
        }
        let same = |word: &Word, wanted: &Word| match (stemmed, wanted.stem) {
            (false, _) => word.is(wanted.plain),
            (true, 0) => true,
            (true, stem) => word.is(stem),
        };
        Some(text.0.windows(words.len()).any(|window| window.iter().zip(words).all(|(word, wanted)| same(word, wanted))))
    }
}

impl Word {
    /// A text's words are found as they stand and by their stems.
    fn is(&self, wanted: u64) -> bool {
        self.plain == wanted || self.stem == wanted
    }
}

fn push(alternatives: &mut [Vec<Term>], words: &str, excluded: bool) {
    let words = Text::read(words);
    if let (false, Some(last)) = (words.0.is_empty(), alternatives.last_mut()) {
        last.push(Term { words, excluded });
    }
}

/// Whether all that is wanted is there and nothing that is not.
fn fits(terms: &[Term], text: &Text, stemmed: bool) -> bool {
    let mut known = terms.iter().filter_map(|term| Some(term.is_in(text, stemmed)? != term.excluded)).peekable();
    known.peek().is_some() && known.all(|fits| fits)
}

fn hash(word: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    word.hash(&mut hasher);
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests {
    use slipway_database::{Category, Embedding, MemoryEntry, NewMemory};
    use slipway_peers::Postgres;

    use super::super::{Memory, Store};
    use super::*;

    const MEMORIES: [&str; 9] = [
        "The user's favourite colour is blue",
        "Trinkt gerne grünen Tee",
        "Works as a baker in Lyon",
        "Was baking bread with The Who",
        "Generously organised the relational databases of universities",
        "Prefers not to be called on Mondays",
        "Prefers green tea in the morning and black coffee at night",
        "The cluster runs in Zurich, on 3 nodes",
        "It is what it is",
    ];

    const QUERIES: [&str; 26] = [
        "What are their favourite colours?",
        "grünen tee",
        "bakes",
        "\"a baker\"",
        "\"baker a\"",
        "\"in the morning\"",
        "bread lyon",
        "blue -favourite",
        "tea -coffee",
        "-tea",
        "the who",
        "it is",
        "of",
        "it's \\ 'quoted' & | ! <-> :*",
        "",
        "green tea or bread",
        "lyon or zurich or paris",
        "organizing relations university",
        "database generosity",
        "calling monday mornings",
        "what runs on 3 nodes in zurich?",
        "coffee \"black tea\"",
        "tea -\"black coffee\"",
        "GREEN Tea",
        "who prefers coffee at night",
        "nothing of all this whatsoever",
    ];

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
            run: slipway_database::Run::default(),
        };
        [Store::Postgresql(Box::new(slipway_database::Store::open(&options).unwrap())), Store::Memory(Box::<Memory>::default())]
    }

    fn told(found: Vec<MemoryEntry>) -> Vec<(String, f64)> {
        found.into_iter().map(|entry| (entry.content, entry.relevance.unwrap())).collect()
    }

    #[tokio::test]
    async fn memories_are_found_as_in_the_database() {
        let postgres = Postgres::start();
        let stores = stores(&postgres);
        for content in MEMORIES {
            for store in &stores {
                store.remember(memory(content, None)).await.unwrap();
            }
        }
        for query in QUERIES {
            let mut found = Vec::new();
            for store in &stores {
                let mut one = told(store.search_memories(query, None, 10).await.unwrap());
                // Of those that have as much of the query, the database prefers where its words stand close together.
                one.sort_by(|(a, left), (b, right)| right.total_cmp(left).then(a.cmp(b)));
                found.push(one);
            }
            assert_eq!(found[1], found[0], "{query}: in memory, and in the database");
        }
        let stop = std::fs::read_to_string(slipway_peers::root().join("postgresql/lib/18/share/postgresql/tsearch_data/english.stop"));
        assert_eq!(*STOP, stop.unwrap().split_whitespace().collect::<HashSet<_>>());
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
}
