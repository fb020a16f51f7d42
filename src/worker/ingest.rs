//! `slipway-worker ingest`: reads one source into one knowledge base, as a Job, and ends with 0 when all of it has been seen.
//! `slipway-worker extract` is the subprocess that reads one document.
//!
//! Killed at any moment, it is begun anew and goes on: documents that are there in their present version need no work, and
//! texts that were embedded before have their vectors.

mod document;
mod heartbeat;
mod run;
mod upload;
mod vectors;

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use slipway_api::contract::{self, IngestionConfig};
use slipway_database::knowledge::{Begun, Ingestion, KnowledgeBase, KnowledgeOptions, ModelUse};
use slipway_egress::Allowed;
use slipway_knowledge::ChunkSize;
use slipway_knowledge::source::{self, Credentials, Source, SourceConfig, Surroundings};
use slipway_models::embedding::PassageEmbedder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::embedders::variable;
use crate::settings::{Database, Refusal, Settings};
use document::Reader;
pub(crate) use run::FinalFailure;
use run::{IngestRun, Order, Removes};
use upload::UploadedFile;

/// The ingestion and its heartbeat.
const CONNECTIONS: u32 = 2;
/// How long another ingestion of the same source is waited for. The Job tries again.
const MAX_WAIT: Duration = Duration::from_mins(10);
/// How often it is looked for whether that one has ended.
const WAIT_INTERVAL: Duration = Duration::from_secs(5);
/// How long the database is tried for the last word of a process that is ended from outside, of the pod's 30 s.
const MAX_WITHDRAWAL: Duration = Duration::from_secs(20);
const WITHDRAWAL_INTERVAL: Duration = Duration::from_secs(1);
const TERMINATED: &str = "ended from outside before all of the source was read";

pub(crate) async fn main(settings: Settings) -> anyhow::Result<()> {
    let config = config()?;
    let mut terminated = signal(SignalKind::terminate())?;
    let base = open_base(&settings, &config)?;
    let begun = tokio::select! {
        begun = begin(&base, &config) => begun?,
        _ = terminated.recv() => bail!(TERMINATED),
    };
    let Some(ingestion) = begun else {
        info!("this ingestion has succeeded before");
        return Ok(());
    };
    tokio::select! {
        ended = ingest(&ingestion, &config) => ended,
        // What is written so far stays, and the next attempt goes on.
        _ = terminated.recv() => {
            withdraw(&ingestion).await;
            bail!(TERMINATED)
        }
    }
}

/// Reads the document that the arguments name, within limits that this process sets itself.
pub(crate) fn extract(arguments: &[OsString]) -> ExitCode {
    slipway_knowledge::subprocess::child_main(arguments.iter().cloned())
}

fn config() -> Result<IngestionConfig, Refusal> {
    let refused = |why: String| Refusal(vec![format!("{} {why}", contract::INGESTION)]);
    let text = variable(contract::INGESTION).ok_or_else(|| refused("is missing; it says what is to be ingested".to_owned()))?;
    serde_json::from_str(&text).map_err(|error| refused(format!("cannot be read: {error}")))
}

async fn ingest(ingestion: &Ingestion, config: &IngestionConfig) -> anyhow::Result<()> {
    let mut run = IngestRun::new(ingestion.clone());
    let outcome = match prepare(ingestion, config).await {
        Ok((source, reader)) => run.drive(&*source, &reader, &order(config, &reader)).await,
        Err(error) => Err(error),
    };
    if outcome.is_ok()
        && let Some(upload) = &config.upload
    {
        // Its documents are there. What is left of it goes by itself if this fails.
        if let Err(fault) = ingestion.base().remove_upload(upload).await {
            warn!(%fault, "the uploaded file was not removed");
        }
    }
    run.end(outcome).await
}

/// Says that no document is what ended this process. The database may be busy with what was cut off.
async fn withdraw(ingestion: &Ingestion) {
    let withdrawn = timeout(MAX_WITHDRAWAL, async {
        loop {
            match ingestion.withdraw_attempts().await {
                Err(fault) if fault.is_passing() => sleep(WITHDRAWAL_INTERVAL).await,
                outcome => return outcome,
            }
        }
    });
    if !matches!(withdrawn.await, Ok(Ok(()))) {
        warn!("the document that was being read counts as one that may have ended this process");
    }
}

fn order(config: &IngestionConfig, reader: &Reader) -> Order {
    let removes = match (&config.upload, config.confirm_removal) {
        (Some(_), _) => Removes::Nothing,
        (None, false) => Removes::Gone,
        (None, true) => Removes::Confirmed,
    };
    let source = config.source.as_ref().map(ToString::to_string).unwrap_or_default();
    Order {
        removes,
        is_scheduled: config.scheduled,
        configuration: reader.configuration(&source),
        former_source: config.former_source_name.clone(),
    }
}

/// The source, and what reads its documents. Chooses the model of the base.
async fn prepare(ingestion: &Ingestion, config: &IngestionConfig) -> anyhow::Result<(Box<dyn Source>, Reader)> {
    let model = PassageEmbedder::open(&config.embedding.model, &variable)?;
    let (id, dimensions) = (model.embedder().id().to_owned(), u32::try_from(model.embedder().dimensions())?);
    match ingestion.use_model(&id, dimensions, config.generation).await? {
        ModelUse::Kept => {}
        ModelUse::Replaced { former } => {
            let words = "another embedding model: all documents are embedded anew, from their sources or from their chunks";
            info!(before = former, now = id, "{words}");
        }
        ModelUse::Outdated { present } => return Err(FinalFailure::outdated(&id, &present).into()),
    }
    let length = |tokens: i32| u32::try_from(tokens).map_err(|_| anyhow!("a chunk cannot have {tokens} tokens"));
    let size = ChunkSize { tokens: length(config.embedding.chunk_size)?, overlap: length(config.embedding.chunk_overlap)? };
    let program = env::current_exe().context("this program cannot be found")?.into_os_string();
    let reader = Reader::new(model, size, vec![program, "extract".into()], config.scheduled);
    Ok((open_source(ingestion.base(), config)?, reader))
}

fn open_source(base: &KnowledgeBase, config: &IngestionConfig) -> anyhow::Result<Box<dyn Source>> {
    if let Some(upload) = &config.upload {
        return Ok(Box::new(UploadedFile::new(base.clone(), upload)));
    }
    let source = config.source.clone().ok_or_else(|| anyhow!("{} names neither a source nor an upload", contract::INGESTION))?;
    let source: SourceConfig = serde_json::from_value(source).with_context(|| format!("the source in {}", contract::INGESTION))?;
    let there = |folder: &str| Some(Path::new(folder).to_owned()).filter(|folder| folder.is_dir());
    let surroundings = Surroundings {
        credentials: there(contract::CREDENTIALS).map(Credentials::Folder),
        volume: there(contract::LOCAL_FOLDER),
        allow: allowed()?,
        proxy: None,
    };
    Ok(source::open(&source, &surroundings)?)
}

/// The operator's exceptions from the rule that only public addresses may be reached, as tools have them.
pub(crate) fn allowed() -> anyhow::Result<Vec<Allowed>> {
    let list = variable(contract::EGRESS_ALLOW).unwrap_or_default();
    Allowed::entries(&list).map(|entry| entry.map_err(|error| anyhow!("{}: {error}", contract::EGRESS_ALLOW))).collect()
}

fn open_base(settings: &Settings, config: &IngestionConfig) -> anyhow::Result<KnowledgeBase> {
    let what = "the URL of the database of knowledge bases, postgresql://user:password@host:5432/database";
    let missing = || Refusal(vec![format!("{} is missing; it is {what}", contract::KNOWLEDGE_URL)]);
    let Database { url, sslmode } = settings.database.clone().ok_or_else(missing)?;
    let options = KnowledgeOptions {
        url,
        password: None,
        sslmode,
        team: settings.team.clone(),
        kb_id: config.kb_id.clone(),
        connections: CONNECTIONS,
    };
    Ok(KnowledgeBase::open(&options)?)
}

/// Waits until no other process ingests the source. None if this ingestion has succeeded before.
async fn begin(base: &KnowledgeBase, config: &IngestionConfig) -> anyhow::Result<Option<Ingestion>> {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        match base.begin_ingestion(&config.uid, &config.source_name).await {
            Ok(Begun::Ingestion(ingestion)) => return Ok(Some(ingestion)),
            Ok(Begun::Succeeded) => return Ok(None),
            Ok(Begun::Held { by, .. }) if Instant::now() >= deadline => bail!("the source is being ingested by {by}"),
            Ok(Begun::Held { by, .. }) => info!(by, "waits for another ingestion of the source"),
            Err(fault) if fault.is_passing() && Instant::now() < deadline => warn!(%fault, "the database cannot be reached"),
            Err(fault) => return Err(fault.into()),
        }
        sleep(WAIT_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slipway_api::source::Source;

    use super::*;

    #[test]
    fn every_source_of_the_kind_is_one_that_can_be_opened() {
        for source in [
            json!({"local": {"path": "handbook"}}),
            json!({"s3": {"bucket": "docs", "prefix": "a/", "region": "eu-central-1", "endpoint": "https://s3.example.com"}}),
            json!({"googleDrive": {"folderId": "0AB"}}),
            json!({"confluence": {"baseUrl": "https://a.example.com/wiki", "spaceKey": "ENG"}}),
            json!({"jira": {"baseUrl": "https://a.example.com", "projectKey": "ENG"}}),
            json!({"jira": {"baseUrl": "https://a.example.com", "jql": "project = ENG"}}),
            json!({"databricks": {"host": "https://a.example.com", "path": "/Volumes/a/b/c"}}),
            json!({"databricks": {"host": "https://a.example.com", "path": "a.b.c", "warehouseId": "7"}}),
        ] {
            let mut source = source;
            if source.get("local").is_none() {
                source["credentialsSecret"] = json!("login");
            }
            let kind: Source = serde_json::from_value(source.clone()).unwrap();
            let config: SourceConfig = serde_json::from_value(kind.config().unwrap()).unwrap_or_else(|error| panic!("{source}: {error}"));
            config.validate().unwrap_or_else(|error| panic!("{source}: {error}"));
        }
    }
}
