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
pub struct ChangesCursor {
    /// As the source calls it.
    pub place: String,
    /// Since the last traversal to the source's end began.
    pub age: Duration,
}

impl Ingestion {
    /// Where the list of changes of the source goes on. None where all of it has to be read: for the first time, after another
    /// configuration or embedding model, and after documents of it were deleted by hand.
    pub async fn place(&self, configuration: &[u8; 32]) -> Result<Option<ChangesCursor>, Fault> {
        let question = self.mine(ask("SELECT place, age FROM slipway.find_place($1, $2, $3, $4)")).bind(configuration.as_slice());
        let rows = self.base.rows(question).await?;
        let read = |row: &sqlx::postgres::PgRow| {
            let age: f64 = row.try_get("age")?;
            // A clock that was set back is no reason to wait for ever.
            Ok(ChangesCursor { place: row.try_get("place")?, age: Duration::try_from_secs_f64(age).unwrap_or(Duration::MAX) })
        };
        rows.first().map(read).transpose()
    }

    /// All of the source is about to be read. From then on no earlier place counts, whatever comes of it.
    pub async fn begin_traversal(&self) -> Result<(), Fault> {
        self.base.run(self.mine(ask("SELECT slipway.begin_traversal($1, $2, $3)"))).await
    }

    /// Keeps the place for the next ingestion, once everything before it is stored: the first one after a traversal, or one behind
    /// a place that is still there.
    pub async fn keep_place(&self, configuration: &[u8; 32], place: &str) -> Result<(), Fault> {
        if place.len() > MAX_PLACE_BYTES {
            return Err(Fault::Refused(format!("a place in a list of changes has at most {MAX_PLACE_BYTES} bytes")));
        }
        let question = self.mine(ask("SELECT slipway.keep_place($1, $2, $3, $4, $5)"));
        self.base.run(question.bind(configuration.as_slice()).bind(place)).await
    }

    /// Takes over the documents of a source that is this one under a former name.
    pub async fn adopt_documents(&self, former: &str) -> Result<(), Fault> {
        loop {
            let question = self.mine(ask("SELECT slipway.adopt_documents($1, $2, $3, $4) AS adopted")).bind(former);
            if self.base.count(question, "adopted").await? == 0 {
                return Ok(());
            }
        }
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
