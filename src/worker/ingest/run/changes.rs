//! What a source tells of its changes, in place of a list of all that it has. Whatever is not clear of it is left to a traversal:
//! a place that the source no longer knows, too many changes, next to all documents gone, a traversal that was too long ago.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use slipway_database::knowledge::Removal;
use slipway_knowledge::source::{ChangeCursor, Changes, Incremental, Item, Skipped, SourceError};
use tracing::{info, warn};

use super::{Walk, note, patiently};

/// How long ago the source may have been read to its end.
const MAX_TRAVERSAL_AGE: Duration = Duration::from_hours(24);
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

/// Where the next ingestion goes on.
pub(super) struct Place {
    cursor: ChangeCursor,
    is_traversed: bool,
}

impl Place {
    /// The present place, taken before a traversal: what moves while that is under way comes as a change. None of a source that
    /// tells none.
    pub(super) async fn now(feed: &dyn Incremental) -> Option<Self> {
        match feed.now().await {
            Ok(cursor) => Some(Self { cursor, is_traversed: true }),
            Err(error) => {
                info!(%error, "the source does not say where its list of changes is; the next ingestion reads all of it");
                None
            }
        }
    }
}

impl Walk<'_> {
    /// Reads what has changed since the last ingestion, and returns the place behind it. None if a traversal has to tell.
    pub(super) async fn follow(&mut self, feed: &dyn Incremental) -> anyhow::Result<Option<Place>> {
        // Of a source that tells no deletions, ingestions by schedule leave them to one a day.
        if !self.order.is_scheduled && !feed.tells_deletions() {
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
        for skipped in &skipped {
            note(self.progress, skipped);
        }
        info!(changed = changed.len(), removed = gone, "the source told its changes");
        Ok(Some(Place { cursor: next, is_traversed: false }))
    }

    /// For the next ingestion. Without the place that one reads all of the source, and so it does if this one was refused documents,
    /// which no list of changes would tell again.
    pub(super) async fn keep(&self, place: &Place) {
        if self.has_refusals {
            return;
        }
        let Place { cursor, is_traversed } = place;
        let keep = || self.ingestion.keep_place(&self.order.configuration, &cursor.0, *is_traversed);
        if let Err(error) = patiently("the place in the list of changes", keep).await {
            warn!(error = format!("{error:#}"), "the next ingestion reads all of the source");
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
