//! One document: fetched into a file, read by a subprocess, cut into chunks, embedded, written. Chunk by chunk, so that a
//! document's size does not decide how much memory it takes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::time::Duration;

use anyhow::anyhow;
use sha2::{Digest, Sha256};
use slipway_database::Fault;
use slipway_database::knowledge::{DocumentMeta, Draft, Ingestion, Listed, NewChunk};
use slipway_knowledge::source::{Item, MAX_DOCUMENT_BYTES, Source, SourceError, SourceErrorKind};
use slipway_knowledge::subprocess::{Extraction, ExtractionLimits};
use slipway_knowledge::{Chunk, ChunkSize, Chunker, Format, Unreadable};
use slipway_models::embedding::{PassageEmbedder, Vector};
use slipway_models::{FaultKind, ModelFault};
use tokio::time::sleep;
use tracing::debug;

/// Counts up when documents are read or cut in another way, so that all are read anew.
const READER: u32 = 1;
/// How long the pages of a PDF may be waited for in all.
const PDF_TIMEOUT: Duration = Duration::from_hours(1);
/// How many chunks are looked up and embedded together.
const BATCH: usize = 64;
/// What no provider refuses for its words.
const PLAIN_TEXT: &str = "The lid is on top.";
/// How often texts are tried again at which the provider fails while it takes another, each time with the retries of every request.
const MAX_REPEATS: u32 = 3;
const REPEAT_INTERVAL: Duration = Duration::from_secs(3);
/// Why a document is not read after two attempts that had no end.
const ENDED_PODS: &str = "reading it ended the ingestion's pod twice, as far as can be told, most likely for want of memory, so it is left \
     out. Make it smaller at its source, or split it, or have worker.ingestion.resources raised. Ingestions by schedule read it again once \
     it has changed; one that somebody makes does at once";
/// What of a file is looked at to find its format.
const FIRST_BYTES: usize = 4096;

/// What came of a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DocumentOutcome {
    /// Its content is what is there already.
    Same,
    /// It was listed and has gone since.
    Gone,
    Written {
        pages: u64,
        chunks: u64,
    },
    /// It cannot be read: why.
    Failed(String),
    /// Its source does not hand it out, which may be this document's matter or that of all.
    Refused(SourceError),
    /// The team's quota has no room for it: which.
    Full(String),
}

/// What keeps the ingestion from going on.
#[derive(Debug)]
pub(super) enum IngestTrouble {
    /// Trying again may help.
    Passing(String),
    /// The source cannot be reached, or not for this document.
    Away(SourceError),
    /// The team's quota has no room.
    Full(String),
    Lasting(anyhow::Error),
}

/// What came of texts that were to be embedded.
pub(super) enum Embedded {
    Vectors(Vec<Vector>),
    /// The model takes other texts, and one of these not: why.
    Refused(String),
}

/// What came of chunks that were to be written.
enum Added {
    Chunks(u64),
    /// The text of one is refused by the embedding model: why.
    Refused(String),
}

pub(super) struct Reader {
    model: PassageEmbedder,
    size: ChunkSize,
    /// The subprocess that extracts.
    program: Vec<OsString>,
    /// Whether nobody asked for the ingestion at this moment.
    is_scheduled: bool,
}

impl Reader {
    pub(super) fn new(model: PassageEmbedder, size: ChunkSize, program: Vec<OsString>, is_scheduled: bool) -> Self {
        Self { model, size, program, is_scheduled }
    }

    /// As the database compares it with what is there.
    pub(super) fn listed(&self, item: &Item) -> Listed {
        let Item { key, uri, filename, .. } = item.clone();
        Listed { key, version: self.version(item), filename, uri }
    }

    /// What a document's state is called, if its source says it: by another reader it has to be read anew.
    fn version(&self, item: &Item) -> Option<String> {
        item.version.as_ref().map(|version| format!("{} {version}", self.fingerprint()))
    }

    /// The model's id, as the database knows it.
    pub(super) fn model(&self) -> &str {
        self.model.embedder().id()
    }

    /// Where the model refuses texts, another one tells whether it is these that it refuses: a key, a model and a quota are wrong
    /// for any text, and providers answer with the same status to both. A provider that fails (5xx) at these texts alone is tried again
    /// a few times before.
    pub(super) async fn embed(&self, texts: &[String]) -> Result<Embedded, IngestTrouble> {
        let mut repeats = 0;
        loop {
            let fault = match self.model.embed(texts).await {
                Ok(vectors) => return Ok(Embedded::Vectors(vectors)),
                Err(fault) => fault,
            };
            let is_failure = matches!(fault.kind(), FaultKind::Overloaded);
            if !is_failure && !may_be_of_a_text(fault.kind()) {
                return Err(of_model(fault));
            }
            match self.model.embed(&[PLAIN_TEXT.to_owned()]).await {
                Ok(_) if is_failure && repeats < MAX_REPEATS => {
                    repeats += 1;
                    sleep(REPEAT_INTERVAL).await;
                }
                Ok(_) => return Ok(Embedded::Refused(format!("the embedding model does not take its text: {fault}"))),
                Err(other) if passes(other.kind()) => return Err(of_model(other)),
                Err(_) => return Err(of_model(fault)),
            }
        }
    }

    /// All but the document that decides on chunks and vectors.
    fn fingerprint(&self) -> String {
        let ChunkSize { tokens, overlap } = self.size;
        format!("{READER}-{tokens}-{overlap}-{}", self.model())
    }

    /// `known` is the hash of what is there of the document.
    pub(super) async fn read(
        &self,
        ingestion: &Ingestion,
        source: &dyn Source,
        item: &Item,
        known: Option<[u8; 32]>,
    ) -> Result<DocumentOutcome, IngestTrouble> {
        let mut file = tempfile::NamedTempFile::new().map_err(disk)?;
        let mut meta = self.meta(item);
        if item.size.is_some_and(|size| size > MAX_DOCUMENT_BYTES) {
            let why = format!("it has {} bytes; {MAX_DOCUMENT_BYTES} are read at most", meta.bytes);
            return failed(ingestion, &meta, why).await;
        }
        match source.fetch(item, file.as_file_mut()).await {
            Ok(fetched) => {
                meta.bytes = fetched.bytes;
                if let Some(content_type) = fetched.content_type {
                    meta.content_type = content_type;
                }
            }
            Err(error) => {
                return match error.kind() {
                    SourceErrorKind::Gone => Ok(DocumentOutcome::Gone),
                    SourceErrorKind::Unfetchable => failed(ingestion, &meta, error.to_string()).await,
                    SourceErrorKind::Unavailable => Err(IngestTrouble::Away(error)),
                    _ => self.refuse(ingestion, item, error).await,
                };
            }
        }
        let hash = self.hash(file.as_file_mut()).map_err(disk)?;
        if known == Some(hash) {
            let marked = ingestion.mark_seen(&[self.listed(item)]).await.map_err(of_database)?;
            if marked > 0 {
                return Ok(DocumentOutcome::Same);
            }
        }
        meta.content_hash = Some(hash);
        let first = first_bytes(file.as_file_mut()).map_err(disk)?;
        let format = match Format::of(&meta.filename, Some(&meta.content_type).filter(|name| !name.is_empty()).map(String::as_str), &first)
        {
            Ok(format) => format,
            Err(unreadable) => return failed(ingestion, &meta, unreadable.to_string()).await,
        };
        if !ingestion.begin_attempt(&meta.key, &hash, !self.is_scheduled).await.map_err(of_database)? {
            return failed(ingestion, &meta, ENDED_PODS.to_owned()).await;
        }
        self.write(ingestion, (format, &file), meta).await
    }

    /// Says of a document that its source does not hand it out. What the index has of it stays.
    pub(super) async fn refuse(&self, ingestion: &Ingestion, item: &Item, error: SourceError) -> Result<DocumentOutcome, IngestTrouble> {
        ingestion.fail_document(&self.meta(item), &error.to_string()).await.map_err(of_database)?;
        Ok(DocumentOutcome::Refused(error))
    }

    /// As the source lists it.
    fn meta(&self, item: &Item) -> DocumentMeta {
        DocumentMeta {
            key: item.key.clone(),
            uri: item.uri.clone(),
            filename: item.filename.clone(),
            content_type: item.content_type.clone().unwrap_or_default(),
            // Where the source has no word for it, a document is fetched each time, and its bytes say whether it is the same.
            version: Some(self.version(item).unwrap_or_else(|| self.fingerprint())),
            bytes: item.size.unwrap_or_default(),
            ..DocumentMeta::default()
        }
    }

    /// Of a source and how its documents are read: with any other, all of them have to be looked at.
    pub(super) fn configuration(&self, source: &str) -> [u8; 32] {
        Sha256::new().chain_update(self.fingerprint()).chain_update([0_u8]).chain_update(source).finalize().into()
    }

    async fn write(
        &self,
        ingestion: &Ingestion,
        (format, file): (Format, &tempfile::NamedTempFile),
        mut meta: DocumentMeta,
    ) -> Result<DocumentOutcome, IngestTrouble> {
        let mut draft = ingestion.draft().await.map_err(of_database)?;
        let mut extraction = match Extraction::start(&self.program, format, file.path(), limits(format)) {
            Ok(extraction) => extraction,
            Err(unreadable) => return Err(IngestTrouble::Lasting(anyhow!(unreadable))),
        };
        let tokens = self.model.tokens();
        let mut chunker = Chunker::new(self.size, |text: &str| tokens.count(text));
        let (mut waiting, mut chunks) = (Vec::new(), 0);
        while let Some(block) = extraction.next().await {
            chunker.push(&block, &mut |chunk| waiting.push(chunk));
            while waiting.len() >= BATCH {
                let batch: Vec<_> = waiting.drain(..BATCH).collect();
                match self.add(ingestion, &mut draft, batch).await? {
                    Added::Chunks(added) => chunks += added,
                    Added::Refused(why) => return failed(ingestion, &meta, why).await,
                }
            }
        }
        let summary = match extraction.finish().await {
            Ok(summary) => summary,
            Err(Unreadable::Io(error)) => return Err(disk(error)),
            // What was written of it is never shown.
            Err(unreadable) => return failed(ingestion, &meta, unreadable.to_string()).await,
        };
        chunker.finish(&mut |chunk| waiting.push(chunk));
        match self.add(ingestion, &mut draft, waiting).await? {
            Added::Chunks(added) => chunks += added,
            Added::Refused(why) => return failed(ingestion, &meta, why).await,
        }
        summary.notes.iter().for_each(|note| debug!(document = meta.uri, note, "was read in part"));
        if chunks == 0 {
            let why = summary.notes.first().map_or_else(String::new, |note| format!(": {note}"));
            return failed(ingestion, &meta, format!("it has no text{why}")).await;
        }
        meta.pages = summary.pages;
        meta.notes = summary.notes;
        draft.publish(&meta).await.map_err(of_database)?;
        Ok(DocumentOutcome::Written { pages: u64::from(summary.pages.unwrap_or_default()), chunks })
    }

    /// Writes chunks, and embeds those whose text has no vector yet.
    async fn add(&self, ingestion: &Ingestion, draft: &mut Draft, chunks: Vec<Chunk>) -> Result<Added, IngestTrouble> {
        let hashes: Vec<_> = chunks.iter().map(|chunk| chunk.hash).collect();
        let mut vectors: std::collections::HashMap<_, _> =
            ingestion.base().vectors_of(&hashes).await.map_err(of_database)?.into_iter().collect();
        let mut missing: Vec<&Chunk> = chunks.iter().filter(|chunk| !vectors.contains_key(&chunk.hash)).collect();
        missing.sort_by_key(|chunk| chunk.hash);
        missing.dedup_by_key(|chunk| chunk.hash);
        let texts: Vec<String> = missing.iter().map(|chunk| chunk.embedded()).collect();
        let embedded = match self.embed(&texts).await? {
            Embedded::Vectors(embedded) => embedded,
            Embedded::Refused(why) => return Ok(Added::Refused(why)),
        };
        vectors.extend(missing.iter().map(|chunk| chunk.hash).zip(embedded.into_iter().map(|vector| vector.0)));
        let added = chunks.len() as u64;
        for chunk in chunks {
            let Chunk { ordinal, text, page, section, tokens, start, end, hash, overlap: _ } = chunk;
            let vector = vectors.get(&hash).cloned();
            let chunk = NewChunk { ordinal, text, page, section, tokens, start, end, hash, vector };
            draft.add(chunk).await.map_err(of_database)?;
        }
        Ok(Added::Chunks(added))
    }

    /// Of the reader and the bytes: the same hash, the same chunks.
    fn hash(&self, file: &mut File) -> io::Result<[u8; 32]> {
        file.rewind()?;
        let mut hash = Sha256::new();
        hash.update(self.fingerprint());
        hash.update([0]);
        io::copy(file, &mut HashWriter(&mut hash))?;
        Ok(hash.finalize().into())
    }
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Pages that are pictures take seconds each.
fn limits(format: Format) -> ExtractionLimits {
    let wait = if format == Format::Pdf { PDF_TIMEOUT } else { ExtractionLimits::default().wait };
    ExtractionLimits { wait, ..ExtractionLimits::default() }
}

async fn failed(ingestion: &Ingestion, meta: &DocumentMeta, why: String) -> Result<DocumentOutcome, IngestTrouble> {
    ingestion.fail_document(meta, &why).await.map_err(of_database)?;
    Ok(DocumentOutcome::Failed(why))
}

fn first_bytes(file: &mut File) -> io::Result<Vec<u8>> {
    file.rewind()?;
    let mut first = Vec::with_capacity(FIRST_BYTES);
    file.take(FIRST_BYTES as u64).read_to_end(&mut first)?;
    Ok(first)
}

fn disk(error: io::Error) -> IngestTrouble {
    IngestTrouble::Lasting(anyhow!(error).context("the pod's folder for temporary files"))
}

pub(super) fn of_database(fault: Fault) -> IngestTrouble {
    match fault {
        Fault::Full(words) => IngestTrouble::Full(words),
        fault if fault.is_passing() => IngestTrouble::Passing(fault.to_string()),
        fault => IngestTrouble::Lasting(fault.into()),
    }
}

fn of_model(fault: ModelFault) -> IngestTrouble {
    if passes(fault.kind()) { IngestTrouble::Passing(fault.to_string()) } else { IngestTrouble::Lasting(fault.into()) }
}

fn passes(kind: &FaultKind) -> bool {
    matches!(kind, FaultKind::RateLimited { .. } | FaultKind::Overloaded | FaultKind::Timeout | FaultKind::Unreachable)
}

/// Besides what refuses a request, the text of one may be what makes a vector without a direction.
fn may_be_of_a_text(kind: &FaultKind) -> bool {
    matches!(kind, FaultKind::Refused | FaultKind::ContextOverflow | FaultKind::Broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_a_model_are_no_matter_of_a_text() {
        for kind in [FaultKind::Refused, FaultKind::ContextOverflow, FaultKind::Broken] {
            assert!(may_be_of_a_text(&kind) && !passes(&kind), "{kind:?}");
        }
        for kind in [FaultKind::Misconfigured, FaultKind::MissingKey, FaultKind::Unauthorized, FaultKind::UnknownModel] {
            assert!(!may_be_of_a_text(&kind) && !passes(&kind), "{kind:?}");
        }
        for kind in [FaultKind::RateLimited { retry_after: None }, FaultKind::Overloaded, FaultKind::Timeout, FaultKind::Unreachable] {
            assert!(!may_be_of_a_text(&kind) && passes(&kind), "{kind:?}");
        }
    }
}
