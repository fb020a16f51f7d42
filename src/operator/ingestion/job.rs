//! The Job of an ingestion, pure. It is made once and never changed: what a Job's pods run cannot be.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{SecretVolumeSource, Volume, VolumeMount};
use kube::ResourceExt;
use slipway_api::{Ingestion, contract, labels};

use super::plan::Work;
use crate::job::{self, JobPlan};
use crate::settings::Settings;
use crate::worker::{self, INGESTION, INGESTION_NAME, escaped, mount, plain};

/// How often a pod that failed is replaced.
const RETRIES: i32 = 3;
/// How long a Job stays that has ended. What came of it is in the database by then, and in the status.
const JOB_TTL_SECONDS: i32 = 3600;
const CREDENTIALS: &str = "credentials";

pub(super) fn name(ingestion: &str) -> String {
    format!("ingest-{ingestion}")
}

/// None without a database.
pub(super) fn build(settings: &Settings, team: &str, ingestion: &Ingestion, work: &Work) -> Option<Job> {
    settings.database.as_ref()?;
    let limits = &settings.worker.ingestion;
    // Plain structs of strings and numbers: there is nothing in them that could fail.
    let config = serde_json::to_string(&work.config).unwrap_or_default();
    let pod = worker::pod(
        settings,
        worker::Pod {
            team,
            container: INGESTION,
            command: "ingest",
            resources: &limits.resources,
            scratch: &limits.scratch,
            has_secrets: true,
            env: vec![plain(contract::INGESTION, &escaped(&config))],
            volumes: volumes(work),
        },
    );
    let plan = JobPlan {
        name: name(&ingestion.name_any()),
        component: [INGESTION_NAME, INGESTION],
        owner_label: labels::INGESTION,
        retries: RETRIES,
        failure_policy: Some(job::failure_policy(INGESTION)),
        deadline_seconds: i64::from(limits.deadline_seconds),
        ttl_seconds: JOB_TTL_SECONDS,
        pod,
    };
    Some(job::build(settings, ingestion, plan))
}

fn volumes(work: &Work) -> Vec<(Volume, VolumeMount)> {
    let credentials = work.credentials.as_ref().map(|secret| {
        let source = SecretVolumeSource { secret_name: Some(secret.clone()), ..SecretVolumeSource::default() };
        let volume = Volume { name: CREDENTIALS.to_owned(), secret: Some(source), ..Volume::default() };
        (volume, mount(CREDENTIALS, contract::CREDENTIALS, true))
    });
    let local = work.volume.as_deref().map(worker::local);
    credentials.into_iter().chain(local).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use slipway_api::contract::{EmbeddingConfig, IngestionConfig};
    use slipway_cluster::write::value;

    use super::*;
    use crate::testing::settings;

    fn work(more: impl FnOnce(&mut Work)) -> Work {
        let config = IngestionConfig {
            uid: "u".to_owned(),
            name: "first".to_owned(),
            kb_id: "kb_docs".to_owned(),
            embedding: EmbeddingConfig { model: "builtin:m".to_owned(), chunk_size: 512, chunk_overlap: 50 },
            generation: 1,
            source_name: "uploads".to_owned(),
            former_source_name: None,
            source: None,
            upload: Some("up_1".to_owned()),
            confirm_removal: false,
            scheduled: false,
        };
        let mut work = Work { config, credentials: None, volume: None };
        more(&mut work);
        work
    }

    fn job(work: &Work) -> Value {
        let ingestion: Ingestion = serde_json::from_value(
            json!({"metadata": {"name": "first", "namespace": "team-a", "uid": "u"}, "spec": {"knowledgeBase": "docs", "upload": "up_1"}}),
        )
        .unwrap();
        let settings = settings(Some("postgres://u:hunter2@db/app?sslmode=require"));
        value(&build(&settings, "a", &ingestion, work).unwrap()).unwrap()
    }

    #[test]
    fn a_job_is_confined_and_told_what_to_do() {
        let job = job(&work(|_| {}));
        assert_eq!(job["metadata"]["name"], "ingest-first");
        assert_eq!(job["metadata"]["ownerReferences"][0]["name"], "first");
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!((&pod["automountServiceAccountToken"], &pod["restartPolicy"]), (&json!(false), &json!("Never")));
        assert_eq!(pod["securityContext"], json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}));
        let container = &pod["containers"][0];
        assert_eq!(container["args"], json!(["ingest"]));
        assert_eq!(
            container["securityContext"],
            json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
        );
        for amount in ["cpu", "memory"] {
            assert!(container["resources"]["requests"][amount].is_string() && container["resources"]["limits"][amount].is_string());
        }
        let env = |name: &str| container["env"].as_array().unwrap().iter().find(|env| env["name"] == name).cloned().unwrap_or_default();
        assert_eq!(
            env("SLIPWAY_KNOWLEDGE_URL")["value"],
            "postgresql://$(RUNTIME_DATABASE_USER):$(RUNTIME_DATABASE_PASSWORD)@db.slipway-system.svc.cluster.local/app_knowledge"
        );
        assert_eq!((&env("PGSSLMODE")["value"], &env("RUNTIME_TEAM")["value"]), (&json!("require"), &json!("tk_a")));
        assert!(env("RUNTIME_EGRESS_PROXY").is_object() && env("RUNTIME_EGRESS_PROXY")["value"].is_null(), "no Secret may name a proxy");
        assert!(!job.to_string().contains("hunter2"), "{job}");
        let config: Value = serde_json::from_str(env("SLIPWAY_INGESTION")["value"].as_str().unwrap()).unwrap();
        assert_eq!(config, serde_json::to_value(work(|_| {}).config).unwrap());
        assert_eq!(pod["volumes"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn what_a_source_needs_is_mounted_for_reading() {
        let job = job(&work(|work| (work.credentials, work.volume) = (Some("login".to_owned()), Some("files".to_owned()))));
        let pod = &job["spec"]["template"]["spec"];
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let mounted = |path: &str| mounts.iter().find(|mount| mount["mountPath"] == path).unwrap();
        for path in ["/var/run/slipway/credentials", "/var/lib/slipway/local"] {
            assert_eq!(mounted(path)["readOnly"], true, "{path}");
        }
        assert_eq!(pod["volumes"][1]["secret"]["secretName"], "login");
        assert_eq!(pod["volumes"][2]["persistentVolumeClaim"], json!({"claimName": "files", "readOnly": true}));
    }

    #[test]
    fn the_kubelet_puts_nothing_into_what_a_source_says() {
        let job = job(&work(|work| work.config.source = Some(json!({"type": "local", "path": "$(RUNTIME_DATABASE_PASSWORD)"}))));
        let text = job.to_string();
        assert!(text.contains("$$(RUNTIME_DATABASE_PASSWORD)") && !text.contains("\"$(RUNTIME_DATABASE_PASSWORD)"), "{text}");
    }
}
