//! The run of an ingestion: page by page through the source, then what is gone there, then the index. Counts as it goes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use slipway_database::knowledge::{Ending, INDEX_THRESHOLD, Ingestion, Removal};
use slipway_knowledge::source::{Complete, Item, Skipped, Source, SourceErrorKind, Step, Traversal};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::document::{Outcome, Reader, Trouble};
use super::heartbeat::{Heartbeat, Progress};
use super::vectors;

/// How long a database or a source that is away is waited for, over and over. The Job tries again after that.
const MAX_OUTAGE: Duration = Duration::from_mins(5);
const RETRY_INTERVAL: Duration = Duration::from_secs(3);

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

/// Why an ingestion has failed as every other attempt would.
#[derive(Debug)]
pub(crate) struct Verdict {
    ending: Ending,
    words: String,
}

impl std::error::Error for Verdict {}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

pub(super) struct Run {
    ingestion: Ingestion,
    progress: Arc<Progress>,
    heartbeat: Heartbeat,
}

impl Run {
    pub(super) fn new(ingestion: Ingestion) -> Self {
        let progress = Arc::new(Progress::default());
        let heartbeat = Heartbeat::start(ingestion.clone(), progress.clone());
        Self { ingestion, progress, heartbeat }
    }

    /// Reads all of the source.
    pub(super) async fn drive(&mut self, source: &dyn Source, reader: &Reader, removes: Removes) -> anyhow::Result<()> {
        let Self { ingestion, progress, heartbeat } = self;
        tokio::select! {
            ended = drive(ingestion, progress, source, reader, removes) => ended,
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
            Err(error) => error.downcast_ref::<Verdict>().map_or(Ending::Failed, |verdict| verdict.ending),
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

async fn drive(ingestion: &Ingestion, progress: &Progress, source: &dyn Source, reader: &Reader, removes: Removes) -> anyhow::Result<()> {
    progress.change(|report| "traversing".clone_into(&mut report.phase));
    let complete = traverse(ingestion, progress, source, reader).await?;
    if removes != Removes::Nothing {
        remove(ingestion, progress, &complete, removes == Removes::Confirmed).await?;
    }
    progress.change(|report| "embedding".clone_into(&mut report.phase));
    complete(ingestion, reader).await?;
    progress.change(|report| "indexing".clone_into(&mut report.phase));
    patiently("the index", || ingestion.settle(INDEX_THRESHOLD)).await
}

/// Takes a `Complete`, which only a traversal to its end has.
async fn remove(ingestion: &Ingestion, progress: &Progress, complete: &Complete, confirmed: bool) -> anyhow::Result<()> {
    progress.change(|report| "removing".clone_into(&mut report.phase));
    let removed = match patiently("documents that are gone", || ingestion.remove_unseen(confirmed)).await? {
        Removal::Removed(removed) => removed,
        Removal::Doubtful { found, missing } => {
            let words = format!(
                "the source was read to its end and has {found} documents, and none of {missing} others that were indexed from it. Nothing was \
                 removed, in case its settings are wrong or it was emptied by mistake. If it is right, make another Ingestion with \
                 confirmRemoval: true (REST: \"confirm_removal\": true)"
            );
            return Err(Verdict { ending: Ending::Doubtful, words }.into());
        }
    };
    progress.change(|report| report.removed = removed);
    info!(listed = complete.items(), removed, "the source was read to its end");
    Ok(())
}

/// Embeds what another model left without vectors, as often as it takes.
async fn complete(ingestion: &Ingestion, reader: &Reader) -> anyhow::Result<()> {
    let (mut outage, mut after) = (Outage::default(), None);
    loop {
        let before = after.clone();
        match vectors::complete(ingestion, reader, &mut after).await {
            Ok(()) => return Ok(()),
            Err(Trouble::Passing(why)) => {
                if after != before {
                    outage = Outage::default();
                }
                if !outage.goes_on() {
                    bail!("vectors of the present model: {why}");
                }
                warn!(why, "vectors of the present model are tried again");
                sleep(RETRY_INTERVAL).await;
            }
            Err(Trouble::Lasting(error)) => return Err(error.context("vectors of the present model")),
        }
    }
}

async fn traverse(ingestion: &Ingestion, progress: &Progress, source: &dyn Source, reader: &Reader) -> anyhow::Result<Complete> {
    let mut traversal = Traversal::begin(source, "");
    let mut outage = Outage::default();
    loop {
        let at = traversal.resume_point().clone();
        match traversal.next().await {
            Ok(Step::Complete(complete)) => return Ok(complete),
            Ok(Step::Page { items, skipped, rest }) => {
                outage = Outage::default();
                page(ingestion, progress, source, reader, &items).await?;
                for skipped in &skipped {
                    note(progress, skipped);
                }
                traversal = rest;
            }
            Err(error) if error.kind() == SourceErrorKind::Unavailable && outage.goes_on() => {
                warn!(%error, "the source cannot be reached");
                sleep(error.retry_after().unwrap_or(RETRY_INTERVAL).min(MAX_OUTAGE)).await;
                traversal = Traversal::resume(source, at);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What the source has and that is no document is no failure.
fn note(progress: &Progress, Skipped { name, why }: &Skipped) {
    info!(name, why, "left out");
    progress.change(|report| report.seen += 1);
}

async fn page(ingestion: &Ingestion, progress: &Progress, source: &dyn Source, reader: &Reader, items: &[Item]) -> anyhow::Result<()> {
    let listed: Vec<_> = items.iter().map(|item| reader.listed(item)).collect();
    let changed = patiently("the list of documents", || ingestion.changed(&listed)).await?;
    let unchanged = (items.len() - changed.len()) as u64;
    progress.change(|report| {
        report.seen += unchanged;
        report.unchanged += unchanged;
    });
    for changed in &changed {
        let Some(item) = items.iter().find(|item| item.key == changed.key) else { continue };
        document(ingestion, progress, source, reader, (item, changed.content_hash)).await?;
    }
    Ok(())
}

/// One document, as often as it takes.
async fn document(
    ingestion: &Ingestion,
    progress: &Progress,
    source: &dyn Source,
    reader: &Reader,
    (item, known): (&Item, Option<[u8; 32]>),
) -> anyhow::Result<()> {
    let mut outage = Outage::default();
    let outcome = loop {
        match reader.read(ingestion, source, item, known).await {
            Err(Trouble::Passing(why)) if outage.goes_on() => {
                warn!(document = item.uri, why, "is tried again");
                sleep(RETRY_INTERVAL).await;
            }
            Err(Trouble::Passing(why)) => bail!("{}: {why}", item.uri),
            Err(Trouble::Lasting(error)) => return Err(error.context(item.uri.clone())),
            Ok(outcome) => break outcome,
        }
    };
    progress.change(|report| {
        report.seen += 1;
        match outcome {
            Outcome::Same => report.unchanged += 1,
            Outcome::Gone => report.seen -= 1,
            Outcome::Written { pages, chunks } => {
                report.changed += 1;
                report.pages += pages;
                report.chunks += chunks;
            }
            Outcome::Failed(why) => {
                warn!(document = item.uri, why, "cannot be read");
                report.failed(&item.uri, &why);
            }
        }
    });
    Ok(())
}

/// How long something has been away.
#[derive(Default)]
struct Outage(Option<Instant>);

impl Outage {
    /// Whether it may last a little longer. Counts from the first call.
    fn goes_on(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() < MAX_OUTAGE
    }
}

/// Again while the database is away.
async fn patiently<T, F>(what: &str, mut operation: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = Result<T, slipway_database::Fault>>,
{
    let mut outage = Outage::default();
    loop {
        match operation().await {
            Err(fault) if fault.is_passing() && outage.goes_on() => {
                warn!(%fault, what, "the database cannot be reached");
                sleep(RETRY_INTERVAL).await;
            }
            outcome => return outcome.map_err(|fault| anyhow!(fault).context(what.to_owned())),
        }
    }
}
