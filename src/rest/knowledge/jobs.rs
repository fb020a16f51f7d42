//! Ingestions into a knowledge base: list, get and cancel. A job's id is the name of its Ingestion.

use std::borrow::Cow;

use kube::ResourceExt;
use kube::api::Api;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};
use slipway_api::ingestion::{IngestedDocuments, IngestionPhase};
use slipway_api::{Ingestion, condition, ids, names};
use slipway_http::{Error, StatusCode};

use super::source::{self, ONCE};
use super::{named, what};
use crate::answer::Data;
use crate::call::Call;
use crate::list_cache::{self, ListEntry};
use crate::page::{Page, page_of};
use crate::route::Parameter;
use crate::{cluster_error, gitops, write};

/// As every list takes them, and one more.
pub(crate) const LISTED: &[Parameter] = &[
    crate::page::PAGED[0],
    crate::page::PAGED[1],
    crate::page::PAGED[2],
    Parameter { name: "status", about: "Only those that are pending, running, completed, failed or cancelled.", kind: "string" },
];

/// An ingestion as a list shows it: without its errors.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeJobSummary")]
pub(crate) struct Summary {
    pub job_id: String,
    pub knowledge_base_id: String,
    pub status: Status,
    /// What it waits for, or why it did not come to its end.
    pub message: Option<String>,
    /// What is read once, if that is it.
    pub source: Option<KnowledgeJobSource>,
    /// A source of the knowledge base, by name, if that is it.
    pub source_name: Option<String>,
    /// The upload that is read, if that is it.
    pub upload: Option<String>,
    /// Whether documents are removed even though the source has next to nothing of what was indexed.
    pub confirm_removal: bool,
    pub documents: Documents,
    /// The pages that were read.
    pub pages: i64,
    /// The chunks that were written.
    pub chunks: i64,
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
    pub resource_version: Option<String>,
    pub created_at: String,
}

/// An ingestion, with the first documents that could not be read.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeJob")]
pub(crate) struct View {
    #[serde(flatten)]
    pub summary: Summary,
    /// At most 20.
    pub errors: Vec<DocumentError>,
}

/// The documents of an ingestion.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeJobDocuments")]
pub(crate) struct Documents {
    /// Documents that the source has, as far as it has been read.
    pub seen: i64,
    /// Documents that are new or differ from before.
    pub changed: i64,
    pub unchanged: i64,
    /// Documents that could not be read.
    pub failed: i64,
    /// Documents that the source has no more.
    pub removed: i64,
}

/// Why a document could not be read.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeJobError")]
pub(crate) struct DocumentError {
    pub document: String,
    pub message: String,
}

/// A source that is read once.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct KnowledgeJobSource(Map<String, Value>);

impl JsonSchema for KnowledgeJobSource {
    fn schema_name() -> Cow<'static, str> {
        "KnowledgeJobSource".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::try_from(source::form(&ONCE)).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "KnowledgeJobStatus")]
pub(crate) enum Status {
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
}

impl Status {
    const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Completed, Self::Failed, Self::Cancelled];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(super) fn of(job: &Ingestion) -> Self {
        match job.status.as_ref().and_then(|status| status.phase) {
            None | Some(IngestionPhase::Pending) => Self::Pending,
            Some(IngestionPhase::Running) => Self::Running,
            Some(IngestionPhase::Completed) => Self::Completed,
            Some(IngestionPhase::Failed) => Self::Failed,
            Some(IngestionPhase::Cancelled) => Self::Cancelled,
        }
    }
}

/// What lists select by: the knowledge base, by name, and the status.
#[derive(Debug)]
pub(crate) struct JobState {
    base: Box<str>,
    status: Status,
}

impl View {
    fn of(job: &Ingestion) -> Result<Self, Error> {
        let (spec, status) = (&job.spec, job.status.clone().unwrap_or_default());
        let ready = status.conditions.iter().find(|found| found.type_ == condition::READY);
        let shown = |source| {
            let source = serde_json::to_value(source).map_err(Error::internal)?;
            source::to_callers(&ONCE, source).map(KnowledgeJobSource)
        };
        let time = |time: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| time.map(|time| crate::agents::time(Some(time.0)));
        let IngestedDocuments { seen, changed, unchanged, failed, removed } = status.documents.unwrap_or_default();
        let summary = Summary {
            job_id: job.name_any(),
            knowledge_base_id: ids::knowledge_base(&ids::knowledge_base_name(&spec.knowledge_base)),
            status: Status::of(job),
            message: ready.filter(|ready| ready.status != "True").map(|ready| ready.message.clone()),
            source: spec.source.as_ref().map(shown).transpose()?,
            source_name: spec.source_name.clone(),
            upload: spec.upload.clone(),
            confirm_removal: spec.confirm_removal,
            documents: Documents { seen, changed, unchanged, failed, removed },
            pages: status.pages.unwrap_or_default(),
            chunks: status.chunks.unwrap_or_default(),
            started_at: time(status.started_at),
            finished_at: time(status.finished_at),
            resource_version: job.resource_version(),
            created_at: crate::agents::time(job.creation_timestamp().map(|time| time.0)),
        };
        let errors = status.errors.into_iter().map(|error| DocumentError { document: error.document, message: error.message });
        Ok(Self { summary, errors: errors.collect() })
    }
}

pub(crate) fn item(job: &Ingestion) -> Option<ListEntry<JobState>> {
    let mut summary = View::of(job).ok()?.summary;
    summary.message = list_cache::truncate(summary.message);
    Some(ListEntry {
        id: summary.job_id.clone(),
        version: 0,
        created: job.creation_timestamp().map_or(0, |time| time.0.as_second()),
        search: format!("{} {}", summary.job_id, summary.source_name.as_deref().unwrap_or_default()).to_lowercase().into(),
        json: serde_json::to_string(&summary).ok()?.into(),
        omitted: None,
        data: JobState { base: ids::knowledge_base_name(&job.spec.knowledge_base).into(), status: summary.status },
    })
}

pub(crate) async fn list(mut call: Call) -> Result<Page<Summary>, Error> {
    let status = match call.query.text("status") {
        None => None,
        Some(text) => Some(
            Status::ALL
                .into_iter()
                .find(|status| status.as_str() == text)
                .ok_or_else(|| Error::bad_request("`status` must be pending, running, completed, failed or cancelled"))?,
        ),
    };
    let (context, namespace) = (call.context.clone(), call.namespace());
    // Ingestions into a knowledge base that was deleted are shown while they are there.
    let base = named(&call)?;
    let belongs = |_: &str, job: &ListEntry<JobState>| *job.data.base == *base && status.is_none_or(|status| job.data.status == status);
    page_of(call, &context.caches.ingestions, Some(&namespace), belongs, |item| Ok(Cow::Borrowed(&*item.json))).await
}

pub(crate) async fn get(call: Call) -> Result<Data<View>, Error> {
    answer(&find(&call).await?)
}

/// Ends an ingestion that is pending or running.
pub(crate) async fn cancel(call: Call) -> Result<Data<View>, Error> {
    let job = find(&call).await?;
    let what = format!("job {}", job.name_any());
    let change = |job: &Ingestion| {
        gitops::refuse(&job.metadata, &what)?;
        match Status::of(job) {
            status @ (Status::Completed | Status::Failed) => {
                Err(Error::new(StatusCode::CONFLICT, format!("{what} is {} already", status.as_str())))
            }
            _ => Ok(json!({"spec": {"cancel": true}})),
        }
    };
    answer(&write::change(&call, &api(&call), &job.name_any(), &what, change).await?)
}

pub(super) fn api(call: &Call) -> Api<Ingestion> {
    Api::namespaced(call.client(), &call.namespace())
}

async fn find(call: &Call) -> Result<Ingestion, Error> {
    let (base, id) = (named(call)?, call.path.part("job_id"));
    let missing = || Error::not_found(format!("there is no job {id} of {}", what(&base)));
    if !names::is_name(id) {
        return Err(missing());
    }
    let found = api(call).get_opt(id).await.map_err(|error| cluster_error::from_kube(error, &format!("job {id}")))?;
    found.filter(|job| ids::knowledge_base_name(&job.spec.knowledge_base) == base).ok_or_else(missing)
}

fn answer(job: &Ingestion) -> Result<Data<View>, Error> {
    Ok(Data::at(View::of(job)?, job.resource_version()))
}
