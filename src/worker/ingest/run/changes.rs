//! What a source tells of its changes, in place of a list of all that it has. Whatever is not clear of it is left to a traversal:
//! a place that the source no longer knows, too many changes, next to all documents gone, a traversal that was too long ago.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use slipway_database::knowledge::Removal;
use slipway_knowledge::source::{ChangeCursor, Changes, Incremental, Item, Skipped, SourceError};
use tracing::{info, warn};

use super::{Walk, note, patiently};

/// How long ago a traversal of the source to its end may have begun. Less than a day, so that ingestions which come once a day, now a
/// little later and now a little earlier, all traverse.
const MAX_TRAVERSAL_AGE: Duration = Duration::from_hours(23);
/// How many changed and removed documents are taken from a list of changes.
const MAX_CHANGES: usize = 2_000;
/// How many pages of one are read, most of which may be of documents elsewhere.
const MAX_PAGES: usize = 200;

/// What has changed since a place.
#[derive(Debug)]
struct News {
    changed: BTreeMap<String, Item>,
    removed: BTreeSet<String>,
    skipped: Vec<Skipped>,
    next: ChangeCursor,
}

/// The present place, taken before a traversal: what moves while that is under way comes as a change. None of a source that tells
/// none.
pub(super) async fn present(feed: &dyn Incremental) -> Option<ChangeCursor> {
    let place = feed.now().await;
    place
        .inspect_err(|error| info!(%error, "the source does not say where its list of changes is; the next ingestion reads all of it"))
        .ok()
}

impl Walk<'_> {
    /// Reads what has changed since the last ingestion, and returns the place behind it. None if a traversal has to tell.
    pub(super) async fn follow(&mut self, feed: &dyn Incremental) -> anyhow::Result<Option<ChangeCursor>> {
        // Of a source that tells no deletions, ingestions by schedule leave them to one a day. And what ended pods is read again for
        // somebody who asks, though nothing is told of it.
        if !self.order.is_scheduled && (!feed.tells_deletions() || self.has_suspects()) {
            return Ok(None);
        }
        let known = patiently("the place in the list of changes", || self.ingestion.place(&self.order.configuration)).await?;
        let Some(known) = known.filter(|known| known.age < MAX_TRAVERSAL_AGE) else { return Ok(None) };
        let News { changed, removed, skipped, next } = match gather(feed, ChangeCursor(known.place)).await {
            Ok(Some(news)) => news,
            Ok(None) => return Ok(None),
            Err(error) => {
                info!(%error, "the list of changes cannot be used; all of the source is read");
                return Ok(None);
            }
        };
        let keys: Vec<&str> = removed.iter().map(String::as_str).collect();
        let gone = match patiently("documents that are gone", || self.ingestion.remove_gone(&keys)).await? {
            Removal::Removed(gone) => gone,
            Removal::Doubtful { .. } => return Ok(None),
        };
        self.progress.change(|report| report.removed = gone);
        let changed: Vec<Item> = changed.into_values().collect();
        self.page(&changed).await?;
        self.read_suspects().await?;
        for skipped in &skipped {
            note(self.progress, skipped);
        }
        info!(changed = changed.len(), removed = gone, "the source told its changes");
        Ok(Some(next))
    }

    /// For the next ingestion. If this one was refused documents, that one begins where this one did: with all of the source, or with
    /// the same changes.
    pub(super) async fn keep(&self, place: &ChangeCursor) {
        if self.has_refusals {
            return;
        }
        let keep = || self.ingestion.keep_place(&self.order.configuration, &place.0);
        if let Err(error) = patiently("the place in the list of changes", keep).await {
            warn!(error = format!("{error:#}"), "the next ingestion begins where this one did");
        }
    }
}

/// All changes since a place, the last of each document. None if a traversal has to tell.
async fn gather(feed: &dyn Incremental, since: ChangeCursor) -> Result<Option<News>, SourceError> {
    let mut news = News { changed: BTreeMap::new(), removed: BTreeSet::new(), skipped: Vec::new(), next: since };
    for _ in 0..MAX_PAGES {
        let Changes { changed, removed, skipped, traverse, next, more } = feed.changes(&news.next).await?;
        if traverse {
            return Ok(None);
        }
        for key in removed {
            news.changed.remove(&key);
            news.removed.insert(key);
        }
        for item in changed {
            news.removed.remove(&item.key);
            news.changed.insert(item.key.clone(), item);
        }
        news.skipped.extend(skipped);
        news.next = next;
        if news.changed.len() + news.removed.len() + news.skipped.len() > MAX_CHANGES {
            return Ok(None);
        }
        if !more {
            return Ok(Some(news));
        }
    }
    Ok(None)
}
