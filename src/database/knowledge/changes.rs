//! Where the list of changes of a source was left, and what that list says is gone.

use std::time::Duration;

use sqlx::Row;

use super::ingestion::{Ingestion, Removal, removal};
use crate::Fault;
use crate::connection::ask;

/// The longest place that is kept, in bytes.
pub const MAX_PLACE_BYTES: usize = 1_024;

/// Where a source's list of changes was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// As the source calls it.
    pub place: String,
    /// Since the source was read to its end.
    pub age: Duration,
}

impl Ingestion {
    /// Where the list of changes of the source goes on. None where all of it has to be read: for the first time, after another
    /// configuration or embedding model, and after documents of it were deleted by hand.
    pub async fn place(&self, configuration: &[u8; 32]) -> Result<Option<Place>, Fault> {
        let question = self.mine(ask("SELECT place, age FROM slipway.find_place($1, $2, $3, $4)")).bind(configuration.as_slice());
        let rows = self.base.rows(question).await?;
        let read = |row: &sqlx::postgres::PgRow| {
            let age: f64 = row.try_get("age")?;
            // A clock that was set back is no reason to wait for ever.
            Ok(Place { place: row.try_get("place")?, age: Duration::try_from_secs_f64(age).unwrap_or(Duration::MAX) })
        };
        rows.first().map(read).transpose()
    }

    /// Keeps the place for the next ingestion, once everything before it is stored. Without a traversal only a place that is
    /// still there moves on.
    pub async fn keep_place(&self, configuration: &[u8; 32], place: &str, is_traversed: bool) -> Result<(), Fault> {
        if place.len() > MAX_PLACE_BYTES {
            return Err(Fault::Refused(format!("a place in a list of changes has at most {MAX_PLACE_BYTES} bytes")));
        }
        let question = self.mine(ask("SELECT slipway.keep_place($1, $2, $3, $4, $5, $6)"));
        self.base.run(question.bind(configuration.as_slice()).bind(place).bind(is_traversed)).await
    }

    /// Removes the documents of the source that it says are gone. Nothing goes if next to nothing would be left, which only a
    /// traversal can tell.
    pub async fn remove_gone(&self, keys: &[&str]) -> Result<Removal, Fault> {
        let question = self.mine(ask("SELECT removed, found, missing FROM slipway.remove_gone($1, $2, $3, $4)")).bind(keys);
        let rows = self.base.rows(question).await?;
        let outcome = removal(&rows)?;
        self.base.sweep().await?;
        Ok(outcome)
    }
}
