//! Tests an integration: asks for it by an annotation, as kubectl can, and waits until the status answers. The manager has the
//! team's worker connect; REST connects to no server itself.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kube::api::Api;
use serde_json::json;
use slipway_api::integration::IntegrationTest;
use slipway_api::names::TeamSlug;
use slipway_api::{Integration, labels};
use slipway_http::{Error, HeaderValue, StatusCode, header};

use super::view::Tested;
use crate::answer::Data;
use crate::call::Call;
use crate::releases::until;
use crate::{random, write};

/// How long a test is waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a test that was asked for counts as under way.
const TEST_DURATION: Duration = Duration::from_secs(15);
/// How what REST asks with begins, before the time.
const ID_PREFIX: &str = "rest-";
const RETRY_SECONDS: u64 = 5;

/// The reason of a test that no worker carried out.
const WORKER_UNAVAILABLE: &str = "WorkerUnavailable";

pub(crate) async fn test(call: Call) -> Result<Data<Tested>, Error> {
    let name = super::named(&call)?;
    let (api, what) = (super::api(&call), super::what(&name));
    let id = id(SystemTime::now(), random::bits()?);
    write::change(&call, &api, &name, &what, |present: &Integration| {
        if is_under_way(present, SystemTime::now()) {
            let busy = Error::new(StatusCode::TOO_MANY_REQUESTS, format!("a test of {what} is under way; ask again when it has ended"));
            return Err(busy.with_header(header::RETRY_AFTER, HeaderValue::from(RETRY_SECONDS)));
        }
        Ok(json!({"metadata": {"annotations": {labels::TEST: id}}}))
    })
    .await?;
    outcome(&api, &name, &id, call.team.as_ref()).await.map(Data::new)
}

/// What came of the test. What keeps it from being tested, as a missing Secret, is an answer as well.
async fn outcome(api: &Api<Integration>, name: &str, id: &str, team: Option<&TeamSlug>) -> Result<Tested, Error> {
    let what = super::what(name);
    let seen = until(api, name, ANSWER_TIMEOUT, |seen: &Integration| answer(seen, id).is_some()).await?;
    let seen = seen.ok_or_else(|| Error::not_found(format!("there is no {what}")))?;
    match answer(&seen, id) {
        Some(test) if test.reason == WORKER_UNAVAILABLE => {
            let message = format!("the worker of team {} is not ready", team.map_or("", TeamSlug::as_str));
            Err(Error::unavailable(message).with_header(header::RETRY_AFTER, HeaderValue::from(RETRY_SECONDS)))
        }
        Some(test) => Ok(Tested::from(test)),
        None => {
            let message = format!("the manager has not tested {what} yet; read it again in a while");
            Err(Error::new(StatusCode::GATEWAY_TIMEOUT, message))
        }
    }
}

/// The test that answers this one: it, or a later one that took its place.
fn answer<'a>(seen: &'a Integration, id: &str) -> Option<&'a IntegrationTest> {
    let last = seen.status.as_ref()?.last_test.as_ref()?;
    let replaced = seen.asked_test().filter(|asked| *asked != id);
    (last.id == id || replaced == Some(last.id.as_str())).then_some(last)
}

/// Whether a test that somebody asked for here has not ended.
fn is_under_way(present: &Integration, now: SystemTime) -> bool {
    let Some(asked) = present.asked_test() else { return false };
    let (now, Some(begun)) = (now.duration_since(UNIX_EPOCH).unwrap_or_default(), begun(asked)) else { return false };
    now.abs_diff(begun) < TEST_DURATION && answer(present, asked).is_none()
}

/// What a test is asked with: the time in milliseconds, and what no other call has.
fn id(now: SystemTime, random: u128) -> String {
    format!("{ID_PREFIX}{}-{random:032x}", now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis())
}

/// When a test was asked for, if that was here.
fn begun(id: &str) -> Option<Duration> {
    let (millis, _) = id.strip_prefix(ID_PREFIX)?.split_once('-')?;
    millis.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use slipway_api::integration::TEST_ID_MAX;

    use super::*;

    fn integration(asked: &str, status: &Value) -> Integration {
        let metadata = json!({"name": "m", "generation": 1, "annotations": {labels::TEST: asked}});
        let spec = json!({"name": "M", "prometheus": {"url": "https://m.example.com"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn tested(id: &str) -> Value {
        json!({"id": id, "digest": "d", "succeeded": true, "reason": "Connected", "message": "m"})
    }

    #[test]
    fn a_test_is_under_way_until_it_is_answered_or_its_time_is_over() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let asked = id(now, u128::MAX);
        assert!(asked.len() <= TEST_ID_MAX, "{asked}");
        let at = |status: &Value, seconds: u64| is_under_way(&integration(&asked, status), now + Duration::from_secs(seconds));
        assert!(at(&Value::Null, 0) && at(&Value::Null, 14) && !at(&Value::Null, 15));
        assert!(at(&json!({"lastTest": tested("rest-1-0")}), 1) && !at(&json!({"lastTest": tested(&asked)}), 1));
        // Another replica's clock is behind.
        assert!(is_under_way(&integration(&asked, &Value::Null), now - Duration::from_secs(3)));
        assert!(!is_under_way(&integration("by kubectl", &Value::Null), now));
    }

    #[test]
    fn a_later_test_answers_an_earlier_one_and_an_older_does_not() {
        let answers = |asked: &str, last: &str| answer(&integration(asked, &json!({"lastTest": tested(last)})), "mine").is_some();
        assert!(answers("mine", "mine") && answers("later", "later") && answers("later", "mine"));
        assert!(!answers("mine", "before") && !answers("later", "before") && !answers("mine", "change"));
    }
}
