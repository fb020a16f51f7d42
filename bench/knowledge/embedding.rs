//! The built-in embedding model beside the same model in ONNX Runtime: the same chunks on the same cores.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, bail};
use serde::Deserialize;
use slipway_knowledge::{Block, Chunk};
use slipway_models::embedding::{PassageEmbedder, Vector};

use super::documents::cut;
use super::{MODEL, processor_time, variables};
use crate::table;

/// How many chunks are embedded.
const EMBEDDED: usize = 200;
/// The sizes of chunks in tokens; with two marks more the model reads up to 256.
const SIZES: [u32; 2] = [128, 254];

/// What `embedding.py` prints.
#[derive(Deserialize)]
struct Floor {
    /// With a thread per core.
    seconds: f64,
    /// Processor time with one thread.
    processor: f64,
    vectors: Vec<Vec<f32>>,
}

#[expect(clippy::cast_precision_loss, reason = "some hundred chunks")]
pub(super) async fn measure(documents: &[Vec<Block>], runs: u32) -> anyhow::Result<()> {
    let passages = PassageEmbedder::open(MODEL, &variables)?;
    let tokens = passages.tokens();
    table::part(&format!("Embedding: {EMBEDDED} chunks by the built-in model; the floor is ONNX Runtime"));
    passages.embed(&["Reads its files.".to_owned()]).await?;
    for size in SIZES {
        let mut chunks = Vec::new();
        cut(&documents[..documents.len().min(40)], size, |text| tokens.count(text), |chunk| chunks.push(chunk));
        // Longer texts are embedded in parts, which the floor does not do.
        let mut texts: Vec<String> = chunks.iter().map(Chunk::embedded).filter(|text| tokens.count(text) <= 254).collect();
        texts.truncate(EMBEDDED);
        let mean = texts.iter().map(|text| f64::from(tokens.count(text))).sum::<f64>() / texts.len() as f64;
        let (mut seconds, mut processor, mut vectors) = (f64::MAX, f64::MAX, Vec::new());
        for _ in 0..runs {
            let (begun, before) = (Instant::now(), processor_time()?);
            vectors = passages.embed(&texts).await?;
            seconds = seconds.min(begun.elapsed().as_secs_f64());
            processor = processor.min(processor_time()?.saturating_sub(before).as_secs_f64());
        }
        let floor = tokio::task::block_in_place(|| onnxruntime(&texts, runs))?;
        agree(&vectors, floor.vectors)?;
        let number = texts.len() as f64;
        let what = format!("{mean:.0} tokens on average, at most {size}");
        for (what, ours, theirs) in [(what.as_str(), seconds, floor.seconds), ("of one core's processor time", processor, floor.processor)]
        {
            let (ours, theirs) = (number / ours, number / theirs);
            table::beside(what, (&format!("{ours:.1}/s"), ours), (&format!("{theirs:.1}/s"), theirs), ">= 1 x");
        }
    }
    Ok(())
}

fn onnxruntime(texts: &[String], runs: u32) -> anyhow::Result<Floor> {
    let repository = slipway_peers::repository();
    let folder = repository.join(".local/onnxruntime");
    let mut command = Command::new(folder.join("python/bin/python"));
    command.arg("-B").arg(repository.join("bench/knowledge/embedding.py")).arg(folder.join("model")).arg(runs.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{} cannot be started; hack/bench installs it", folder.display()))?;
    let mut input = child.stdin.take().context("a child without standard input")?;
    let texts = serde_json::to_vec(texts)?;
    let output = thread::scope(|scope| {
        // Written beside: a child that fails at once would otherwise be told by the pipe alone.
        scope.spawn(move || input.write_all(&texts));
        child.wait_with_output()
    })?;
    if !output.status.success() {
        bail!("embedding.py failed: {}", output.status);
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A floor that computes something else is none.
fn agree(ours: &[Vector], theirs: Vec<Vec<f32>>) -> anyhow::Result<()> {
    if ours.len() != theirs.len() {
        bail!("{} vectors of ONNX Runtime for {} texts", theirs.len(), ours.len());
    }
    for (number, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        let cosine = ours.cosine(&Vector(theirs));
        if cosine < 0.9999 {
            bail!("the vector of text {number} differs from the one of ONNX Runtime: their cosine is {cosine}");
        }
    }
    Ok(())
}
