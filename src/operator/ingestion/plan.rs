//! The next step of an ingestion, pure: from the Ingestion, what it names, its Job, and what its pod has written to the database.

use std::time::Duration;

use kube::ResourceExt;
use slipway_api::contract::{EmbeddingConfig, IngestionConfig, UPLOADS};
use slipway_api::ingestion::IngestionStatus;
use slipway_api::source::Source;
use slipway_api::{Ingestion, KnowledgeBase, ids, labels};
use slipway_cluster::Guarded;

use crate::caches::child::{JobOutcome, JobState};
use crate::caches::secret::SecretState;
use crate::fault::ConditionFault;
use crate::integrations::OpenedSource;
use crate::tenancy::knowledge::{IngestionProgress, Stage};

/// How long an ingestion waits for what it names.
pub(super) const ABSENT_TIMEOUT: Duration = Duration::from_mins(10);

/// Why an ingestion waits or has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub reason: &'static str,
    pub message: String,
}

impl Cause {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// What an ingestion names and has, as far as it is there.
pub(super) struct Seen<'a> {
    pub base: Option<&'a Guarded<KnowledgeBase>>,
    /// Whether the namespace is a team's.
    pub is_of_team: bool,
    pub has_database: bool,
    /// The team's volume.
    pub volume: Option<&'a str>,
    /// The source with what its integration gives, or why that is nothing. None of a source that names none.
    pub opened: Option<Result<&'a OpenedSource, &'a ConditionFault>>,
    /// The Secret of the source.
    pub secret: Option<&'a SecretState>,
    pub secrets_known: bool,
    pub job: Option<&'a JobState>,
    /// What the database says; or why it says nothing.
    pub progress: Result<Option<&'a IngestionProgress>, &'a str>,
    /// Another Ingestion that reads the same source into the same base.
    pub same_source: Option<&'a str>,
    /// How many of the team's ingestions have a Job, and how many may.
    pub running: usize,
    pub concurrency: usize,
}

/// What a pod is to be made for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Work {
    pub config: IngestionConfig,
    /// The Secret that is mounted.
    pub credentials: Option<String>,
    /// The PersistentVolumeClaim that is mounted.
    pub volume: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum IngestionStep {
    /// It waits; for so long at most, if it does not wait for ever.
    Wait(Cause, Option<Duration>),
    /// Its Job is to be made.
    Start(Box<Work>),
    /// Its Job is under way.
    Watch(Option<IngestionProgress>),
    Complete(IngestionProgress),
    /// What the pods themselves say is added to the cause, if the Job is what failed.
    Fail(Cause, Option<IngestionProgress>),
    /// Its Job is to go, as somebody ended it.
    Cancel(Option<IngestionProgress>),
}

/// Of an ingestion that has not ended.
pub(super) fn next(ingestion: &Ingestion, before: &IngestionStatus, seen: &Seen, model: &str) -> IngestionStep {
    let progress = seen.progress.ok().flatten();
    if ingestion.spec.cancel {
        return IngestionStep::Cancel(progress.cloned());
    }
    if let Some(progress) = progress.filter(|progress| progress.stage == Stage::Completed) {
        return IngestionStep::Complete(progress.clone());
    }
    let away = |why: &str| IngestionStep::Wait(Cause::new("DatabaseUnavailable", format!("how far it is cannot be asked: {why}")), None);
    let told = |cause: Cause| {
        let said = progress.and_then(|progress| Some(Cause::new(progress.reason(), progress.failure.clone()?)));
        IngestionStep::Fail(said.unwrap_or(cause), progress.cloned())
    };
    let Some(job) = seen.job else {
        if before.started_at.is_none() {
            return start(ingestion, seen, model);
        }
        return match seen.progress {
            Err(why) => away(why),
            Ok(_) => told(Cause::new("JobGone", "its Job was deleted before it came to the end; make another Ingestion")),
        };
    };
    // What it is for is gone, and its rows with it.
    if seen.base.is_none() {
        return IngestionStep::Fail(gone(ingestion), progress.cloned());
    }
    match &job.outcome {
        None => IngestionStep::Watch(progress.cloned()),
        Some(JobOutcome::Failed { reason, message }) if reason == "DeadlineExceeded" => {
            let message = format!("it took longer than an ingestion may (chart value worker.ingestion.deadlineSeconds): {message}");
            IngestionStep::Fail(Cause::new("DeadlineExceeded", message), progress.cloned())
        }
        Some(JobOutcome::Failed { reason, message }) => match seen.progress {
            Err(why) => away(why),
            Ok(_) => told(Cause::new("JobFailed", format!("its Job failed, {reason}: {message}"))),
        },
        Some(JobOutcome::Complete) => match seen.progress {
            Err(why) => away(why),
            Ok(_) => told(Cause::new("Incomplete", "its pod ended without an error and without having read everything")),
        },
    }
}

/// What has to be there before there is a Job; what another object can mend is waited for.
fn start(ingestion: &Ingestion, seen: &Seen, model: &str) -> IngestionStep {
    match work(ingestion, seen, model) {
        Ok(work) => IngestionStep::Start(Box::new(work)),
        Err(step) => *step,
    }
}

fn work(ingestion: &Ingestion, seen: &Seen, model: &str) -> Result<Work, Box<IngestionStep>> {
    let waits = |reason, message: String| Box::new(IngestionStep::Wait(Cause::new(reason, message), Some(ABSENT_TIMEOUT)));
    let fails = |reason, message: String| Box::new(IngestionStep::Fail(Cause::new(reason, message), None));
    if !seen.is_of_team {
        return Err(fails(
            "NotATeamNamespace",
            "the namespace belongs to no Team; knowledge bases are in namespaces named team-<slug>".to_owned(),
        ));
    }
    if !seen.has_database {
        let message = "chunks lie in the platform's database, and it has none (chart value database)";
        return Err(fails("DatabaseRequired", message.to_owned()));
    }
    let Some(base) = seen.base else {
        let Cause { reason, message } = gone(ingestion);
        return Err(waits(reason, message));
    };
    let name = ids::knowledge_base_name(&ingestion.spec.knowledge_base);
    let base = base.0.as_ref().map_err(|invalid| {
        waits("KnowledgeBaseInvalid", format!("spec.knowledgeBase: KnowledgeBase {name} cannot be read: {}", invalid.error))
    })?;
    let (source_name, source) = source(ingestion, base).map_err(|cause| waits(cause.reason, cause.message))?;
    if !seen.secrets_known {
        return Err(Box::new(IngestionStep::Wait(Cause::new("Progressing", "the Secrets of the namespace have not been read yet"), None)));
    }
    let (source, is_opened) = match seen.opened {
        None => (source, false),
        Some(Ok(opened)) => (Some(&opened.source), opened.is_opened),
        Some(Err(fault)) => return Err(waits(fault.reason, format!("source.{}", fault.message))),
    };
    let credentials = source.and_then(|source| source.credentials_secret.clone());
    if let Some(secret) = &credentials {
        match seen.secret {
            None => {
                let message = format!("credentialsSecret: Secret {secret} does not exist in this namespace");
                return Err(waits("SecretMissing", message));
            }
            Some(state) if !state.readable && !is_opened => {
                let message = format!(
                    "credentialsSecret: Secret {secret} lacks the label {}=true, without which ingestions cannot use it",
                    labels::AGENT_READABLE
                );
                return Err(waits("SecretNotAllowed", message));
            }
            Some(_) => {}
        }
    }
    let is_local = source.is_some_and(|source| source.local.is_some());
    if is_local && seen.volume.is_none() {
        let message = "source.local: the team has no volume for files; a platform admin names one in the Team's spec.knowledgeVolume";
        return Err(waits("VolumeNotNamed", message.to_owned()));
    }
    // How long the other ingestion takes is unknown, so this wait has no timeout.
    if let Some(other) = seen.same_source {
        let message = format!("Ingestion {other} reads the same source; this one begins when that has ended");
        return Err(Box::new(IngestionStep::Wait(Cause::new("Queued", message), None)));
    }
    if seen.running >= seen.concurrency {
        let message = format!(
            "{} ingestions of the team are under way, as many as may be at once (chart value worker.ingestion.concurrency)",
            seen.running
        );
        return Err(Box::new(IngestionStep::Wait(Cause::new("Queued", message), None)));
    }
    let embedding = EmbeddingConfig {
        model: base.spec.embedding_model.clone().unwrap_or_else(|| model.to_owned()),
        chunk_size: base.spec.chunk_size,
        chunk_overlap: base.spec.chunk_overlap,
    };
    Ok(Work {
        config: IngestionConfig {
            uid: ingestion.uid().unwrap_or_default(),
            name: ingestion.name_any(),
            kb_id: ids::knowledge_base(&name),
            embedding,
            generation: base.metadata.generation.unwrap_or_default(),
            former_source_name: ingestion.spec.source.as_ref().and_then(Source::former_name),
            source_name,
            source: source.and_then(Source::config),
            upload: ingestion.spec.upload.clone(),
            confirm_removal: ingestion.spec.confirm_removal,
            scheduled: ingestion.owner_references().iter().any(|owner| owner.kind == "KnowledgeBase" && owner.controller == Some(true)),
        },
        credentials,
        volume: seen.volume.filter(|_| is_local).map(str::to_owned),
    })
}

/// What is read, and the name of the source that its documents belong to.
pub(super) fn source<'a>(ingestion: &'a Ingestion, base: &'a KnowledgeBase) -> Result<(String, Option<&'a Source>), Cause> {
    let spec = &ingestion.spec;
    if let Some(name) = &spec.source_name {
        let found = base.spec.sources.iter().find(|source| source.name == *name);
        let message = || format!("spec.sourceName: KnowledgeBase {} has no source {name} in spec.sources", base.name_any());
        return found.map(|found| (name.clone(), Some(&found.source))).ok_or_else(|| Cause::new("SourceNotFound", message()));
    }
    Ok((source_name(ingestion), spec.source.as_ref()))
}

/// The name of the source that its documents belong to.
pub(super) fn source_name(ingestion: &Ingestion) -> String {
    let spec = &ingestion.spec;
    spec.source_name.clone().or_else(|| spec.source.as_ref()?.name()).unwrap_or_else(|| UPLOADS.to_owned())
}

fn gone(ingestion: &Ingestion) -> Cause {
    let name = ids::knowledge_base_name(&ingestion.spec.knowledge_base);
    Cause::new("KnowledgeBaseNotFound", format!("spec.knowledgeBase: there is no KnowledgeBase {name} in this namespace"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MODEL: &str = "builtin:m";

    fn ingestion(spec: &str) -> Ingestion {
        serde_yaml::from_str(&format!("{{metadata: {{name: i, uid: u}}, spec: {{knowledgeBase: kb_docs, {spec}}}}}")).unwrap()
    }

    fn base() -> Guarded<KnowledgeBase> {
        Guarded(Ok(serde_yaml::from_str(
            "{metadata: {name: docs, generation: 3}, spec: {name: Docs, sources: [{name: files, local: {path: a}}, {name: bucket, s3: {bucket: docs}, credentialsSecret: login}]}}",
        )
        .unwrap()))
    }

    fn secret(readable: bool) -> SecretState {
        SecretState { readable, keys: Vec::new(), origin: None, hash: [0; 32] }
    }

    fn seen(base: Option<&Guarded<KnowledgeBase>>) -> Seen<'_> {
        Seen {
            base,
            is_of_team: true,
            has_database: true,
            volume: None,
            opened: None,
            secret: None,
            secrets_known: true,
            job: None,
            progress: Ok(None),
            same_source: None,
            running: 0,
            concurrency: 4,
        }
    }

    fn told(step: &IngestionStep) -> String {
        match step {
            IngestionStep::Wait(cause, timeout) => format!("waits {}{}", cause.reason, if timeout.is_some() { "" } else { " for ever" }),
            IngestionStep::Start(_) => "starts".to_owned(),
            IngestionStep::Watch(_) => "watches".to_owned(),
            IngestionStep::Complete(_) => "completes".to_owned(),
            IngestionStep::Fail(cause, _) => format!("fails {}", cause.reason),
            IngestionStep::Cancel(_) => "cancels".to_owned(),
        }
    }

    #[test]
    fn what_another_object_can_mend_is_waited_for() {
        let base = base();
        let (good, bad) = (secret(true), secret(false));
        let of = |spec: &str, seen: &Seen| told(&next(&ingestion(spec), &IngestionStatus::default(), seen, MODEL));
        let there = || seen(Some(&base));
        let volume = Some("files");
        let source = serde_yaml::from_str("{s3: {bucket: docs, endpoint: 'https://s.example'}, credentialsSecret: in-s}").unwrap();
        let opened = OpenedSource { source, is_opened: true };
        let absent = ConditionFault { reason: "IntegrationNotFound", message: "integration: there is none".to_owned() };
        for (spec, seen, expected) in [
            ("upload: up_1", there(), "starts"),
            ("upload: up_1", seen(None), "waits KnowledgeBaseNotFound"),
            ("upload: up_1", Seen { has_database: false, ..there() }, "fails DatabaseRequired"),
            ("upload: up_1", Seen { is_of_team: false, ..there() }, "fails NotATeamNamespace"),
            ("upload: up_1", Seen { secrets_known: false, ..there() }, "waits Progressing for ever"),
            ("sourceName: other", there(), "waits SourceNotFound"),
            ("sourceName: files", there(), "waits VolumeNotNamed"),
            ("sourceName: files", Seen { volume, ..there() }, "starts"),
            ("sourceName: bucket", there(), "waits SecretMissing"),
            ("sourceName: bucket", Seen { secret: Some(&bad), ..there() }, "waits SecretNotAllowed"),
            ("sourceName: bucket", Seen { secret: Some(&bad), opened: Some(Ok(&opened)), ..there() }, "starts"),
            ("sourceName: bucket", Seen { opened: Some(Ok(&opened)), ..there() }, "waits SecretMissing"),
            ("sourceName: bucket", Seen { opened: Some(Err(&absent)), ..there() }, "waits IntegrationNotFound"),
            ("sourceName: bucket", Seen { secret: Some(&good), ..there() }, "starts"),
            ("source: {local: {path: b}}", Seen { volume, ..there() }, "starts"),
            ("upload: up_1", Seen { same_source: Some("other"), ..there() }, "waits Queued for ever"),
            ("upload: up_1", Seen { running: 4, ..there() }, "waits Queued for ever"),
            ("upload: up_1, cancel: true", seen(None), "cancels"),
        ] {
            assert_eq!(of(spec, &seen), expected, "{spec}");
        }
    }

    #[test]
    fn a_pod_is_told_what_it_is_to_read() {
        let base = base();
        let work_of = |ingestion: &Ingestion| {
            let good = secret(true);
            let seen = Seen { volume: Some("files"), secret: Some(&good), ..seen(Some(&base)) };
            match next(ingestion, &IngestionStatus::default(), &seen, MODEL) {
                IngestionStep::Start(work) => *work,
                other => panic!("{ingestion:?}: {other:?}"),
            }
        };
        let work = |spec: &str| work_of(&ingestion(spec));
        let of = work("sourceName: bucket");
        assert_eq!((of.credentials.as_deref(), of.volume), (Some("login"), None));
        let config = json!({"uid": "u", "name": "i", "kb_id": "kb_docs", "embedding": {"model": MODEL, "chunk_size": 512, "chunk_overlap": 50},
            "generation": 3, "source_name": "bucket", "source": {"type": "s3", "bucket": "docs", "credentials_secret": "login"}, "upload": null});
        assert_eq!(serde_json::to_value(&of.config).unwrap(), config);
        let of = work("source: {local: {path: b}}");
        assert_eq!((of.credentials, of.volume.as_deref()), (None, Some("files")));
        assert!(of.config.source_name.starts_with("local-") && !of.config.scheduled, "{:?}", of.config);
        let mut made = ingestion("sourceName: bucket");
        let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "KnowledgeBase", "name": "docs", "uid": "b", "controller": true});
        made.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
        assert!(work_of(&made).config.scheduled, "its time had come");
        let of = work("upload: up_1");
        assert_eq!((of.config.source_name.as_str(), of.config.source, of.volume), (UPLOADS, None, None));
        let of = work("source: {s3: {bucket: docs}, credentialsSecret: login}").config;
        assert!(of.former_source_name.is_some_and(|former| former.starts_with("s3-") && former != of.source_name));
    }

    #[test]
    fn a_source_keeps_its_name_when_its_integrations_server_moves() {
        let base = base();
        let work = |endpoint: &str| {
            let source = format!("{{s3: {{bucket: docs, endpoint: '{endpoint}', region: eu-1}}, credentialsSecret: in-files}}");
            let opened = OpenedSource { source: serde_yaml::from_str(&source).unwrap(), is_opened: true };
            let closed = secret(false);
            let seen = Seen { opened: Some(Ok(&opened)), secret: Some(&closed), ..seen(Some(&base)) };
            let asked = ingestion("source: {s3: {bucket: docs}, integration: in_files}");
            match next(&asked, &IngestionStatus::default(), &seen, MODEL) {
                IngestionStep::Start(work) => *work,
                other => panic!("{endpoint}: {other:?}"),
            }
        };
        let (here, there) = (work("https://s.example"), work("https://other.example"));
        assert_eq!(here.credentials.as_deref(), Some("in-files"));
        let source =
            json!({"type": "s3", "credentials_secret": "in-files", "bucket": "docs", "endpoint": "https://s.example", "region": "eu-1"});
        assert_eq!(here.config.source, Some(source));
        assert_ne!(there.config.source, here.config.source);
        assert!(here.config.source_name.starts_with("s3-"), "{}", here.config.source_name);
        assert_eq!(there.config.source_name, here.config.source_name, "what was read from the one place are its documents");
    }

    #[test]
    fn the_end_follows_from_the_job_and_from_what_its_pod_wrote() {
        let base = base();
        let started =
            IngestionStatus { started_at: serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap(), ..IngestionStatus::default() };
        let progress =
            |stage, failure: Option<&str>| IngestionProgress { stage, failure: failure.map(str::to_owned), ..IngestionProgress::default() };
        let (running, done, broken) =
            (progress(Stage::Running, None), progress(Stage::Completed, None), progress(Stage::Failed, Some("the bucket is not there")));
        let doubtful = progress(Stage::Doubtful, Some("the source lists 0 documents"));
        let job = |outcome| Some(JobState { outcome, ..JobState::default() });
        let failed = |reason: &str| Some(JobOutcome::Failed { reason: reason.to_owned(), message: "m".to_owned() });
        let (active, complete, failed, late) =
            (job(None), job(Some(JobOutcome::Complete)), job(failed("BackoffLimitExceeded")), job(failed("DeadlineExceeded")));
        let away = || Err("it does not answer");
        for (what, job, progress, expected) in [
            ("under way", &active, Ok(Some(&running)), "watches"),
            ("its pod has not begun", &active, Ok(None), "watches"),
            ("an attempt failed, and there is another", &active, Ok(Some(&broken)), "watches"),
            ("under way, unseen", &active, away(), "watches"),
            ("done", &complete, Ok(Some(&done)), "completes"),
            ("done, and its pod has yet to end", &active, Ok(Some(&done)), "completes"),
            ("done, and its Job is gone", &None, Ok(Some(&done)), "completes"),
            ("done, as far as the Job says", &complete, away(), "waits DatabaseUnavailable for ever"),
            ("the pod only says that it is done", &complete, Ok(Some(&running)), "fails Incomplete"),
            ("failed", &failed, Ok(Some(&broken)), "fails IngestionFailed"),
            ("nearly emptied", &failed, Ok(Some(&doubtful)), "fails RemovalNotConfirmed"),
            ("killed", &failed, Ok(Some(&running)), "fails JobFailed"),
            ("never begun", &failed, Ok(None), "fails JobFailed"),
            ("too long", &late, Ok(Some(&running)), "fails DeadlineExceeded"),
            ("too long, and nobody can say how far it came", &late, away(), "fails DeadlineExceeded"),
            ("its Job was deleted", &None, Ok(Some(&running)), "fails JobGone"),
            ("its Job was deleted after it had failed", &None, Ok(Some(&broken)), "fails IngestionFailed"),
            ("its Job is gone, and nobody can say how far it came", &None, away(), "waits DatabaseUnavailable for ever"),
        ] {
            let seen = Seen { job: job.as_ref(), progress, ..seen(Some(&base)) };
            assert_eq!(told(&next(&ingestion("upload: up_1"), &started, &seen, MODEL)), expected, "{what}");
        }
        let seen = Seen { job: active.as_ref(), ..seen(None) };
        assert_eq!(told(&next(&ingestion("upload: up_1"), &started, &seen, MODEL)), "fails KnowledgeBaseNotFound", "its base is gone");
    }
}
