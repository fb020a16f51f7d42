//! Not tests but measurements: `cargo test --release -p slipway-knowledge --test chunks -- --ignored --nocapture --test-threads 1`.

use std::time::{Duration, Instant};

use slipway_knowledge::{Block, ChunkSize, Chunker};
use slipway_models::embedding::{Embedder, PassageEmbedder, Purpose, open};

use crate::{MODELS, chunks, counter, faq, variables};

/// All of Python's documentation, some 10 MB of text.
fn pages() -> Vec<Vec<Block>> {
    let mut pages = Vec::new();
    for folder in ["faq", "howto", "library", "tutorial", "reference", "whatsnew", "c-api", "extending", "using"] {
        let mut files: Vec<_> = std::fs::read_dir(faq::folder().join(folder)).unwrap().flatten().map(|entry| entry.path()).collect();
        files.sort();
        pages.extend(files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).map(|html| faq::blocks(&html)));
    }
    pages
}

/// The time that this process has computed, in steps of 10 ms: other programs on the machine do not count.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}

#[test]
#[ignore = "a measurement"]
#[expect(clippy::cast_precision_loss, reason = "megabytes")]
fn chunking() {
    let pages = pages();
    let bytes: usize = pages.iter().flatten().map(|block| block.text.len() + 1).sum();
    println!("{} pages of Python's documentation, {:.1} MB of text", pages.len(), bytes as f64 / 1e6);
    for model in MODELS {
        for tokens in [256, 512] {
            let mut best = Duration::MAX;
            let mut number = 0;
            for _ in 0..3 {
                let mut chunker = Chunker::new(ChunkSize { tokens, overlap: tokens / 10 }, counter(model));
                let started = processor_time();
                number = 0;
                for page in &pages {
                    for block in page {
                        chunker.push(block, &mut |_| number += 1);
                    }
                    chunker.finish(&mut |_| number += 1);
                }
                best = best.min(processor_time().saturating_sub(started));
            }
            let speed = bytes as f64 / best.as_secs_f64() / 1e6;
            println!("{model}, chunks of {tokens}: {number} chunks in {best:?}, {speed:.1} MB/s a core");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
#[expect(clippy::cast_precision_loss, reason = "some hundred chunks")]
async fn embedding() {
    let passages = PassageEmbedder::open(MODELS[0], &variables).unwrap();
    let cut: Box<dyn Embedder> = open(MODELS[0], &variables).unwrap();
    cut.embed(&["Reads the files.".to_owned()], Purpose::Query).await.unwrap();
    for tokens in [128, 254, 512] {
        let size = ChunkSize { tokens, overlap: tokens / 10 };
        let found: Vec<_> = faq::pages().iter().flat_map(|blocks| chunks(blocks, size, counter(MODELS[0]))).collect();
        let sum: u32 = found.iter().map(|chunk| chunk.tokens).sum();
        let texts: Vec<String> = found.iter().map(slipway_knowledge::Chunk::embedded).collect();
        let (started, computed) = (Instant::now(), processor_time());
        passages.embed(&texts).await.unwrap();
        let (took, computed) = (started.elapsed().as_secs_f64(), processor_time().saturating_sub(computed).as_secs_f64());
        let (chunks, rate) = (texts.len(), texts.len() as f64 / took);
        let of_core = texts.len() as f64 / computed;
        println!("chunks of {tokens}: {chunks} of {sum} tokens in {took:.2} s, {rate:.1} chunks/s, {of_core:.1} in a second of a core");
    }
}
