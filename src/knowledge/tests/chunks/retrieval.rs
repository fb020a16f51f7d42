//! Questions of Python's FAQ against their answers: the question is taken out of the answer's text and path, so that it is found
//! by what the answer says.

use std::collections::HashMap;

use slipway_knowledge::{BlockKind, ChunkSize};
use slipway_models::embedding::{PassageEmbedder, Purpose};

use crate::lexical::Lexical;
use crate::shipped::Shipped;
use crate::{MODELS, chunks, counter, faq};

/// The candidates of each half.
const CANDIDATES: usize = 50;

/// The constants of reciprocal-rank fusion, and the weights of words beside vectors. The first is that of searches; the second is the
/// usual one, with which words spoil what vectors find.
const FUSIONS: [(f64, f64); 2] = [(10.0, 0.5), (60.0, 1.0)];

struct Passage {
    /// The headings above.
    path: Vec<String>,
    /// What is embedded with and without the headings above.
    under_headings: String,
    alone: String,
    /// The questions that it answers.
    questions: Vec<usize>,
}

struct Corpus {
    questions: Vec<String>,
    passages: Vec<Passage>,
}

impl Corpus {
    fn read(tokens: u32) -> Self {
        let mut corpus = Self { questions: Vec::new(), passages: Vec::new() };
        for blocks in faq::pages() {
            let (mut place, mut begins) = (0, Vec::new());
            for block in &blocks {
                if matches!(block.kind, BlockKind::Heading(_)) {
                    begins.push((place, block.text.ends_with('?').then_some(corpus.questions.len())));
                    if block.text.ends_with('?') {
                        corpus.questions.push(block.text.clone());
                    }
                }
                place += block.text.len() as u64 + 1;
            }
            let is_question = |text: &str| text.ends_with('?') && corpus.questions.iter().any(|question| question == text);
            for chunk in chunks(&blocks, ChunkSize { tokens, overlap: tokens / 10 }, counter(MODELS[0])) {
                let own = chunk.start + u64::from(chunk.overlap);
                let first = begins.partition_point(|(begin, _)| *begin <= own).saturating_sub(1);
                let sections = begins[first..].iter().take_while(|(begin, _)| *begin < chunk.end);
                let questions: Vec<usize> = sections.filter_map(|(_, question)| *question).collect();
                let alone: Vec<&str> = chunk.text.lines().filter(|line| !is_question(line)).collect();
                let alone = alone.join("\n");
                if alone.trim().is_empty() {
                    continue;
                }
                let line = chunk.embedded().strip_suffix(&chunk.text).unwrap_or_default().trim_end().to_owned();
                let path: Vec<String> =
                    line.split(" > ").filter(|title| !is_question(title) && !title.is_empty()).map(str::to_owned).collect();
                let under_headings = if path.is_empty() { alone.clone() } else { format!("{}\n{alone}", path.join(" > ")) };
                corpus.passages.push(Passage { path, under_headings, alone, questions });
            }
        }
        corpus
    }

    fn texts(&self, headings: bool) -> Vec<String> {
        self.passages.iter().map(|passage| if headings { passage.under_headings.clone() } else { passage.alone.clone() }).collect()
    }

    /// nDCG@10 and recall@10 of rankings of passages, each section counted at its first passage.
    #[expect(clippy::cast_precision_loss, reason = "ten places, some hundred questions")]
    fn quality(&self, rankings: &[Vec<usize>]) -> Quality {
        let (mut gain, mut found) = (0.0, 0.0);
        for (question, ranking) in rankings.iter().enumerate() {
            let mut sections = Vec::new();
            for section in ranking.iter().flat_map(|&passage| &self.passages[passage].questions) {
                if !sections.contains(section) {
                    sections.push(*section);
                }
            }
            if let Some(place) = sections.iter().take(10).position(|&section| section == question) {
                gain += 1.0 / (place as f64 + 2.0).log2();
                found += 1.0;
            }
        }
        Quality { ndcg: gain / rankings.len() as f64, recall: found / rankings.len() as f64 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Quality {
    ndcg: f64,
    recall: f64,
}

async fn nearest(embedder: &PassageEmbedder, questions: &[String], texts: &[String]) -> Vec<Vec<usize>> {
    let passages = embedder.embed(texts).await.unwrap();
    let asked = embedder.embedder().embed(questions, Purpose::Query).await.unwrap();
    let ranked = asked.iter().map(|question| {
        let mut near: Vec<(usize, f32)> = passages.iter().map(|passage| question.cosine(passage)).enumerate().collect();
        near.sort_by(|a, b| b.1.total_cmp(&a.1));
        near.into_iter().take(CANDIDATES).map(|(passage, _)| passage).collect()
    });
    ranked.collect()
}

#[expect(clippy::cast_precision_loss, reason = "fifty places")]
fn fused(near: &[usize], matching: &[usize], (constant, weight): (f64, f64)) -> Vec<usize> {
    let mut scores: HashMap<usize, f64> = HashMap::new();
    for (ranking, weight) in [(near, 1.0), (matching, weight)] {
        for (place, &passage) in ranking.iter().enumerate() {
            *scores.entry(passage).or_default() += weight / (constant + 1.0 + place as f64);
        }
    }
    let mut fused: Vec<(usize, f64)> = scores.into_iter().collect();
    fused.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    fused.into_iter().map(|(passage, _)| passage).collect()
}

/// Vectors alone, words alone, and both in two ways.
async fn measured(corpus: &Corpus, headings: bool, embedder: &PassageEmbedder, lexical: &Lexical) -> [Quality; 4] {
    let texts = corpus.texts(headings);
    let near = nearest(embedder, &corpus.questions, &texts).await;
    let matching = lexical.ranked(&corpus.questions, &texts, CANDIDATES);
    let both = |fusion| near.iter().zip(&matching).map(|(near, matching)| fused(near, matching, fusion)).collect();
    let [both, equal]: [Vec<Vec<usize>>; 2] = FUSIONS.map(both);
    [near, matching, both, equal].map(|rankings| corpus.quality(&rankings))
}

fn embedder() -> PassageEmbedder {
    PassageEmbedder::open(MODELS[0], &crate::variables).unwrap()
}

/// Vectors alone, words alone, and both, by the search that ships.
async fn shipped(corpus: &Corpus, embedder: &PassageEmbedder) -> [Quality; 3] {
    let base = Shipped::start().await;
    let vectors = embedder.embed(&corpus.texts(true)).await.unwrap();
    let passages = corpus.passages.iter().zip(vectors);
    base.fill(passages.map(|(passage, vector)| (passage.path.clone(), passage.alone.clone(), vector))).await;
    let asked = embedder.embedder().embed(&corpus.questions, Purpose::Query).await.unwrap();
    let [mut near, mut matching, mut both] = <[Vec<Vec<usize>>; 3]>::default();
    for (question, vector) in corpus.questions.iter().zip(&asked) {
        near.push(base.ranked("", Some(vector)).await);
        matching.push(base.ranked(question, None).await);
        both.push(base.ranked(question, Some(vector)).await);
    }
    [near, matching, both].map(|rankings| corpus.quality(&rankings))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_halves_find_more_answers_than_either_alone() {
    let corpus = Corpus::read(256);
    assert!(corpus.questions.len() > 120, "{} questions", corpus.questions.len());
    let [vectors, words, both] = shipped(&corpus, &embedder()).await;
    assert!(both.ndcg > vectors.ndcg && both.ndcg > words.ndcg, "{both:?} of {vectors:?} and {words:?}");
    assert!(both.recall >= vectors.recall && both.recall > words.recall, "{both:?} of {vectors:?} and {words:?}");
}

/// Not a test but a measurement: `cargo test --release -p slipway-knowledge --test chunks figures -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn figures() {
    let (embedder, lexical) = (embedder(), Lexical::start());
    println!("| tokens | headings | chunks | vectors | words | both | both alike, constant 60 | vectors, words and both as they ship |");
    for tokens in [128, 256, 512] {
        let corpus = Corpus::read(tokens);
        for headings in [false, true] {
            let shown = |Quality { ndcg, recall }| format!("{ndcg:.3} / {recall:.3}");
            let [vectors, words, both, equal] = measured(&corpus, headings, &embedder, &lexical).await.map(shown);
            // Headings are always embedded there.
            let ships = if headings { shipped(&corpus, &embedder).await.map(shown).join(", ") } else { String::new() };
            println!("| {tokens} | {headings} | {} | {vectors} | {words} | {both} | {equal} | {ships} |", corpus.passages.len());
        }
    }
}
