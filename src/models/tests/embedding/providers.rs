//! The API of each provider over a socket: published answers, and errors of servers.

use serde_json::{Value, json};
use slipway_models::FaultKind;
use slipway_models::embedding::{PassageEmbedder, Purpose, Vector};

use crate::replay::{Replay, ReplayedRequest, Reply};
use crate::{opened, strings};

const OLLAMA: &str = include_str!("../../testdata/embedding/ollama.json");
const OPENAI: &str = include_str!("../../testdata/embedding/openai.json");
const VERTEX_AI: &str = include_str!("../../testdata/embedding/vertex-ai.json");

/// A published vector, normalised.
#[expect(clippy::cast_possible_truncation, reason = "vectors are f32")]
fn normalised(numbers: &Value) -> Vector {
    let numbers: Vec<f64> = numbers.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect();
    let length = numbers.iter().map(|number| number * number).sum::<f64>().sqrt();
    Vector(numbers.iter().map(|number| (number / length) as f32).collect())
}

fn assert_same(found: &[Vector], expected: &[Vector]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let worst = found.0.iter().zip(&expected.0).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(found.0.len() == expected.0.len() && worst < 1e-6, "a number is {worst:e} off");
    }
}

#[tokio::test]
async fn ollamas_published_answer_is_read() {
    let server = Replay::start(|_, _| Reply::ok(OLLAMA)).await;
    let embedder = opened("ollama:all-minilm-published?dimensions=10", &[("OLLAMA_BASE_URL", &server.url)]);
    let texts = strings(&["Why is the sky blue?", "Why is the grass green?"]);
    let found = embedder.embed(&texts, Purpose::Passage).await.unwrap();
    let published: Value = serde_json::from_str(OLLAMA).unwrap();
    assert_same(&found, &[normalised(&published["embeddings"][0]), normalised(&published["embeddings"][1])]);
    let ReplayedRequest { line, body, .. } = server.asked().remove(0);
    assert_eq!(line, "POST /api/embed");
    assert_eq!(body, json!({"model": "all-minilm-published", "input": texts, "truncate": true}));
}

#[tokio::test]
async fn an_openai_compatible_servers_published_answer_is_read() {
    let server = Replay::start(|_, _| Reply::ok(OPENAI)).await;
    let base = format!("{}/v1", server.url);
    let embedder =
        opened("openai:text-embedding-ada-002-v2?dimensions=16", &[("OPENAI_BASE_URL", &base), ("OPENAI_API_KEY", "sk-hunter2")]);
    let found = embedder.embed(&strings(&["one", "two"]), Purpose::Query).await.unwrap();
    let published: Value = serde_json::from_str(OPENAI).unwrap();
    assert_same(&found, &[normalised(&published["data"][0]["embedding"]), normalised(&published["data"][1]["embedding"])]);
    let ReplayedRequest { line, headers, body } = server.asked().remove(0);
    assert_eq!(line, "POST /v1/embeddings");
    assert_eq!(headers["authorization"], "Bearer sk-hunter2");
    assert_eq!(body, json!({"model": "text-embedding-ada-002-v2", "input": ["one", "two"]}));
}

#[tokio::test]
async fn vertex_ais_published_answer_is_read_and_the_purpose_told() {
    // One server plays the metadata server and the service.
    let server = Replay::start(|_, asked| {
        if asked.line.contains("computeMetadata") {
            Reply::ok(&json!({"access_token": "ya29.hunter2", "expires_in": 3599, "token_type": "Bearer"}))
        } else {
            Reply::ok(VERTEX_AI)
        }
    })
    .await;
    let host = server.url.trim_start_matches("http://");
    let place = [
        ("GOOGLE_VERTEX_BASE_URL", server.url.as_str()),
        ("GCE_METADATA_HOST", host),
        ("GOOGLE_CLOUD_PROJECT", "proj"),
        ("GOOGLE_CLOUD_LOCATION", "europe-west1"),
    ];
    let embedder = opened("vertex-ai:textembedding-gecko@003", &place);
    assert_eq!((embedder.id(), embedder.dimensions()), ("vertex-ai:textembedding-gecko@003", 768));
    for (purpose, task) in [(Purpose::Query, "RETRIEVAL_QUERY"), (Purpose::Passage, "RETRIEVAL_DOCUMENT")] {
        let found = embedder.embed(&strings(&["one"]), purpose).await.unwrap();
        let published: Value = serde_json::from_str(VERTEX_AI).unwrap();
        assert_same(&found, &[normalised(&published["predictions"][0]["embeddings"]["values"])]);
        let ReplayedRequest { line, headers, body } = server.asked().pop().unwrap();
        assert_eq!(line, "POST /v1/projects/proj/locations/europe-west1/publishers/google/models/textembedding-gecko%40003:predict");
        assert_eq!(headers["authorization"], "Bearer ya29.hunter2");
        assert_eq!(body, json!({"instances": [{"content": "one", "task_type": task}], "parameters": {"autoTruncate": true}}));
    }
    assert_eq!(server.asked().len(), 3, "the token is asked for once");
}

/// The answer of a server that puts the text's number into its vector.
fn counted(asked: &ReplayedRequest) -> Vec<Value> {
    let texts = asked.body["input"].as_array().unwrap().iter();
    let number = |text: &Value| text.as_str().unwrap().rsplit(' ').next().unwrap().parse::<f32>().unwrap();
    texts.map(|text| json!([1.0, number(text)])).collect()
}

#[tokio::test]
async fn many_texts_go_in_batches_and_come_back_in_order() {
    let server = Replay::start(|number, asked| {
        // Later batches are answered first, and each in reverse order.
        std::thread::sleep(std::time::Duration::from_millis(40 / (number as u64 + 1)));
        let entries = counted(asked).into_iter().enumerate().map(|(index, vector)| json!({"index": index, "embedding": vector}));
        Reply::ok(&json!({"data": entries.rev().collect::<Vec<_>>()}))
    })
    .await;
    let embedder = opened("openai:own?dimensions=2", &[("OPENAI_BASE_URL", &server.url)]);
    let texts: Vec<String> = (0..200_u16).map(|number| format!("text {number}")).collect();
    let found = embedder.embed(&texts, Purpose::Passage).await.unwrap();
    assert_eq!(found.len(), 200);
    for (number, vector) in (0_u16..).zip(&found) {
        let ratio = vector.0[1] / vector.0[0];
        assert!((ratio - f32::from(number)).abs() < 0.01, "at {number} there is the vector of {ratio}");
    }
    let mut sizes: Vec<usize> = server.asked().iter().map(|asked| asked.body["input"].as_array().unwrap().len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [8, 64, 64, 64]);
}

#[tokio::test]
async fn a_model_is_told_what_is_a_question_the_way_it_was_trained() {
    let server = Replay::start(|_, asked| {
        let texts = asked.body["input"].as_array().unwrap();
        Reply::ok(&json!({"embeddings": texts.iter().map(|_| vec![0.5; 768]).collect::<Vec<_>>()}))
    })
    .await;
    let embedder = opened("nomic-embed-text", &[("OLLAMA_BASE_URL", &server.url)]);
    assert_eq!((embedder.id(), embedder.dimensions()), ("ollama:nomic-embed-text", 768));
    for (purpose, sent) in [(Purpose::Query, "search_query: sky"), (Purpose::Passage, "search_document: sky")] {
        embedder.embed(&strings(&["sky"]), purpose).await.unwrap();
        assert_eq!(server.asked().pop().unwrap().body["input"], json!([sent]));
    }
}

#[tokio::test]
async fn shorter_vectors_are_asked_for() {
    let server = Replay::start(|_, _| Reply::ok(&json!({"data": [{"index": 0, "embedding": vec![0.5; 256]}]}))).await;
    let embedder = opened("text-embedding-3-large?dimensions=256", &[("OPENAI_BASE_URL", &server.url)]);
    assert_eq!(embedder.id(), "openai:text-embedding-3-large?dimensions=256");
    assert_eq!(embedder.embed(&strings(&["text"]), Purpose::Query).await.unwrap()[0].0.len(), 256);
    assert_eq!(server.asked()[0].body["dimensions"], 256);
}

#[tokio::test]
async fn no_answer_is_believed_that_does_not_fit_the_question() {
    let two = |vectors: Value| json!({"embeddings": vectors});
    for (answer, why) in [
        (two(json!([[1.0, 2.0]])), "1 vectors for 2 texts"),
        (two(json!([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])), "3 vectors for 2 texts"),
        (two(json!([[1.0, 2.0], [1.0]])), "a vector of 1 dimensions where 2 were expected"),
        (two(json!([[1.0, 2.0], []])), "a vector of 0 dimensions"),
        (two(json!([[1.0, 2.0], [0.0, 0.0]])), "a vector without a direction"),
        (two(json!([[1.0, 2.0], [1e300, 0.0]])), "a vector without a direction"),
        (two(json!([[1.0, 2.0], [1.0, "NaN"]])), "not made of numbers"),
        (json!({"error": "no"}), "no `embeddings`"),
    ] {
        let server = Replay::start({
            let answer = answer.clone();
            move |_, _| Reply::ok(&answer)
        })
        .await;
        let embedder = opened("ollama:own?dimensions=2", &[("OLLAMA_BASE_URL", &server.url)]);
        let fault = embedder.embed(&strings(&["one", "two"]), Purpose::Query).await.unwrap_err();
        assert_eq!(*fault.kind(), FaultKind::Broken, "{answer}");
        assert!(fault.message().contains(why), "{answer}: {fault}");
    }
}

#[tokio::test]
async fn what_passes_is_tried_again_and_what_does_not_is_told() {
    let busy = |status, headers| Reply { status, headers, body: json!({"error": {"message": "busy"}}).to_string(), sent: usize::MAX };
    let server = Replay::start(move |number, _| match number {
        0 => busy(429, "retry-after: 0\r\n"),
        1 => busy(503, ""),
        2 => Reply { sent: 100, ..Reply::ok(OLLAMA) },
        _ => Reply::ok(OLLAMA),
    })
    .await;
    let embedder = opened("ollama:published?dimensions=10", &[("OLLAMA_BASE_URL", &server.url)]);
    assert_eq!(embedder.embed(&strings(&["one", "two"]), Purpose::Query).await.unwrap().len(), 2);
    assert_eq!(server.asked().len(), 4);

    let refused =
        |status| move |_: usize, _: &ReplayedRequest| Reply { status, ..Reply::ok(&json!({"error": {"message": "no: sk-hunter2"}})) };
    for (server, kind) in [
        (Replay::start(refused(401)).await, FaultKind::Unauthorized),
        (Replay::start(refused(404)).await, FaultKind::UnknownModel),
        (Replay::start(refused(400)).await, FaultKind::Refused),
    ] {
        let embedder = opened("text-embedding-3-small", &[("OPENAI_BASE_URL", &server.url), ("OPENAI_API_KEY", "sk-hunter2")]);
        let fault = embedder.embed(&strings(&["one"]), Purpose::Query).await.unwrap_err();
        assert_eq!(*fault.kind(), kind);
        assert!(!fault.message().contains("hunter2"), "{fault}");
        assert_eq!(server.asked().len(), 1, "{kind:?} is not tried again");
    }
}

#[tokio::test]
async fn blank_texts_and_missing_keys_are_told_without_asking_anybody() {
    let server = Replay::start(|_, _| Reply::ok(OLLAMA)).await;
    let embedder = opened("nomic-embed-text", &[("OLLAMA_BASE_URL", &server.url)]);
    let fault = embedder.embed(&strings(&["text", " \n"]), Purpose::Query).await.unwrap_err();
    assert!(*fault.kind() == FaultKind::Refused && fault.message().contains("text 2 of 2 is blank"), "{fault}");
    assert!(server.asked().is_empty());
    let fault = opened("text-embedding-3-small", &[]).embed(&strings(&["text"]), Purpose::Query).await.unwrap_err();
    assert!(*fault.kind() == FaultKind::MissingKey && fault.message().contains("OPENAI_API_KEY"), "{fault}");
}

#[tokio::test]
async fn a_text_of_100_kb_is_cut_for_openai_which_would_refuse_it() {
    let server = Replay::start(|_, _| Reply::ok(&json!({"data": [{"index": 0, "embedding": vec![0.5; 1536]}]}))).await;
    let embedder = opened("text-embedding-3-small", &[("OPENAI_BASE_URL", &server.url)]);
    let long = "Kubernetes schedules pods. ".repeat(4_000);
    embedder.embed(std::slice::from_ref(&long), Purpose::Passage).await.unwrap();
    let asked = server.asked().remove(0);
    let sent = asked.body["input"][0].as_str().unwrap();
    assert!(long.starts_with(sent) && sent.len() < long.len() && sent.len() > 20_000, "{} bytes were sent", sent.len());
}

#[tokio::test]
async fn long_passages_are_sent_in_windows_and_bounded_batches() {
    let server = Replay::start(|_, asked| {
        let inputs = asked.body["input"].as_array().unwrap().len();
        Reply::ok(&json!({"embeddings": vec![vec![1.0; 768]; inputs]}))
    })
    .await;
    let folder = slipway_peers::minilm();
    let variables = |name: &str| match name {
        "OLLAMA_BASE_URL" => Some(server.url.clone()),
        "RUNTIME_EMBEDDING_DIR" => Some(folder.display().to_string()),
        _ => None,
    };
    let embedder = PassageEmbedder::open("nomic-embed-text", &variables).unwrap();
    let words: Vec<String> = (0..200_000).map(|number| number.to_string()).collect();
    let texts = [words.join(" "), "short".to_owned()];
    let found = embedder.embed(&texts).await.unwrap();
    assert_eq!(found.len(), 2);
    let asked = server.asked();
    let batches: Vec<Vec<&str>> =
        asked.iter().map(|asked| asked.body["input"].as_array().unwrap().iter().map(|input| input.as_str().unwrap()).collect()).collect();
    let prefix = "search_document: ";
    for input in batches.iter().flatten() {
        assert!(input.starts_with(prefix));
        let tokens = embedder.tokens().count(input) + 2;
        assert!(tokens <= 2048, "{tokens} tokens");
    }
    for batch in &batches {
        let bytes: usize = batch.iter().map(|input| input.len()).sum();
        assert!(bytes <= 300 << 10, "{bytes} bytes at once");
    }
    let mut together: Vec<&str> = batches.iter().flatten().flat_map(|input| input[prefix.len()..].split_whitespace()).collect();
    // Batches run beside each other.
    together.sort_by_key(|word| word.parse::<u32>().unwrap_or(u32::MAX));
    assert_eq!(together.len(), words.len() + 1);
    assert!(together.iter().zip(&words).all(|(found, word)| found == word), "every word was sent once");
}
