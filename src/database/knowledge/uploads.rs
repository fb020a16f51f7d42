//! Uploads: files in parts, kept until they have been ingested, within quotas of the base and of the team.

use sqlx::Row;

use super::base::KnowledgeBase;
use super::types::{signed, small};
use crate::connection::ask;
use crate::conversation::clean;
use crate::{Fault, id};

pub const MAX_PART_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    pub filename: String,
    pub content_type: String,
    pub bytes: u64,
    /// Whether all parts are there.
    pub complete: bool,
}

impl KnowledgeBase {
    /// Begins an upload and returns its id. One that is not finished goes an hour after its last part.
    pub async fn begin_upload(&self, filename: &str, content_type: &str) -> Result<String, Fault> {
        let upload = id::new("up");
        let question = ask("SELECT slipway.begin_upload($1, $2, $3, $4)");
        self.run(question.bind(&*self.kb).bind(&upload).bind(clean(filename)).bind(clean(content_type))).await?;
        Ok(upload)
    }

    /// Parts count from 0 and may come in any order, and again.
    pub async fn put_part(&self, upload: &str, ordinal: u32, data: &[u8]) -> Result<(), Fault> {
        if !(1..=MAX_PART_BYTES).contains(&data.len()) {
            return Err(Fault::Refused(format!("a part of an upload has 1 to {MAX_PART_BYTES} bytes")));
        }
        self.run(ask("SELECT slipway.put_part($1, $2, $3, $4)").bind(&*self.kb).bind(upload).bind(small(ordinal)).bind(data)).await
    }

    /// Closes an upload of this number of parts and bytes. It stays until it is removed, for a day at most.
    pub async fn finish_upload(&self, upload: &str, parts: u32, bytes: u64) -> Result<(), Fault> {
        let question = ask("SELECT slipway.finish_upload($1, $2, $3, $4)");
        self.run(question.bind(&*self.kb).bind(upload).bind(small(parts)).bind(signed(bytes))).await
    }

    pub async fn upload(&self, upload: &str) -> Result<Option<Upload>, Fault> {
        let rows = self.rows(ask("SELECT * FROM slipway.find_upload($1, $2)").bind(&*self.kb).bind(upload)).await?;
        let read = |row: &sqlx::postgres::PgRow| {
            Ok(Upload {
                filename: row.try_get("filename")?,
                content_type: row.try_get("content_type")?,
                bytes: row.try_get::<i64, _>("bytes")?.unsigned_abs(),
                complete: row.try_get("complete")?,
            })
        };
        rows.first().map(read).transpose()
    }

    /// A part of an upload that is complete; none behind the last.
    pub async fn read_part(&self, upload: &str, ordinal: u32) -> Result<Option<Vec<u8>>, Fault> {
        let question = ask("SELECT slipway.read_part($1, $2, $3) AS data").bind(&*self.kb).bind(upload).bind(small(ordinal));
        let rows = self.rows(question).await?;
        Ok(rows.first().map_or(Ok(None), |row| row.try_get("data"))?)
    }

    /// Removes an upload, once it has been ingested or is not wanted. Whether it was there.
    pub async fn remove_upload(&self, upload: &str) -> Result<bool, Fault> {
        let rows = self.rows(ask("SELECT slipway.remove_upload($1, $2) AS removed").bind(&*self.kb).bind(upload)).await?;
        Ok(rows.first().map_or(Ok(false), |row| row.try_get("removed"))?)
    }
}
