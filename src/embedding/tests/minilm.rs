//! all-MiniLM-L6-v2 compared with its reference, computed from the same files.

#![expect(clippy::unwrap_used, reason = "a test tells by a panic what is wrong")]

use serde::Deserialize;
use slipway_embedding::Network;

const FILES: [&str; 4] = ["model.safetensors", "vocab.txt", "config.json", "sentence_bert_config.json"];

#[derive(Deserialize)]
struct Case {
    text: String,
    vector: Vec<f32>,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../testdata/minilm.json")).unwrap()
}

/// Vectors of length one, as the reference has them.
fn vectors(texts: &[String]) -> Vec<Vec<f32>> {
    let mut vectors = Network::read(&slipway_peers::minilm()).unwrap().embed(texts).unwrap();
    for vector in &mut vectors {
        let length = cosine(vector, vector).sqrt();
        for x in vector {
            *x /= length;
        }
    }
    vectors
}

fn cosine(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

#[test]
fn vectors_are_those_of_the_reference() {
    let cases = cases();
    let texts: Vec<String> = cases.iter().map(|case| case.text.clone()).collect();
    let together = vectors(&texts);
    assert_eq!(together.len(), cases.len());
    for (case, vector) in cases.iter().zip(&together) {
        let cosine = cosine(vector, &case.vector);
        let worst = vector.iter().zip(&case.vector).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(cosine > 0.99999 && worst < 2e-6, "cosine {cosine}, a number is {worst:e} off: {:?}", case.text);
    }
}

#[test]
fn texts_that_share_a_pass_have_the_vectors_they_have_alone() {
    let texts: Vec<String> = (0..40).map(|number| format!("{} text of number {number}.", "word ".repeat(number * 7 % 60))).collect();
    let together = vectors(&texts);
    assert_eq!(together.len(), texts.len());
    for number in [0, 1, 17, 38, 39] {
        let alone = vectors(&texts[number..=number]);
        let cosine = cosine(&alone[0], &together[number]);
        assert!(cosine > 0.999_999, "text {number} is in another place or was changed by its neighbours");
    }
}

#[test]
fn the_same_meaning_is_nearer_than_the_same_words() {
    let groups = [
        ["How do I reset my password?", "I forgot my login credentials and cannot sign in.", "How do I reset my kitchen timer?"],
        [
            "The company's profits rose sharply this quarter.",
            "Earnings increased a lot in the last three months.",
            "The river rose sharply this spring.",
        ],
        [
            "A man is playing a guitar on stage.",
            "A musician performs with his instrument in front of an audience.",
            "A man is playing football on a field.",
        ],
        [
            "Delete all pods in the namespace.",
            "Remove every container group from this Kubernetes project.",
            "Delete all photos in the album.",
        ],
        ["My dog is ill.", "The puppy feels unwell.", "My car is new."],
    ];
    for group in groups {
        let found = vectors(&group.map(str::to_owned));
        let (near, far) = (cosine(&found[0], &found[1]), cosine(&found[0], &found[2]));
        assert!(near > far, "{group:?}: {near} is not more than {far}");
    }
}

#[test]
fn a_very_long_text_is_cut_as_the_reference_cuts_it() {
    let case = cases().into_iter().max_by_key(|case| case.text.len()).unwrap();
    let longer = format!("{} {}", case.text, "and something else entirely ".repeat(4_000));
    assert!(longer.len() > 100_000);
    let found = vectors(&[longer, "x".repeat(100_000)]);
    assert!(cosine(&found[0], &case.vector) > 0.99999, "what stands behind the first 256 pieces changed the vector");
    assert_eq!(found[1].len(), 384, "one endless word is one unknown piece");
}

#[test]
fn files_that_were_not_copied_whole_are_refused_and_named() {
    let source = slipway_peers::minilm();
    for (file, length, named) in [
        ("model.safetensors", 4, "safetensors"),
        ("model.safetensors", 5_000_000, "copied whole"),
        ("vocab.txt", 100_000, "pieces"),
        ("config.json", 20, "config.json"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for name in FILES {
            if name == file {
                let bytes = std::fs::read(source.join(name)).unwrap();
                std::fs::write(folder.path().join(name), &bytes[..length]).unwrap();
            } else {
                std::os::unix::fs::symlink(source.join(name), folder.path().join(name)).unwrap();
            }
        }
        let fault = Network::read(folder.path()).err().unwrap().to_string();
        assert!(fault.contains(named), "{file} cut to {length}: {fault}");
    }
}
