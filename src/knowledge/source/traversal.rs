//! A walk through everything that a source has. Its end is the only maker of [`Complete`], and a fault takes the walk away:
//! the holder of a `Complete` has seen each page.

use serde::{Deserialize, Serialize};

use super::{Item, MAX_ITEMS, PageToken, Skipped, Source, SourceError, SourcePage};

/// Where a traversal stands. An ingestion holds it in memory, and asks for a page again after an outage. It is not stored: the next
/// ingestion begins at the first page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePoint {
    traversal: String,
    items: u64,
    /// None before the first page; then where the next one begins.
    after: Option<PageToken>,
    /// Whether the last page is behind.
    ended: bool,
}

/// A walk through everything that a source has, page by page.
pub struct Traversal<'a> {
    source: &'a dyn Source,
    at: ResumePoint,
}

/// What a step of a traversal brings.
pub enum TraversalStep<'a> {
    /// Items, and the traversal that goes on behind them.
    Page { items: Vec<Item>, skipped: Vec<Skipped>, rest: Traversal<'a> },
    /// Nothing is left.
    Complete(Complete),
}

/// Every page of the traversal of this name was handed out: what none of them had is gone at the source.
#[derive(Debug, PartialEq, Eq)]
pub struct Complete {
    traversal: String,
    items: u64,
}

impl<'a> Traversal<'a> {
    /// Begins at the first page. The `Complete` at its end has this name.
    pub fn begin(source: &'a dyn Source, name: impl Into<String>) -> Self {
        Self { source, at: ResumePoint { traversal: name.into(), items: 0, after: None, ended: false } }
    }

    /// Goes on where a traversal of the same source and configuration failed.
    pub fn resume(source: &'a dyn Source, at: ResumePoint) -> Self {
        Self { source, at }
    }

    /// Where `Traversal::resume` goes on if the next page fails.
    pub fn resume_point(&self) -> &ResumePoint {
        &self.at
    }

    /// The next page, or the end. After a fault the traversal is gone, and `Traversal::resume` takes up the point from before it.
    pub async fn next(mut self) -> Result<TraversalStep<'a>, SourceError> {
        if self.at.ended {
            return Ok(TraversalStep::Complete(Complete { traversal: self.at.traversal, items: self.at.items }));
        }
        let SourcePage { items, skipped, next } = self.source.page(self.at.after.as_ref()).await?;
        if next.is_some() && next == self.at.after {
            return Err(SourceError::broken("the source answers with the same page again and again"));
        }
        self.at.items += items.len() as u64;
        if self.at.items > MAX_ITEMS {
            return Err(SourceError::new(
                super::SourceErrorKind::Misconfigured,
                format!("the source has more than {MAX_ITEMS} documents; choose a part of it"),
            ));
        }
        self.at.ended = next.is_none();
        self.at.after = next;
        Ok(TraversalStep::Page { items, skipped, rest: self })
    }
}

impl Complete {
    /// The name that the traversal began with.
    pub fn traversal(&self) -> &str {
        &self.traversal
    }

    /// The number of documents that were seen.
    pub fn items(&self) -> u64 {
        self.items
    }
}
