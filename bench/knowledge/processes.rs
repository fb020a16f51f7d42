//! The worker's processes: an ingestion of a file that was uploaded, with the memory of all that it starts; and `serve`, searched
//! straight and through REST.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use serde_json::{Value, json};
use slipway_api::contract::{EmbeddingConfig, INGESTION, IngestionConfig, KNOWLEDGE_URL, UPLOADS};
use slipway_api::{KnowledgeBase, Team, ids};
use slipway_database::knowledge::MAX_PART_BYTES;

use super::tenant::{BASE, Tenant};
use super::{MODEL, Manuals};
use crate::cluster::{Cluster, OPERATED, TEAM};
use crate::numbers::percentile;
use crate::rest::Rest;
use crate::start::{Process, command, cores};
use crate::{http, runtime, table};

const SEARCHES: usize = 200;
const QUESTIONS: [&str; 4] = [
    "How is a package uploaded?",
    "Which files belong in /usr/share?",
    "What does a maintainer do about a bug?",
    "How are services started?",
];
/// Of a file whose size is to show in nothing.
const TABLE_BYTES: usize = 24 << 20;
const HEAD: &str = "nr,name,city\n";
/// One row over and over gives few texts and vectors: what is measured is all but the model.
const ROW: &str = "7,The same row,Lisbon\n";

pub(super) async fn measure() -> anyhow::Result<()> {
    let tenant = Tenant::prepare(&ids::team(TEAM)).await?;
    let manuals = Manuals::unpack()?;
    table::part("Ingestion: an uploaded file, by a process of its own, the built-in model");
    for file in &manuals.files[2..] {
        ingest(&tenant, file, &fs::read(file)?).await?;
    }
    let rows = format!("{HEAD}{}", ROW.repeat(TABLE_BYTES / ROW.len()));
    ingest(&tenant, Path::new("table.csv"), rows.as_bytes()).await?;
    searches(&tenant)
}

/// Uploads a file and has it ingested.
async fn ingest(tenant: &Tenant, file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let base = tenant.base()?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let upload = base.begin_upload(&name, "application/octet-stream").await?;
    for (ordinal, part) in (0..).zip(bytes.chunks(MAX_PART_BYTES)) {
        base.put_part(&upload, ordinal, part).await?;
    }
    base.finish_upload(&upload, u32::try_from(bytes.len().div_ceil(MAX_PART_BYTES))?, bytes.len() as u64).await?;
    let config = IngestionConfig {
        uid: upload.clone(),
        name: "bench".to_owned(),
        kb_id: BASE.to_owned(),
        embedding: EmbeddingConfig { model: MODEL.to_owned(), chunk_size: 256, chunk_overlap: 25 },
        generation: 1,
        source_name: UPLOADS.to_owned(),
        former_source_name: None,
        source: None,
        upload: Some(upload),
        confirm_removal: false,
        scheduled: false,
    };
    let before = base.counts().await?.chunks;
    let mut command = command("slipway-worker")?;
    environment(&mut command, tenant).arg("ingest").env(INGESTION, serde_json::to_string(&config)?);
    let begun = Instant::now();
    let mut process = Process::spawn(&mut command)?;
    let (mut own, mut all): (f64, f64) = (0.0, 0.0);
    while process.running()? {
        // Between two looks they may grow a little further.
        own = own.max(process.most_resident().unwrap_or_default());
        all = all.max(process.resident_of_all());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let chunks = base.counts().await?.chunks - before;
    if chunks == 0 {
        bail!("{name} was not ingested");
    }
    table::alone(&format!("{name}: most memory (resident)"), &table::mebibytes(all), "<= 256 MiB");
    let (took, own) = (table::seconds(begun.elapsed().as_secs_f64()), table::mebibytes(own));
    table::remark(&format!(
        "{} KiB, {chunks} chunks, in {took}; of the memory {own} are its own, the rest that of its readers",
        bytes.len() >> 10
    ));
    Ok(())
}

fn environment<'a>(command: &'a mut std::process::Command, tenant: &Tenant) -> &'a mut std::process::Command {
    let own = [(KNOWLEDGE_URL, tenant.url.as_str()), ("RUNTIME_TEAM", &tenant.team), ("RUNTIME_LOG_LEVEL", "error")];
    command.envs(own).env("RUNTIME_EMBEDDING_DIR", slipway_peers::minilm()).stderr(Stdio::null())
}

/// `serve`, with its port.
fn serve(tenant: &Tenant) -> anyhow::Result<(Process, u16)> {
    let port = http::free_port()?;
    let mut command = command("slipway-worker")?;
    let process = Process::spawn(environment(&mut command, tenant).arg("serve").env("RUNTIME_PORT", port.to_string()))?;
    runtime::wait(port, Instant::now())?;
    Ok((process, port))
}

fn searches(tenant: &Tenant) -> anyhow::Result<()> {
    let (worker, port) = serve(tenant)?;
    table::part(&format!("Worker: searches in words, one after the other, {SEARCHES} of them"));
    table::alone("memory before the first (resident)", &table::mebibytes(worker.resident()?), "");
    let all = ask(port, &format!("/knowledge-bases/{BASE}/search"), "")?;
    for percent in [50, 99] {
        table::alone(&format!("p{percent}"), &table::milliseconds(percentile(&all, percent)), "");
    }
    table::alone("memory after them (resident)", &table::mebibytes(worker.resident()?), "");
    Ok(())
}

/// Seconds of each search. The first is left out: the model is read then.
fn ask(port: u16, path: &str, header: &str) -> anyhow::Result<Vec<f64>> {
    let mut all = Vec::new();
    for question in QUESTIONS.iter().cycle().take(SEARCHES + 1) {
        let body = json!({"query": question, "top_k": 5}).to_string();
        let begun = Instant::now();
        let header = if header.is_empty() { "accept: application/json" } else { header };
        let answer: Value = serde_json::from_str(&http::call(port, "POST", path, header, Some(&body), 200)?)?;
        all.push(begun.elapsed().as_secs_f64());
        let results = answer.pointer("/data/results").or_else(|| answer.get("results"));
        if results.and_then(Value::as_array).is_none_or(Vec::is_empty) {
            bail!("nothing was found: {answer}");
        }
    }
    all.remove(0);
    Ok(all)
}

/// A search through REST beside the same one of the worker.
pub(crate) async fn through_rest(cluster: &Cluster) -> anyhow::Result<()> {
    let (core, _) = cores()?;
    let tenant = Tenant::prepare(&ids::team(TEAM)).await?;
    let manuals = Manuals::unpack()?;
    table::part(&format!("REST: a search beside one of the worker itself, {SEARCHES} one after the other"));
    ingest(&tenant, &manuals.files[3], &fs::read(&manuals.files[3])?).await?;
    let team = Api::<Team>::all(cluster.client()).get(TEAM).await?;
    let uid = team.metadata.uid.context("the Team has a UID")?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": slipway_api::worker::NAME, "ownerReferences": [
            {"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "name": TEAM, "uid": uid, "controller": true}]},
        "spec": {"selector": {"app.kubernetes.io/name": slipway_api::worker::NAME}, "ports": [{"port": slipway_api::worker::PORT}]},
    });
    cluster.apply_one(&Api::<Service>::namespaced(cluster.client(), OPERATED), slipway_api::worker::NAME, &service).await?;
    let name = ids::knowledge_base_name(BASE);
    let base = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "KnowledgeBase", "metadata": {"name": name}, "spec": {"name": "Manuals"},
    });
    cluster.apply_one(&Api::<KnowledgeBase>::namespaced(cluster.client(), OPERATED), &name, &base).await?;
    let (_worker, port) = serve(&tenant)?;
    let rest = Rest::start(&core, port, None).await?;
    let (straight, through) = tokio::task::block_in_place(|| {
        anyhow::Ok((
            ask(port, &format!("/knowledge-bases/{BASE}/search"), "")?,
            ask(rest.port, &format!("/api/v1/knowledge-bases/{BASE}/search"), "")?,
        ))
    })?;
    for percent in [50, 99] {
        let (measured, floor) = (percentile(&through, percent), percentile(&straight, percent));
        table::beside(
            &format!("p{percent}"),
            (&table::milliseconds(measured), measured),
            (&table::milliseconds(floor), floor),
            "<= 1 ms more",
        );
    }
    table::remark("no authentication, no limits; each search on a connection of its own; most of it is the embedding of the question");
    Ok(())
}
