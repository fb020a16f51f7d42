//! The ServiceAccount of an agent that acts as a cloud identity; other agents have none of their own.
//! It is per track, as a track's spec may name another identity; the cloud's binding has to name the account of each track.

use k8s_openapi::api::core::v1::ServiceAccount;

use super::meta;
use crate::agent::resolve::Plan;

const GCP_SERVICE_ACCOUNT: &str = "iam.gke.io/gcp-service-account";

pub(super) fn build(plan: &Plan) -> Option<ServiceAccount> {
    let account = plan.gcp_service_account.clone()?;
    let mut metadata = meta(plan, plan.workload());
    metadata.annotations = Some([(GCP_SERVICE_ACCOUNT.to_owned(), account)].into());
    Some(ServiceAccount { metadata, automount_service_account_token: Some(false), ..ServiceAccount::default() })
}
