//! The run of an ingestion: what the source tells of its changes, or page by page through all of it and then what is gone there;
//! then the index. Counts as it goes.

mod changes;
mod names;
mod outage;
mod suspects;

use std::fmt;
use std::sync::Arc;

use anyhow::bail;
use slipway_database::knowledge::{Ending, INDEX_THRESHOLD, Ingestion, Listed, Removal, Report};
use slipway_knowledge::source::{ChangeCursor, Complete, Item, Skipped, Source, SourceError, SourceErrorKind, Traversal, TraversalStep};
use tokio::time::sleep;
use tracing::{info, warn};

use super::document::{DocumentOutcome, IngestTrouble, Reader};
use super::heartbeat::{Heartbeat, SharedReport};
use super::vectors;
use outage::{MAX_OUTAGE, Outage, RETRY_INTERVAL, patiently};
use suspects::Suspects;

/// How many documents in a row a source may refuse. Then its credentials are at fault, or the source, and no document.
const MAX_REFUSALS: u32 = 20;

/// What a source that was read to its end removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removes {
    /// Nothing: it is one uploaded file.
    Nothing,
    /// What is gone there, unless that is next to everything.
    Gone,
    /// What is gone there, however much it is.
    Confirmed,
}

/// What an ingestion is to do.
pub(super) struct Order {
    pub(super) removes: Removes,
    /// Whether nobody asked for it at this moment.
    pub(super) is_scheduled: bool,
    /// Of the source and of how it is read.
    pub(super) configuration: [u8; 32],
    /// What former versions called the source.
    pub(super) former_source: Option<String>,
}

/// Why an ingestion has failed as every other attempt would.
#[derive(Debug)]
pub(crate) struct FinalFailure {
    ending: Ending,
    words: String,
}

impl FinalFailure {
    /// Of an ingestion that was made for another embedding model than the base has by now.
    pub(super) fn outdated(wanted: &str, present: &str) -> Self {
        let words = format!(
            "this ingestion was made when the knowledge base had the embedding model {wanted}, and it has been given {present} since. \
             Make another Ingestion"
        );
        Self { ending: Ending::Failed, words }
    }
}

impl std::error::Error for FinalFailure {}

impl fmt::Display for FinalFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

pub(super) struct IngestRun {
    ingestion: Ingestion,
    progress: Arc<SharedReport>,
    heartbeat: Heartbeat,
}

impl IngestRun {
    pub(super) fn new(ingestion: Ingestion) -> Self {
        let progress = Arc::new(SharedReport::default());
        let heartbeat = Heartbeat::start(ingestion.clone(), progress.clone());
        Self { ingestion, progress, heartbeat }
    }

    /// Reads all of the source.
    pub(super) async fn drive(&mut self, source: &dyn Source, reader: &Reader, order: &Order) -> anyhow::Result<()> {
        let Self { ingestion, progress, heartbeat } = self;
        // An upload is one file, which is kept until it is read.
        let most_refusals = if order.removes == Removes::Nothing { 1 } else { MAX_REFUSALS };
        let mut walk = Walk {
            ingestion,
            progress,
            source,
            reader,
            order,
            suspects: Suspects::default(),
            most_refusals,
            refusals: 0,
            has_refusals: false,
            away: Outage::default(),
            halt: None,
        };
        tokio::select! {
            ended = walk.drive() => ended,
            () = heartbeat.lost() => bail!("another process has taken this ingestion over"),
        }
    }

    /// Writes down how it ended.
    pub(super) async fn end(self, outcome: anyhow::Result<()>) -> anyhow::Result<()> {
        let Self { ingestion, progress, heartbeat } = self;
        heartbeat.stop().await;
        if let Err(error) = &outcome {
            progress.change(|report| report.errors.insert(0, failure(error)));
        }
        let report = progress.report();
        let (seen, changed, failed, removed) = (report.seen, report.changed, report.failed, report.removed);
        info!(seen, changed, failed, removed, succeeded = outcome.is_ok(), "the ingestion has ended");
        let ending = match &outcome {
            Ok(()) => Ending::Succeeded,
            Err(error) => error.downcast_ref::<FinalFailure>().map_or(Ending::Failed, |verdict| verdict.ending),
        };
        let ended = patiently("the end of the ingestion", || ingestion.end(&report, ending)).await;
        outcome?;
        if !ended? {
            bail!("another process has taken this ingestion over");
        }
        Ok(())
    }
}

/// Of the whole ingestion: it belongs to no document.
fn failure(error: &anyhow::Error) -> slipway_database::knowledge::DocumentError {
    let error = format!("{error:#}");
    slipway_database::knowledge::DocumentError { key: String::new(), error: error.chars().take(500).collect() }
}

/// What an ingestion works with.
struct Walk<'a> {
    ingestion: &'a Ingestion,
    progress: &'a SharedReport,
    source: &'a dyn Source,
    reader: &'a Reader,
    order: &'a Order,
    suspects: Suspects,
    most_refusals: u32,
    /// How many documents the source has refused since it last handed one out.
    refusals: u32,
    /// Whether it has refused any.
    has_refusals: bool,
    /// How long it has not been reached for a document.
    away: Outage,
    halt: Option<Halt>,
}

/// Why documents are read no more. They are looked at all the same, to be told apart from what is gone.
enum Halt {
    /// The team's quota had no room for a document: what the database said. What is removed in the end makes room for the next
    /// ingestion.
    Full(String),
    /// The source refuses one document after the other: how many, the last of them, and why.
    Refused { refusals: u32, document: String, error: SourceError },
}

impl Halt {
    fn words(&self) -> String {
        match self {
            Self::Full(words) => words.clone(),
            Self::Refused { error, .. } => error.to_string(),
        }
    }

    /// What the ingestion ends with.
    fn into_error(self) -> anyhow::Error {
        match self {
            Self::Full(words) => FinalFailure { ending: Ending::Full, words }.into(),
            Self::Refused { refusals: 1, document, error } => anyhow::Error::from(error).context(document),
            Self::Refused { refusals, document, error } => {
                let words = format!(
                    "the source refuses one document after the other, and after {refusals} in a row no more are read. Mend its \
                     credentials, their rights or the source; the next ingestion tries again. The last is {document}"
                );
                anyhow::Error::from(error).context(words)
            }
        }
    }
}

impl Walk<'_> {
    async fn drive(&mut self) -> anyhow::Result<()> {
        self.enter("traversing");
        if let Some(former) = &self.order.former_source {
            patiently("documents of the source's former name", || self.ingestion.adopt_documents(former)).await?;
        }
        self.find_suspects().await?;
        let place = self.read_source().await?;
        self.enter("embedding");
        self.fill_vectors().await?;
        self.enter("indexing");
        patiently("the index", || self.ingestion.settle(INDEX_THRESHOLD)).await?;
        if let Some(halt) = self.halt.take() {
            return Err(halt.into_error());
        }
        if let Some(place) = place {
            self.keep(&place).await;
        }
        Ok(())
    }

    /// Reads what has changed, or all. Returns where the next ingestion goes on.
    async fn read_source(&mut self) -> anyhow::Result<Option<ChangeCursor>> {
        let (source, removes) = (self.source, self.order.removes);
        if removes == Removes::Nothing {
            self.traverse().await?;
            return Ok(None);
        }
        let feed = source.incremental();
        if let Some(feed) = feed.filter(|_| removes == Removes::Gone)
            && let Some(place) = self.follow(feed).await?
        {
            return Ok(Some(place));
        }
        patiently("the beginning of a traversal", || self.ingestion.begin_traversal()).await?;
        let place = match feed {
            Some(feed) => changes::present(feed).await,
            None => None,
        };
        let complete = self.traverse().await?;
        // What has gone makes room, whatever had none before.
        self.remove(&complete, removes == Removes::Confirmed).await?;
        Ok(place)
    }

    fn enter(&self, phase: &str) {
        self.progress.change(|report| phase.clone_into(&mut report.phase));
    }

    /// Takes a `Complete`, which only a traversal to its end has.
    async fn remove(&self, complete: &Complete, confirmed: bool) -> anyhow::Result<()> {
        self.enter("removing");
        let removed = match patiently("documents that are gone", || self.ingestion.remove_unseen(confirmed)).await? {
            Removal::Removed(removed) => removed,
            Removal::Doubtful { found, missing } => {
                let words = format!(
                    "the source was read to its end and has {found} documents, and none of {missing} others that were indexed from it. \
                     Nothing was removed, in case its settings are wrong or it was emptied by mistake. If it is right, make another \
                     Ingestion with confirmRemoval: true (REST: \"confirm_removal\": true)"
                );
                return Err(FinalFailure { ending: Ending::Doubtful, words }.into());
            }
        };
        self.progress.change(|report| report.removed = removed);
        info!(listed = complete.items(), removed, "the source was read to its end");
        Ok(())
    }

    /// Embeds what another model left without vectors, as often as it takes.
    async fn fill_vectors(&self) -> anyhow::Result<()> {
        let (mut outage, mut after) = (Outage::default(), None);
        loop {
            let before = after.clone();
            match vectors::fill(self.ingestion, self.reader, &mut after).await {
                Ok(()) => return Ok(()),
                Err(IngestTrouble::Passing(why)) => {
                    if after != before {
                        outage = Outage::default();
                    }
                    if !outage.goes_on() {
                        bail!("vectors of the present model: {why}");
                    }
                    warn!(why, "vectors of the present model are tried again");
                    sleep(RETRY_INTERVAL).await;
                }
                Err(IngestTrouble::Full(why)) => bail!("vectors of the present model: {why}"),
                Err(IngestTrouble::Away(error)) => return Err(error.into()),
                Err(IngestTrouble::Lasting(error)) => return Err(error.context("vectors of the present model")),
            }
        }
    }

    async fn traverse(&mut self) -> anyhow::Result<Complete> {
        let mut traversal = Traversal::begin(self.source, "");
        let mut outage = Outage::default();
        loop {
            let at = traversal.resume_point().clone();
            match traversal.next().await {
                Ok(TraversalStep::Complete(complete)) => {
                    self.read_suspects().await?;
                    return Ok(complete);
                }
                Ok(TraversalStep::Page { items, skipped, rest }) => {
                    outage = Outage::default();
                    self.page(&items).await?;
                    for skipped in &skipped {
                        note(self.progress, skipped);
                    }
                    traversal = rest;
                }
                Err(error) if error.kind() == SourceErrorKind::Unavailable && outage.goes_on() => {
                    warn!(%error, "the source cannot be reached");
                    sleep(error.retry_after().unwrap_or(RETRY_INTERVAL).min(MAX_OUTAGE)).await;
                    traversal = Traversal::resume(self.source, at);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn page(&mut self, items: &[Item]) -> anyhow::Result<()> {
        let (items, nameless): (Vec<Item>, Vec<Item>) = items.iter().map(names::fitted).partition(|item| names::fault(&item.key).is_none());
        for item in &nameless {
            let why = names::fault(&item.key).unwrap_or_default();
            self.progress.change(|report| {
                report.seen += 1;
                fail(report, item, &why);
            });
        }
        let listed: Vec<_> = items.iter().map(|item| self.reader.listed(item)).collect();
        let changed = patiently("the list of documents", || self.ingestion.changed(&listed)).await?;
        let unchanged = (items.len() - changed.len()) as u64;
        self.progress.change(|report| {
            report.seen += unchanged;
            report.unchanged += unchanged;
        });
        for changed in &changed {
            let Some(item) = items.iter().find(|item| item.key == changed.key) else { continue };
            if !self.suspects.puts_off(item, changed.content_hash) {
                self.document(item, changed.content_hash).await?;
            }
        }
        Ok(())
    }

    async fn document(&mut self, item: &Item, known: Option<[u8; 32]>) -> anyhow::Result<()> {
        let outcome = match self.halt.as_ref().map(Halt::words) {
            None => self.read(item, known).await?,
            Some(words) => self.leave(item, words).await?,
        };
        self.progress.change(|report| {
            report.seen += 1;
            match &outcome {
                DocumentOutcome::Same => report.unchanged += 1,
                DocumentOutcome::Gone => report.seen -= 1,
                DocumentOutcome::Written { pages, chunks } => {
                    report.changed += 1;
                    report.pages += pages;
                    report.chunks += chunks;
                }
                DocumentOutcome::Refused(error) => fail(report, item, &error.to_string()),
                DocumentOutcome::Failed(why) | DocumentOutcome::Full(why) => fail(report, item, why),
            }
        });
        match outcome {
            DocumentOutcome::Gone => {}
            // The source has handed it out.
            DocumentOutcome::Same | DocumentOutcome::Written { .. } | DocumentOutcome::Failed(_) => {
                (self.refusals, self.away) = (0, Outage::default());
            }
            DocumentOutcome::Refused(error) => {
                self.refusals += 1;
                self.has_refusals = true;
                if self.refusals >= self.most_refusals {
                    let refusals = self.refusals;
                    self.halt.get_or_insert(Halt::Refused { refusals, document: item.uri.clone(), error });
                }
            }
            DocumentOutcome::Full(words) => {
                self.halt.get_or_insert(Halt::Full(words));
            }
        }
        Ok(())
    }

    /// Reads a document, as often as it takes.
    async fn read(&mut self, item: &Item, known: Option<[u8; 32]>) -> anyhow::Result<DocumentOutcome> {
        let mut outage = Outage::default();
        loop {
            match self.attempt(item, known).await {
                Ok(outcome) => return Ok(outcome),
                Err(IngestTrouble::Passing(why)) if outage.goes_on() => {
                    warn!(document = item.uri, why, "is tried again");
                    sleep(RETRY_INTERVAL).await;
                }
                Err(IngestTrouble::Passing(why)) => bail!("{}: {why}", item.uri),
                Err(IngestTrouble::Away(error)) => {
                    warn!(document = item.uri, %error, "is tried again");
                    sleep(error.retry_after().unwrap_or(RETRY_INTERVAL).min(MAX_OUTAGE)).await;
                }
                Err(IngestTrouble::Lasting(error)) => return Err(error.context(item.uri.clone())),
                Err(IngestTrouble::Full(words)) => return self.leave(item, words).await,
            }
        }
    }

    /// A document that the source does not answer for is refused by it once the outage has lasted too long, and so are those
    /// behind it, each after one attempt, until one is handed out.
    async fn attempt(&mut self, item: &Item, known: Option<[u8; 32]>) -> Result<DocumentOutcome, IngestTrouble> {
        match self.reader.read(self.ingestion, self.source, item, known).await {
            Err(IngestTrouble::Away(error)) if !self.away.goes_on() => self.reader.refuse(self.ingestion, item, error).await,
            read => read,
        }
    }

    /// Marks a document that is not read as one that the source has.
    async fn leave(&self, item: &Item, words: String) -> anyhow::Result<DocumentOutcome> {
        let seen = [Listed { version: None, ..self.reader.listed(item) }];
        patiently("a document that is left", || self.ingestion.mark_seen(&seen)).await?;
        Ok(DocumentOutcome::Full(words))
    }
}

fn fail(report: &mut Report, item: &Item, why: &str) {
    warn!(document = item.uri, why, "cannot be read, or stored");
    report.failed(&item.uri, why);
}

/// What the source has and that is no document is no failure.
fn note(progress: &SharedReport, Skipped { name, why }: &Skipped) {
    info!(name, why, "left out");
    progress.change(|report| report.seen += 1);
}
