//! Search: one function of the database, which fuses the nearest vectors and the best matches in full text.

use std::fmt::Write;

use pgvector::HalfVector;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::base::{KnowledgeBase, half};
use crate::Fault;
use crate::connection::in_time;
use crate::conversation::clean;

pub const MAX_RESULTS: u32 = 100;
/// A longer query is cut: each of its words is compared with many chunks.
const MAX_QUERY_CHARS: usize = 2_000;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchQuery {
    /// Empty: by the vector alone.
    pub text: String,
    /// Without one, or while the base has no vectors, in full text alone.
    pub vector: Option<Vec<f32>>,
    /// 1 to [`MAX_RESULTS`].
    pub top_k: u32,
    /// Hits with a lower [`Hit::score`] are left out.
    pub min_score: Option<f64>,
    pub filter: Filter,
}

/// Empty lists filter nothing; what is given has all to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub sources: Vec<String>,
    pub filenames: Vec<String>,
    pub document_ids: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    pub chunk_id: String,
    pub ordinal: u32,
    pub page: Option<u32>,
    /// The headings above the chunk, outermost first.
    pub section: Vec<String>,
    pub content: String,
    pub tokens: u32,
    pub document_id: String,
    pub source: String,
    pub key: String,
    pub uri: String,
    pub filename: String,
    /// 0 to 1: of both halves that were asked, how far up it is; 1 is the first of each.
    pub score: f64,
    /// With the query's vector, where both have one.
    pub cosine: Option<f64>,
    /// From 1, among the nearest by vector.
    pub vector_rank: Option<u32>,
    /// From 1, among the best in full text.
    pub text_rank: Option<u32>,
}

impl KnowledgeBase {
    /// The best first; with a vector never fewer than `top_k` while there are as many that the filter lets through.
    pub async fn search(&self, query: &SearchQuery) -> Result<Vec<Hit>, Fault> {
        let vector = query.vector.as_deref().map(half).transpose()?;
        let text: String = clean(&query.text).chars().take(MAX_QUERY_CHARS).collect();
        let given = |list: &[String]| (!list.is_empty()).then(|| list.iter().map(|word| clean(word)).collect::<Vec<_>>());
        let filter = &query.filter;
        let (sources, filenames, documents) = (given(&filter.sources), given(&filter.filenames), given(&filter.document_ids));
        // In one round trip: four would take longer than the search itself.
        let statement = format!(
            "SELECT * FROM slipway.search({}, {}, {}, {}, {}, {}, {}, {})",
            quoted(&self.kb),
            quoted(&text),
            vector.map_or_else(|| "NULL".to_owned(), |vector| format!("'{}'::halfvec", written(&vector))),
            query.top_k.clamp(1, MAX_RESULTS),
            query.min_score.filter(|score| score.is_finite()).map_or_else(|| "NULL".to_owned(), |score| format!("{score:?}::float8")),
            list(sources.as_deref()),
            list(filenames.as_deref()),
            list(documents.as_deref()),
        );
        in_time(async {
            self.door
                .script(&statement, Vec::new, |hits: &mut Vec<Hit>, row| {
                    hits.push(hit(&row)?);
                    Ok(())
                })
                .await
        })
        .await
    }
}

/// A caller's words as a literal in which nothing can be mistaken for SQL: hexadecimal digits.
fn quoted(text: &str) -> String {
    format!("convert_from(decode('{}', 'hex'), 'UTF8')", hex::encode(text))
}

fn list(words: Option<&[String]>) -> String {
    words.map_or_else(
        || "NULL".to_owned(),
        |words| format!("ARRAY[{}]::text[]", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", ")),
    )
}

/// As PostgreSQL reads a vector.
fn written(vector: &HalfVector) -> String {
    let mut text = String::with_capacity(vector.as_slice().len() * 12);
    for value in vector.as_slice() {
        text.push(if text.is_empty() { '[' } else { ',' });
        // A string takes whatever is written to it.
        let _ = write!(text, "{}", value.to_f32());
    }
    text + "]"
}

/// The headings of a section, as they are kept: one a line.
pub(super) fn headings(section: &str) -> Vec<String> {
    section.split('\n').filter(|heading| !heading.is_empty()).map(str::to_owned).collect()
}

fn hit(row: &PgRow) -> Result<Hit, Fault> {
    let section: String = row.try_get("section")?;
    let number = |name| Ok::<_, Fault>(row.try_get::<Option<i32>, _>(name)?.map(i32::unsigned_abs));
    Ok(Hit {
        chunk_id: row.try_get("chunk")?,
        ordinal: number("ordinal")?.unwrap_or_default(),
        page: number("page")?,
        section: headings(&section),
        content: row.try_get("content")?,
        tokens: number("tokens")?.unwrap_or_default(),
        document_id: row.try_get("document")?,
        source: row.try_get("source")?,
        key: row.try_get("key")?,
        uri: row.try_get("uri")?,
        filename: row.try_get("filename")?,
        score: row.try_get("score")?,
        cosine: row.try_get("cosine")?,
        vector_rank: number("vector_rank")?,
        text_rank: number("text_rank")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_callers_words_is_sql() {
        for text in ["'; drop table x; --", "\\'", "$$", "ü", ""] {
            let literal = quoted(text);
            let digits = literal.strip_prefix("convert_from(decode('").and_then(|rest| rest.strip_suffix("', 'hex'), 'UTF8')")).unwrap();
            assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{literal}");
        }
        assert_eq!(written(&HalfVector::from_f32_slice(&[0.5, -1.0, 0.000_061])), "[0.5,-1,0.00006097555]");
    }
}
