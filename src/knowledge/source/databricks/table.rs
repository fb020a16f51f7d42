//! A table as CSV: a statement over a warehouse, whose result lies in pieces behind links of its own. The links are signed; the
//! token is not sent along.

use std::fs::File;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::{Server, judged};
use crate::source::config::DatabricksConfig;
use crate::source::http::{Refusal, SourceCall};
use crate::source::{Fetched, Item, MAX_DOCUMENT_BYTES, SourceError, SourcePage};

const POLL_INTERVAL: Duration = Duration::from_secs(2);
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(10);
const MAX_PIECES: usize = 10_000;

pub(super) struct Table {
    parts: Vec<String>,
    warehouse: String,
}

#[derive(Deserialize)]
struct Statement {
    #[serde(rename = "statement_id")]
    id: String,
    status: Status,
    result: Option<Piece>,
}

#[derive(Deserialize)]
struct Status {
    state: String,
    error: Option<StatementError>,
}

#[derive(Deserialize)]
struct StatementError {
    #[serde(default)]
    error_code: Option<String>,
}

#[derive(Default, Deserialize)]
struct Piece {
    external_links: Option<Vec<Link>>,
}

#[derive(Deserialize)]
struct Link {
    external_link: String,
    next_chunk_index: Option<u64>,
}

impl Table {
    pub(super) fn of(config: &DatabricksConfig) -> Result<Self, SourceError> {
        let parts: Vec<String> = config.path.split('.').map(str::to_owned).collect();
        if parts.len() != 3 || parts.iter().any(|part| part.is_empty() || part.contains(['/', '`'])) {
            return Err(SourceError::field("path", "has to be a volume's folder, as in /Volumes/a/b/c, or a table, as in a.b.c"));
        }
        let warehouse = config.warehouse_id.clone();
        let warehouse =
            warehouse.ok_or_else(|| SourceError::field("warehouse_id", "has to name the SQL warehouse that reads the table"))?;
        Ok(Self { parts, warehouse })
    }

    fn quoted(&self) -> String {
        self.parts.iter().map(|part| format!("`{part}`")).collect::<Vec<_>>().join(".")
    }

    /// One document, if the table is there.
    pub(super) async fn list(&self, server: &Server) -> Result<SourcePage, SourceError> {
        self.run(server, &format!("SELECT * FROM {} LIMIT 0", self.quoted())).await?;
        let name = self.parts.join(".");
        let item = Item {
            uri: name.clone(),
            filename: format!("{name}.csv"),
            key: name,
            content_type: Some("text/csv".to_owned()),
            version: None,
            size: None,
        };
        Ok(SourcePage { items: vec![item], ..SourcePage::default() })
    }

    pub(super) async fn fetch(&self, server: &Server, file: &mut File) -> Result<Fetched, SourceError> {
        let statement = self.run(server, &format!("SELECT * FROM {}", self.quoted())).await?;
        let (mut piece, mut bytes) = (statement.result.unwrap_or_default(), 0);
        for _ in 0..MAX_PIECES {
            let Some(link) = piece.external_links.and_then(|links| links.into_iter().next()) else { break };
            let url = Url::parse(&link.external_link).map_err(|_| SourceError::broken("Databricks answers with a link that is no URL"))?;
            let judge = |refusal: &Refusal| match refusal.status.as_u16() {
                403 | 404 => SourceError::unavailable("the link to a part of the table has expired"),
                _ => refusal.other(""),
            };
            // The links live for minutes only; a part that cannot be had by then takes the whole statement again.
            bytes += server.http.download(&|| Ok(SourceCall::get(url.clone())), &judge, file).await?.bytes;
            let Some(next) = link.next_chunk_index else { break };
            let path = format!("api/2.0/sql/statements/{}/result/chunks/{next}", statement.id);
            piece = server.http.json(&|| Ok(server.dressed(SourceCall::get(server.url(&path)?))), &judged).await?;
        }
        Ok(Fetched { bytes, content_type: Some("text/csv".to_owned()) })
    }

    async fn run(&self, server: &Server, sql: &str) -> Result<Statement, SourceError> {
        let body = json!({
            "warehouse_id": self.warehouse, "statement": sql, "disposition": "EXTERNAL_LINKS", "format": "CSV",
            "wait_timeout": "30s", "on_wait_timeout": "CONTINUE", "byte_limit": MAX_DOCUMENT_BYTES + 1,
        })
        .to_string();
        let make = || Ok(server.dressed(SourceCall::post(server.url("api/2.0/sql/statements")?, "application/json", body.clone())));
        let judge = |refusal: &Refusal| match refusal.status.as_u16() {
            400 | 404 => SourceError::field("path", "is no table that the warehouse of warehouse_id can read"),
            _ => judged(refusal),
        };
        let mut statement: Statement = server.http.json(&make, &judge).await?;
        if statement.id.is_empty() || !statement.id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(SourceError::broken("Databricks answers with an id that is none"));
        }
        let path = format!("api/2.0/sql/statements/{}", statement.id);
        let began = Instant::now();
        while matches!(statement.status.state.as_str(), "PENDING" | "RUNNING") {
            if began.elapsed() > STATEMENT_TIMEOUT {
                let cancel = format!("{path}/cancel");
                let make = || Ok(server.dressed(SourceCall::post(server.url(&cancel)?, "application/json", String::new())));
                server.http.bytes(&make, &judged).await.ok();
                return Err(SourceError::unavailable(format!("the table is not read within {} s", STATEMENT_TIMEOUT.as_secs())));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            statement = server.http.json(&|| Ok(server.dressed(SourceCall::get(server.url(&path)?))), &judged).await?;
        }
        match statement.status.state.as_str() {
            "SUCCEEDED" => Ok(statement),
            "FAILED" => {
                let code = statement.status.error.and_then(|error| error.error_code).unwrap_or_default();
                let known = matches!(code.as_str(), "BAD_REQUEST" | "NOT_FOUND" | "INVALID_PARAMETER_VALUE");
                Err(if known {
                    SourceError::field("path", "is no table that can be read")
                } else {
                    SourceError::unavailable("the statement that reads the table failed")
                })
            }
            _ => Err(SourceError::unavailable("the statement that reads the table was ended")),
        }
    }
}
