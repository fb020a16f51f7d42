//! all-MiniLM-L6-v2 in this process: vectors, long passages, concurrency and faults.

use std::time::{Duration, Instant};

use slipway_models::FaultKind;
use slipway_models::embedding::{Embedder, PassageEmbedder, Purpose, Vector, open};

use crate::{opened, strings};

const NAME: &str = "builtin:all-minilm-l6-v2";

/// The first numbers of a vector of the reference.
const BEGINNING: [f32; 4] = [0.134_177_1, -0.032_900_32, -0.024_803_75, 0.041_438_99];

fn minilm() -> Box<dyn Embedder> {
    opened(NAME, &[("RUNTIME_EMBEDDING_DIR", slipway_peers::minilm().to_str().unwrap())])
}

async fn vectors(texts: &[String]) -> Vec<Vector> {
    minilm().embed(texts, Purpose::Passage).await.unwrap()
}

#[tokio::test]
async fn a_text_has_the_vector_of_the_reference_at_length_one() {
    // From the first case in `src/embedding/testdata/minilm.json` that is not blank; the engine's own tests try all.
    let found = vectors(&strings(&["The cat sits on the mat."])).await.remove(0);
    assert_eq!(found.0.len(), 384);
    for (at, expected) in BEGINNING.iter().enumerate() {
        assert!((found.0[at] - expected).abs() < 2e-6, "number {at} is {}, not {expected}", found.0[at]);
    }
    assert!((found.cosine(&found) - 1.0).abs() < 1e-5);
}

#[tokio::test]
async fn a_text_has_the_same_vector_in_any_company() {
    let texts: Vec<String> = (0..40).map(|number| format!("{} text of number {number}.", "word ".repeat(number * 7 % 60))).collect();
    let together = vectors(&texts).await;
    assert_eq!(together.len(), texts.len());
    for number in [0, 1, 17, 38, 39] {
        let alone = vectors(&texts[number..=number]).await;
        assert!(alone[0].cosine(&together[number]) > 0.999_999, "text {number} is in another place or was changed by its neighbours");
    }
}

#[tokio::test]
async fn a_blank_text_is_refused_and_named() {
    for blank in ["", " ", "\n\t\u{a0}\u{2003}"] {
        let fault = minilm().embed(&strings(&["something", blank]), Purpose::Query).await.unwrap_err();
        assert_eq!(*fault.kind(), FaultKind::Refused);
        assert!(fault.message().contains("text 2 of 2"), "{fault}");
    }
    assert!(minilm().embed(&[], Purpose::Query).await.unwrap().is_empty());
}

fn passages() -> PassageEmbedder {
    PassageEmbedder::open(NAME, &|_| Some(slipway_peers::minilm().display().to_string())).unwrap()
}

#[tokio::test]
async fn a_long_passage_is_read_to_its_end() {
    let cooking = "Stir the onions in butter until they are golden, then add the flour and let it simmer. ";
    let database = "The database writes its log to disk before a transaction is committed. ";
    let text = format!("{}{}", cooking.repeat(20), database.repeat(24));
    let texts = [text, database.to_owned(), database.repeat(200)];
    let (read, cut) = (passages().embed(&texts).await.unwrap(), vectors(&texts).await);
    let question = vectors(&strings(&["How are transactions made durable?"])).await.remove(0);
    let (of_whole, of_beginning) = (question.cosine(&read[0]), question.cosine(&cut[0]));
    assert!(of_whole > of_beginning + 0.1, "{of_whole} and {of_beginning}: the end is not in the vector");
    assert!(read[1].cosine(&cut[1]) > 0.999_999, "a short text is read as always");
    assert!(read[2].cosine(&cut[2]) > 0.99, "windows that say the same have the same mean");
    for vector in &read {
        assert!((vector.cosine(vector) - 1.0).abs() < 1e-5);
    }
    let fault = passages().embed(&strings(&["something", " \n"])).await.unwrap_err();
    assert!(fault.message().contains("text 2 of 2"), "{fault}");
}

#[tokio::test]
async fn a_passages_vector_is_the_mean_of_its_windows() {
    let words = ["red", "ship", "lake", "tree"];
    let window = |from: usize| (0..171).map(|at| words[(from + at / 30) % 4]).collect::<Vec<_>>().join(" ");
    let whole = vec![format!("{} {} {}", window(0), window(1), window(2))];
    let parts = vectors(&[0, 1, 2].map(window)).await;
    let mean = parts[0].0.iter().zip(&parts[1].0).zip(&parts[2].0).map(|((a, b), c)| a + b + c).collect::<Vec<f32>>();
    let length = mean.iter().map(|x| x * x).sum::<f32>().sqrt();
    let mean = Vector(mean.iter().map(|x| x / length).collect());
    let found = passages().embed(&whole).await.unwrap();
    assert!(found[0].cosine(&mean) > 0.999_99, "{}: three windows of 171 tokens each", found[0].cosine(&mean));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_ask_at_once_and_nobody_waits_for_the_arithmetic() {
    let embedder = std::sync::Arc::new(minilm());
    let asking = (0..24).map(|number| {
        let embedder = std::sync::Arc::clone(&embedder);
        tokio::spawn(async move { embedder.embed(&[format!("Question number {number}?")], Purpose::Query).await.unwrap().remove(0) })
    });
    let asking: Vec<_> = asking.collect();
    // A timer on the same threads shows whether they are blocked.
    let mut late = Duration::ZERO;
    while asking.iter().any(|task| !task.is_finished()) {
        let before = Instant::now();
        tokio::time::sleep(Duration::from_millis(1)).await;
        late = late.max(before.elapsed());
    }
    let mut found = Vec::new();
    for task in asking {
        found.push(task.await.unwrap());
    }
    let first = vectors(&strings(&["Question number 0?", "Question number 23?"])).await;
    assert!(found[0].cosine(&first[0]) > 0.999_999 && found[23].cosine(&first[1]) > 0.999_999);
    assert!(late < Duration::from_secs(1), "a timer of 1 ms took {late:?}");
}

#[test]
fn a_folder_without_the_files_is_told_when_it_is_opened() {
    let fault = open(NAME, &|_| Some("/nowhere/at/all".to_owned())).err().unwrap();
    assert_eq!(*fault.kind(), FaultKind::Misconfigured);
    assert!(fault.message().contains("/nowhere/at/all") && fault.message().contains("RUNTIME_EMBEDDING_DIR"), "{fault}");
}

#[tokio::test]
async fn damaged_files_are_told_at_the_first_use() {
    let (source, folder) = (slipway_peers::minilm(), tempfile::tempdir().unwrap());
    for name in ["model.safetensors", "config.json", "sentence_bert_config.json"] {
        std::os::unix::fs::symlink(source.join(name), folder.path().join(name)).unwrap();
    }
    let vocabulary = std::fs::read(source.join("vocab.txt")).unwrap();
    std::fs::write(folder.path().join("vocab.txt"), &vocabulary[..100_000]).unwrap();
    let embedder = opened(NAME, &[("RUNTIME_EMBEDDING_DIR", folder.path().to_str().unwrap())]);
    let fault = embedder.embed(&strings(&["text"]), Purpose::Query).await.unwrap_err();
    assert_eq!(*fault.kind(), FaultKind::Misconfigured, "{fault}");
    assert!(fault.message().contains("vocab.txt") && fault.message().contains("pieces"), "{fault}");
}

/// Not a test but a measurement: `cargo test --release -p slipway-models --test embedding -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
#[expect(clippy::cast_precision_loss, reason = "a few hundred texts")]
async fn measured() {
    let embedder = minilm();
    let sentence = "The deployment of service number one was rolled back after three minutes because its readiness probe failed \
                    and nobody could say why it was in such a bad state";
    let started = Instant::now();
    embedder.embed(&strings(&[sentence]), Purpose::Query).await.unwrap();
    println!("the first text, files read on the way: {:?}", started.elapsed());
    for (name, texts, rounds) in [
        ("a sentence of 31 pieces", vec![sentence.to_owned()], 40),
        ("a question of 8 pieces", strings(&["where is the cat today?"]), 40),
        ("a text of 256 pieces", vec![sentence.repeat(9)], 10),
        ("256 sentences of 31 pieces", vec![sentence.to_owned(); 256], 3),
    ] {
        let mut times = Vec::new();
        for _ in 0..rounds {
            let started = Instant::now();
            embedder.embed(&texts, Purpose::Passage).await.unwrap();
            times.push(started.elapsed());
        }
        times.sort();
        let median = times[times.len() / 2];
        println!("{name}: best {:?}, median {median:?}, {:.0} texts a second", times[0], texts.len() as f64 / median.as_secs_f64());
    }
}
