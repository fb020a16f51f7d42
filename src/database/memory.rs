//! Memories: stored once each, listed, counted, deleted.

use sha2::{Digest, Sha256};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row};

use crate::connection::{Work, ask, in_time};
use crate::conversation::{clean, page, time};
use crate::store::Schema;
use crate::types::{Category, Embedding, MemoryEntry, NewMemory, Page, Remembered};
use crate::{Fault, Store, id};

/// Two memories with a cosine of this or more have the same meaning.
const SAME_MEANING: f64 = 0.95;
const MAX_CONTENT_BYTES: usize = 16 * 1024;
const MAX_DIMENSIONS: usize = 2_000;

pub(crate) const ENTRY: &str = "id, content, category, source, (extract(epoch FROM created_at) * 1000000)::bigint AS created";

impl Store {
    /// The newest first.
    pub async fn memories(&self, limit: u32, cursor: Option<&str>) -> Result<Page<MemoryEntry>, Fault> {
        let limit = page(limit)?;
        if let Some(cursor) = cursor {
            id::check("cursor", cursor)?;
        }
        let query = sqlx::AssertSqlSafe(format!(
            "SELECT {ENTRY} FROM slipway.memories WHERE team = $1 AND agent_id = $2 AND ($3::text IS NULL OR id < $3) ORDER BY id DESC LIMIT $4"
        ));
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let rows = ask(query).bind(&self.team).bind(&self.agent).bind(cursor).bind(limit + 1).fetch_all(&mut *work).await?;
            work.commit().await?;
            let mut items = rows.iter().map(|row| entry(row, None)).collect::<Result<Vec<_>, _>>()?;
            let more = items.len() > usize::try_from(limit).unwrap_or(usize::MAX);
            if more {
                items.pop();
            }
            // Ids are in the order of time.
            let next_cursor = items.last().filter(|_| more).map(|last| last.id.clone());
            Ok(Page { items, next_cursor })
        })
        .await
    }

    pub async fn memory_count(&self) -> Result<i64, Fault> {
        const COUNT: &str = "SELECT count(*) AS count FROM slipway.memories WHERE team = $1 AND agent_id = $2";
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let row = ask(COUNT).bind(&self.team).bind(&self.agent).fetch_one(&mut *work).await?;
            work.commit().await?;
            Ok(row.try_get("count")?)
        })
        .await
    }

    /// Whether there was one.
    pub async fn forget(&self, memory_id: &str) -> Result<bool, Fault> {
        const FORGET: &str = "DELETE FROM slipway.memories WHERE team = $1 AND agent_id = $2 AND id = $3";
        id::check("memory id", memory_id)?;
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let forgotten = ask(FORGET).bind(&self.team).bind(&self.agent).bind(memory_id).execute(&mut *work).await?;
            work.commit().await?;
            Ok(forgotten.rows_affected() > 0)
        })
        .await
    }

    /// Keeps a memory. One that is known already, word for word or nearly so by its vector, takes on the new words,
    /// category and source, and stays the entry that it was.
    pub async fn remember(&self, memory: NewMemory) -> Result<Remembered, Fault> {
        let memory = NewMemory { content: clean(memory.content.trim()), source: clean(memory.source.trim()), ..memory };
        check(&memory)?;
        in_time(async {
            let (mut work, schema) = self.begin().await?;
            let known = match self.known(&mut work, &memory.content).await? {
                Some(id) => Some(id),
                None => self.alike(&mut work, &schema, memory.embedding.as_ref()).await?,
            };
            let existed = known.is_some();
            let entry = self.write(&mut work, known.unwrap_or_else(|| id::new("mem")), &memory, existed).await?;
            let (entry, existed) = entry;
            if let (Some(embedding), Some(vectors)) = (&memory.embedding, &schema.vectors) {
                self.write_vector(&mut work, vectors, &entry.id, embedding).await?;
            }
            work.commit().await?;
            Ok(Remembered { entry, existed })
        })
        .await
    }

    async fn known(&self, work: &mut Work, content: &str) -> Result<Option<String>, Fault> {
        const KNOWN: &str = "SELECT id FROM slipway.memories WHERE team = $1 AND agent_id = $2 AND digest = $3";
        let row = ask(KNOWN).bind(&self.team).bind(&self.agent).bind(digest(content)).fetch_optional(&mut **work).await?;
        Ok(row.map(|row| row.try_get("id")).transpose()?)
    }

    async fn alike(&self, work: &mut Work, schema: &Schema, embedding: Option<&Embedding>) -> Result<Option<String>, Fault> {
        let (Some(embedding), Some(vectors)) = (embedding, &schema.vectors) else { return Ok(None) };
        let nearest = self.nearest(work, vectors, embedding, 1).await?;
        Ok(nearest.into_iter().find(|(_, cosine)| *cosine >= SAME_MEANING).map(|(entry, _)| entry.id))
    }

    /// Returns also whether the memory existed: two processes may be told the same at the same moment.
    async fn write(&self, work: &mut PgConnection, id: String, memory: &NewMemory, known: bool) -> Result<(MemoryEntry, bool), Fault> {
        let update = format!(
            "UPDATE slipway.memories SET content = $4, category = $5, source = $6, digest = $7, updated_at = clock_timestamp()
             WHERE team = $1 AND agent_id = $2 AND id = $3 RETURNING {ENTRY}"
        );
        let insert = format!(
            "INSERT INTO slipway.memories (team, agent_id, id, content, category, source, digest, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp(), clock_timestamp())
             ON CONFLICT (team, agent_id, digest) DO UPDATE
             SET content = excluded.content, category = excluded.category, source = excluded.source, updated_at = excluded.updated_at
             RETURNING {ENTRY}"
        );
        if known {
            let row = self.bound(sqlx::AssertSqlSafe(update), &id, memory).fetch_optional(&mut *work).await?;
            if let Some(row) = row {
                return Ok((entry(&row, None)?, true));
            }
            // Forgotten since it was found: then it is new.
        }
        let row = self.bound(sqlx::AssertSqlSafe(insert), &id, memory).fetch_one(work).await?;
        let entry = entry(&row, None)?;
        let existed = entry.id != id;
        Ok((entry, existed))
    }

    fn bound<'q>(&'q self, statement: sqlx::AssertSqlSafe<String>, id: &'q str, memory: &'q NewMemory) -> Query<'q, Postgres, PgArguments> {
        ask(statement)
            .bind(&self.team)
            .bind(&self.agent)
            .bind(id)
            .bind(&memory.content)
            .bind(category_name(memory.category))
            .bind(&memory.source)
            .bind(digest(&memory.content))
    }
}

fn check(memory: &NewMemory) -> Result<(), Fault> {
    if memory.content.is_empty() || memory.content.len() > MAX_CONTENT_BYTES || memory.source.len() > MAX_CONTENT_BYTES {
        return Err(Fault::Refused("a memory has 1 byte to 16 KiB of text, and a source of at most 16 KiB".to_owned()));
    }
    memory.embedding.as_ref().map_or(Ok(()), check_embedding)
}

/// What pgvector and a cosine can work with.
pub(crate) fn check_embedding(embedding: &Embedding) -> Result<(), Fault> {
    let vector = &embedding.vector;
    let fits = (1..=MAX_DIMENSIONS).contains(&vector.len());
    let length: f64 = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    if fits && (1e-12..1e30).contains(&length) && !embedding.model.is_empty() && !embedding.model.contains('\0') {
        return Ok(());
    }
    Err(Fault::Refused(format!("an embedding names its model and has 1 to {MAX_DIMENSIONS} finite numbers that are not all 0")))
}

fn digest(content: &str) -> Vec<u8> {
    let mut hash = Sha256::new();
    for word in spelling(content).split_whitespace() {
        hash.update(word);
        hash.update(b" ");
    }
    hash.finalize().to_vec()
}

/// What two memories share that say the same in the same words: lower case, one space between words, no full stop.
pub fn spelling(content: &str) -> String {
    let words = content.to_lowercase();
    let words = words.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '.' | '!' | '…'));
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn entry(row: &PgRow, relevance: Option<f64>) -> Result<MemoryEntry, Fault> {
    Ok(MemoryEntry {
        id: row.try_get("id")?,
        content: row.try_get("content")?,
        category: category(row.try_get("category")?)?,
        source: row.try_get("source")?,
        relevance,
        created_at: time(row.try_get("created")?)?,
    })
}

fn category(name: &str) -> Result<Category, Fault> {
    match name {
        "fact" => Ok(Category::Fact),
        "preference" => Ok(Category::Preference),
        "instruction" => Ok(Category::Instruction),
        "observation" => Ok(Category::Observation),
        _ => Err(Fault::Broken("a memory has a category from the future".to_owned())),
    }
}

fn category_name(category: Category) -> &'static str {
    match category {
        Category::Fact => "fact",
        Category::Preference => "preference",
        Category::Instruction => "instruction",
        Category::Observation => "observation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_space_and_a_full_stop_do_not_make_another_memory() {
        for (one, other, same) in [
            ("Likes  green tea.", "likes green\ntea", true),
            ("Zürich!", "zürich", true),
            ("likes tea", "likes coffee", false),
            ("a b", "ab", false),
            ("Is it so?", "Is it so", false),
        ] {
            assert_eq!(digest(one) == digest(other), same, "{one} | {other}");
        }
    }

    #[test]
    fn a_vector_that_no_cosine_is_defined_for_is_refused() {
        let check = |vector: Vec<f32>| check_embedding(&Embedding { model: "m".into(), vector });
        check(vec![0.1; 384]).unwrap();
        for vector in [vec![], vec![0.0; 3], vec![f32::NAN], vec![f32::INFINITY], vec![1.0; 2_001]] {
            assert!(check(vector.clone()).is_err(), "{} {:?}", vector.len(), vector.first());
        }
    }
}
