//! Attempts at documents. A process that ends without a word leaves one behind, and its document may be what ended it.

use std::collections::BTreeSet;

use sqlx::Row;

use super::ingestion::{Ingestion, check_text};
use crate::Fault;
use crate::connection::ask;

impl Ingestion {
    /// Before a document with these bytes is read; publishing it, or its failure, is the end of the attempt. False after two attempts
    /// without an end: then it is to be failed unread. With `again` an Ingestion that has not begun it yet has two attempts more.
    pub async fn begin_attempt(&self, key: &str, content_hash: &[u8; 32], again: bool) -> Result<bool, Fault> {
        check_text("key of a document", key)?;
        let question = self.mine(ask("SELECT slipway.begin_attempt($1, $2, $3, $4, $5, $6) AS begun"));
        let rows = self.base.rows(question.bind(key).bind(content_hash.as_slice()).bind(again)).await?;
        let row = rows.first().ok_or_else(|| Fault::Broken("an attempt neither began nor was refused".to_owned()))?;
        Ok(row.try_get("begun")?)
    }

    /// The keys of the source's documents that were begun without an end.
    pub async fn unfinished(&self) -> Result<BTreeSet<String>, Fault> {
        let rows = self.base.rows(self.mine(ask("SELECT key FROM slipway.list_attempts($1, $2, $3)"))).await?;
        rows.iter().map(|row| Ok::<String, Fault>(row.try_get("key")?)).collect()
    }

    /// Takes back the attempts of this process, which ends for another reason. [`Self::end`] does so, too.
    pub async fn withdraw_attempts(&self) -> Result<(), Fault> {
        self.base.run(ask("SELECT slipway.withdraw_attempts($1, $2)").bind(&*self.base.kb).bind(&self.holder)).await
    }
}
