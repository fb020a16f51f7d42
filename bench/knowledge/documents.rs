//! Documents to chunks: PDF beside `pdftotext`, and chunking beside counting the same tokens.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use slipway_knowledge::subprocess::{Extraction, ExtractionLimits};
use slipway_knowledge::{Block, Chunk, ChunkSize, Chunker, Format};
use slipway_models::embedding::EmbeddingTokens;

use super::{MODEL, Manuals, embedding, processor_time, variables};
use crate::numbers::median;
use crate::{start, table};

/// Documents read at once.
const AT_ONCE: usize = 2;
/// What the tokens of chunks are counted for.
const COUNTED: [&str; 2] = [MODEL, "openai:text-embedding-3-small"];

pub(super) async fn measure(runs: u32) -> anyhow::Result<()> {
    let manuals = Manuals::unpack()?;
    pages(&manuals, runs).await?;
    let texts = python().await?;
    chunking(&texts, runs)?;
    embedding::measure(&texts, runs).await
}

async fn pages(manuals: &Manuals, runs: u32) -> anyhow::Result<()> {
    table::part(&format!("Documents: PDF that is born digital, {} manuals of Debian, {AT_ONCE} at once", manuals.files.len()));
    let (mut ours, mut theirs, mut computed, mut floor_computed, mut count) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), 0.0);
    for _ in 0..runs {
        let (begun, before) = (Instant::now(), processor_time()?);
        let waiting = Mutex::new(manuals.files.iter().collect());
        let (one, other) = tokio::join!(share(&waiting), share(&waiting));
        count = f64::from(one? + other?);
        ours.push(count / begun.elapsed().as_secs_f64());
        // Subprocesses that were let go of are counted once they have been waited for.
        tokio::time::sleep(Duration::from_millis(200)).await;
        computed.push((processor_time()?.saturating_sub(before)).as_secs_f64() / count);
        let (begun, before) = (Instant::now(), processor_time()?);
        tokio::task::block_in_place(|| pdftotext(&manuals.files))?;
        theirs.push(count / begun.elapsed().as_secs_f64());
        floor_computed.push(processor_time()?.saturating_sub(before).as_secs_f64() / count);
    }
    let (measured, floor) = (median(&ours), median(&theirs));
    table::beside("pages", (&table::per_second(measured), measured), (&table::per_second(floor), floor), ">= 200/s");
    let (measured, floor) = (median(&computed), median(&floor_computed));
    table::beside("processor time a page", (&table::milliseconds(measured), measured), (&table::milliseconds(floor), floor), "");
    table::remark(&format!("{count:.0} pages; the floor is pdftotext, which has neither tables nor headings, in reading order or not"));
    Ok(())
}

/// Reads files as long as any wait; their pages.
async fn share(waiting: &Mutex<VecDeque<&PathBuf>>) -> anyhow::Result<u32> {
    let mut pages = 0;
    while let Some(file) = next(waiting) {
        pages += read(file, Format::Pdf, |_| {}).await?.unwrap_or_default();
    }
    Ok(pages)
}

fn next<'a>(waiting: &Mutex<VecDeque<&'a PathBuf>>) -> Option<&'a PathBuf> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

async fn read(file: &Path, format: Format, mut take: impl FnMut(Block)) -> anyhow::Result<Option<u32>> {
    let program: Vec<OsString> = vec![start::program("slipway-worker")?.into_os_string(), "extract".into()];
    let mut extraction = Extraction::start(&program, format, file, ExtractionLimits::default())?;
    while let Some(block) = extraction.next().await {
        take(block);
    }
    Ok(extraction.finish().await.with_context(|| file.display().to_string())?.pages)
}

fn pdftotext(files: &[PathBuf]) -> anyhow::Result<()> {
    let waiting: Mutex<VecDeque<&PathBuf>> = Mutex::new(files.iter().collect());
    let work = || -> anyhow::Result<()> {
        while let Some(file) = next(&waiting) {
            let output = Command::new("pdftotext").arg(file).arg("-").output().context("pdftotext cannot be started")?;
            if !output.status.success() {
                bail!("pdftotext does not read {}", file.display());
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread has panicked"))?)
    })
}

/// All of Python's documentation, each page a document of its own.
async fn python() -> anyhow::Result<Vec<Vec<Block>>> {
    let folder = slipway_peers::documents().join("debian/usr/share/doc/python3.11/html");
    let mut documents = Vec::new();
    for part in ["faq", "howto", "library", "tutorial", "reference", "whatsnew", "c-api", "extending", "using"] {
        let entries = std::fs::read_dir(folder.join(part)).with_context(|| folder.join(part).display().to_string())?;
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|end| end == "html"));
        files.sort();
        for file in files {
            let mut blocks = Vec::new();
            read(&file, Format::Html, |block| blocks.push(block)).await?;
            documents.push(blocks);
        }
    }
    Ok(documents)
}

#[expect(clippy::cast_precision_loss, reason = "megabytes")]
fn chunking(texts: &[Vec<Block>], runs: u32) -> anyhow::Result<()> {
    let bytes = texts.iter().flatten().map(|block| block.text.len() + 1).sum::<usize>() as f64;
    table::part("Chunks: Python's documentation, in processor time of one core");
    for model in COUNTED {
        let tokens = EmbeddingTokens::open(model, &variables)?;
        let floor = rate(bytes, runs, || {
            black_box(texts.iter().flatten().map(|block| u64::from(tokens.count(&block.text))).sum::<u64>());
        })?;
        for size in [256, 512] {
            let measured = rate(bytes, runs, || cut(texts, size, |text| tokens.count(text), |chunk| drop(black_box(chunk))))?;
            let name = model.split(':').next_back().unwrap_or_default();
            let shown = |rate: f64| format!("{:.1} MB/s", rate / 1e6);
            table::beside(&format!("{size} tokens of {name}"), (&shown(measured), measured), (&shown(floor), floor), ">= 25 MB/s");
        }
    }
    table::remark(&format!(
        "{} documents, {:.1} MB of text; the floor is their tokens counted, each block by itself",
        texts.len(),
        bytes / 1e6
    ));
    Ok(())
}

/// Bytes in a second of a core, at best.
fn rate(bytes: f64, runs: u32, work: impl Fn()) -> anyhow::Result<f64> {
    let mut best = f64::MAX;
    for _ in 0..runs {
        let before = processor_time()?;
        work();
        best = best.min(processor_time()?.saturating_sub(before).as_secs_f64());
    }
    Ok(bytes / best)
}

pub(super) fn cut(texts: &[Vec<Block>], size: u32, count: impl Fn(&str) -> u32, mut take: impl FnMut(Chunk)) {
    let mut chunker = Chunker::new(ChunkSize { tokens: size, overlap: size / 10 }, count);
    for blocks in texts {
        for block in blocks {
            chunker.push(block, &mut take);
        }
        chunker.finish(&mut take);
    }
}
