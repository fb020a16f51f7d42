//! The address at which a runtime reports the end of a run, and the token for it. The state role verifies the token and notes the
//! report in the run's status, by which this controller hears of it.

use std::time::SystemTime;

use kube::ResourceExt;
use slipway_api::evaluation_run::EvaluationRunStatus;
use slipway_api::{EvaluationRun, ids};
use slipway_evaluation::wire::CallbackToken;
use slipway_http::callback::{CALLBACK_LIFE, CallbackClaims};
use slipway_http::token::unix_seconds;

use crate::settings::Settings;

/// URL and token for the next attempt of a run. None where the platform has no address or no key: then it is polled alone.
pub(super) fn of(
    settings: &Settings,
    run: &EvaluationRun,
    run_id: &str,
    before: &EvaluationRunStatus,
    version: Option<i64>,
) -> Option<(String, CallbackToken)> {
    let (url, key) = (settings.platform.url.as_ref()?, settings.callback_key.as_ref()?);
    let (namespace, name) = (run.namespace()?, run.name_any());
    let agent = ids::agent(&namespace, &run.spec.agent);
    let path = match version.filter(|_| run.spec.release.is_some()) {
        Some(version) => format!("/api/v1/agents/{agent}/releases/{version}/eval-result"),
        None => format!("/api/v1/agents/{agent}/evaluations/{}/result", ids::evaluation_run(&name)),
    };
    let url = format!("{}{path}", url.trim_end_matches('/'));
    let claims = CallbackClaims {
        path,
        namespace,
        run: name,
        uid: run.uid()?,
        run_id: run_id.to_owned(),
        attempt: before.attempt.unwrap_or_default().saturating_add(1),
        exp: unix_seconds(SystemTime::now() + CALLBACK_LIFE),
    };
    Some((url, CallbackToken(key.sign(&claims)?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slipway_http::callback::CallbackKey;

    use super::*;
    use crate::testing;

    fn run(release: Option<&str>) -> EvaluationRun {
        let spec = json!({"agent": "helper", "release": release});
        serde_json::from_value(json!({"metadata": {"name": "ev-1", "namespace": "team-a", "uid": "u"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_token_is_for_one_call_about_one_attempt() {
        let mut settings = testing::settings(None);
        let key = CallbackKey::new(&[1; 32]).unwrap();
        settings.platform.url = Some("http://rest.slipway-system.svc/".to_owned());
        settings.callback_key = Some(key.clone());
        let before = EvaluationRunStatus { attempt: Some(2), ..EvaluationRunStatus::default() };
        let agent = ids::agent("team-a", "helper");
        for (run, version, path) in [
            (run(None), Some(3), format!("/api/v1/agents/{agent}/evaluations/ev_1/result")),
            (run(Some("helper-v3")), Some(3), format!("/api/v1/agents/{agent}/releases/3/eval-result")),
            (run(Some("helper-v3")), None, format!("/api/v1/agents/{agent}/evaluations/ev_1/result")),
        ] {
            let (url, CallbackToken(token)) = of(&settings, &run, "ev_0", &before, version).unwrap();
            assert_eq!(url, format!("http://rest.slipway-system.svc{path}"));
            let claims = key.verify(&token, SystemTime::now()).unwrap();
            assert_eq!((claims.path, claims.attempt, claims.run_id.as_str(), claims.uid.as_str()), (path, 3, "ev_0", "u"));
            assert!(key.verify(&token, SystemTime::now() + CALLBACK_LIFE).is_none());
        }
        settings.callback_key = None;
        assert_eq!(of(&settings, &run(None), "ev_0", &before, None), None);
        settings.callback_key = Some(key);
        settings.platform.url = None;
        assert_eq!(of(&settings, &run(None), "ev_0", &before, None), None);
    }
}
