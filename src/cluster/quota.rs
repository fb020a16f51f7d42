//! Retries of creations that conflict on a ResourceQuota with concurrent writers.

use std::time::Duration;

use kube::core::Status;
use tokio::time::sleep;

/// The pauses between attempts, in milliseconds.
const RETRY_PAUSES: [u64; 6] = [10, 20, 40, 80, 160, 320];

/// Whether a creation failed because another writer changed the quota at the same moment.
pub fn is_quota_conflict(status: &Status) -> bool {
    status.code == 409
        && status.reason != "AlreadyExists"
        && status.details.as_ref().is_some_and(|details| details.kind == "resourcequotas")
}

/// Repeats `make` while it fails with a quota conflict.
pub async fn retry_on_quota_conflict<T, F: Future<Output = Result<T, kube::Error>>>(mut make: impl FnMut() -> F) -> Result<T, kube::Error> {
    for pause in RETRY_PAUSES {
        match make().await {
            Err(kube::Error::Api(status)) if is_quota_conflict(&status) => sleep(Duration::from_millis(pause)).await,
            outcome => return outcome,
        }
    }
    make().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(kind: &str) -> kube::Error {
        let status = serde_json::json!({"code": 409, "reason": "Conflict", "message": "modified", "details": {"kind": kind}});
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[tokio::test(start_paused = true)]
    async fn only_quota_conflicts_are_retried() {
        let mut tries = 0;
        let made = retry_on_quota_conflict(|| {
            tries += 1;
            std::future::ready(if tries < 4 { Err(conflict("resourcequotas")) } else { Ok(tries) })
        });
        assert_eq!(made.await.unwrap(), 4);
        let mut tries = 0;
        let refused = retry_on_quota_conflict(|| {
            tries += 1;
            std::future::ready(Err::<(), _>(conflict("agents")))
        });
        assert!(refused.await.is_err());
        assert_eq!(tries, 1);
    }
}
