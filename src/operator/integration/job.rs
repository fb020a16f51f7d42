//! The Job that tests an integration of type local: a pod with the team's volume looks at the folder, and ends with what it found as
//! its termination message. It has no login of any kind.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use sha2::{Digest, Sha256};
use slipway_api::worker::{ProbeReply, ProbeRequest};
use slipway_api::{Integration, contract, labels};

use crate::job::{self, JobPlan};
use crate::settings::Settings;
use crate::worker::{self, PROBE, PROBE_NAME, escaped, plain};

/// How long a test may take, with the start of its pod, and how long its Job stays, for its log.
const DEADLINE_SECONDS: i64 = 60;
const JOB_TTL_SECONDS: i32 = 60;
/// The longest name of a Job, whose pods bear it as a label.
const NAME_MAX: usize = 63;
const SCRATCH: &str = "16Mi";

/// After the Integration; one whose name is too long for that has a hash of it.
pub(super) fn name(integration: &str) -> String {
    let name = format!("test-{integration}");
    if name.len() <= NAME_MAX { name } else { format!("test-{}", &hex::encode(Sha256::digest(integration))[..20]) }
}

/// The selector of its pods.
pub(super) fn selector(integration: &str) -> String {
    format!("{}={integration}", labels::INTEGRATION)
}

/// `volume` is the PersistentVolumeClaim with the files.
pub(super) fn build(settings: &Settings, team: &str, integration: &Integration, volume: &str) -> Result<Job, serde_json::Error> {
    let request =
        ProbeRequest { kind: integration.spec.kind().unwrap_or_default(), config: integration.spec.config(), credentials: BTreeMap::new() };
    let pod = worker::pod(
        settings,
        worker::Pod {
            team,
            container: PROBE,
            command: "probe",
            resources: &settings.worker.resources,
            scratch: &Quantity(SCRATCH.to_owned()),
            has_secrets: false,
            env: vec![plain(contract::PROBE, &escaped(&serde_json::to_string(&request)?))],
            volumes: vec![worker::local(volume)],
        },
    );
    let plan = JobPlan {
        name: name(&integration.name_any()),
        component: [PROBE_NAME, PROBE],
        owner_label: labels::INTEGRATION,
        retries: 0,
        failure_policy: None,
        deadline_seconds: DEADLINE_SECONDS,
        ttl_seconds: JOB_TTL_SECONDS,
        pod,
    };
    Ok(job::build(settings, integration, plan))
}

/// What the Job's pod found. Anybody's pod may bear its labels; only one of the Job with the worker's image is believed.
pub(super) fn reply(pods: &[Pod], job: &str, image: &str) -> Option<ProbeReply> {
    pods.iter().filter(|pod| is_of(pod, job, image)).find_map(|pod| {
        let containers = pod.status.as_ref()?.container_statuses.iter().flatten();
        let mut ended = containers.filter_map(|container| container.state.as_ref()?.terminated.as_ref()?.message.as_deref());
        ended.find_map(|message| serde_json::from_str(message.trim()).ok())
    })
}

fn is_of(pod: &Pod, job: &str, image: &str) -> bool {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let is_ours = !containers.is_empty() && containers.iter().all(|container| container.image.as_deref() == Some(image));
    is_ours && pod.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == job)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use slipway_cluster::write::value;

    use super::*;
    use crate::testing::settings;

    fn job(name: &str) -> Value {
        let metadata = json!({"name": name, "namespace": "team-a", "uid": "u"});
        let spec = json!({"name": "Files", "local": {"path": "docs/$(RUNTIME_TEAM)"}});
        let integration: Integration = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        let mut settings = settings(Some("postgres://u:hunter2@db/app"));
        settings.platform.control_public_key = Some("key".to_owned());
        value(&build(&settings, "a", &integration, "files").unwrap()).unwrap()
    }

    #[test]
    fn a_job_has_the_volume_and_no_login() {
        let job = job("files");
        assert_eq!(
            (&job["metadata"]["name"], &job["metadata"]["ownerReferences"][0]["kind"]),
            (&json!("test-files"), &json!("Integration"))
        );
        assert_eq!((&job["spec"]["backoffLimit"], &job["spec"]["activeDeadlineSeconds"]), (&json!(0), &json!(60)));
        assert_eq!(job["metadata"]["labels"]["agents.slipway.dev/integration"], "files");
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!((&pod["automountServiceAccountToken"], &pod["restartPolicy"]), (&json!(false), &json!("Never")));
        let container = &pod["containers"][0];
        assert_eq!((&container["args"], &container["image"]), (&json!(["probe"]), &json!("slipway.dev/slipway-worker:1")));
        assert!(container["envFrom"].is_null(), "no Secret of the team is of use to it");
        let mounts = container["volumeMounts"].as_array().unwrap();
        assert!(mounts.iter().any(|mount| mount["mountPath"] == "/var/lib/slipway/local" && mount["readOnly"] == true), "{mounts:?}");
        assert_eq!(pod["volumes"][1]["persistentVolumeClaim"], json!({"claimName": "files", "readOnly": true}));
        let env = container["env"].as_array().unwrap();
        let probe = env.iter().find(|env| env["name"] == "SLIPWAY_PROBE").unwrap()["value"].as_str().unwrap();
        assert_eq!(probe, r#"{"type":"local","config":{"path":"docs/$$(RUNTIME_TEAM)"}}"#, "the kubelet puts nothing into it");
        for name in ["SLIPWAY_KNOWLEDGE_URL", "RUNTIME_DATABASE_PASSWORD"] {
            assert!(!env.iter().any(|env| env["name"] == name), "{name}");
        }
        assert!(!job.to_string().contains("hunter2") && !job.to_string().contains("secretKeyRef"), "{job}");
    }

    #[test]
    fn a_job_is_called_after_its_integration_where_that_fits() {
        let (short, long) = ("a".repeat(58), "a".repeat(59));
        assert_eq!(name(&short), format!("test-{short}"));
        assert!(name(&long).len() <= 63 && name(&long) != name(&"a".repeat(60)));
        assert_eq!(job(&long)["metadata"]["labels"]["agents.slipway.dev/integration"], long);
    }

    #[test]
    fn only_a_pod_of_the_job_is_believed() {
        let said = json!({"succeeded": true, "reason": "Connected", "message": "3 files", "latency_ms": 2});
        let pod = |owner: &str, image: &str, message: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner, "controller": true}]},
                "spec": {"containers": [{"name": "probe", "image": image}]},
                "status": {"containerStatuses": [{"name": "probe", "image": image, "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 0, "message": message}}}]},
            }))
            .unwrap()
        };
        let found = |pods: &[Pod]| reply(pods, "j1", "worker:1").map(|reply| reply.message);
        let good = pod("j1", "worker:1", &format!("{said}\n"));
        assert_eq!(found(&[pod("j1", "worker:1", "thread main panicked"), good]).as_deref(), Some("3 files"));
        for other in [pod("j2", "worker:1", &said.to_string()), pod("j1", "liar:1", &said.to_string()), pod("j1", "worker:1", "")] {
            assert_eq!(found(&[other]), None);
        }
    }
}
