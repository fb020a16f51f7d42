//! What each step says, and which Events come of it.

use serde_json::{Value, json};
use slipway_api::{integration::IntegrationType, labels};

use super::*;

fn integration(more: &str) -> Integration {
    serde_yaml::from_str(&format!("{{metadata: {{name: my-hook, namespace: team-a, generation: 3}}, spec: {{name: Hook, {more}}}}}"))
        .unwrap()
}

fn hook() -> Integration {
    integration("webhook: {url: 'https://w.example/in'}")
}

fn login() -> LoginStatus {
    LoginStatus {
        keys: vec!["signing_secret".to_owned()],
        credentials: Some("00ff".to_owned()),
        origin: Some("https://w.example".to_owned()),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn step(of: &Integration, before: &IntegrationStatus, second: i64, take: impl FnOnce(Steps<'_>) -> IntegrationStatus) -> IntegrationStatus {
    take(Steps { integration: of, before, login: &login(), digest: "d1", delivered: None, now: at(second) })
}

fn reply(succeeded: bool, reason: &str) -> ProbeReply {
    ProbeReply { succeeded, reason: reason.to_owned(), message: "said by the worker".to_owned(), latency_ms: Some(12) }
}

fn told(status: &IntegrationStatus) -> String {
    let conditions = status.conditions.iter().map(|condition| format!("{}={} {}", condition.type_, condition.status, condition.reason));
    format!("{}: {}", status.phase.unwrap().as_str(), conditions.collect::<Vec<_>>().join(", "))
}

#[test]
fn a_status_has_all_of_it() {
    let first = step(&hook(), &IntegrationStatus::default(), 1000, |steps| steps.standing(false));
    assert_eq!(told(&first), "Disconnected: Ready=Unknown NotTested, Reconciling=True NotTested, Stalled=False NotTested");
    let status = step(&hook(), &first, 1001, |steps| steps.tested("change", &reply(true, CONNECTED)));
    let condition = |kind: &str, holds: &str, message: &str, time: &str| json!({"type": kind, "status": holds, "reason": "Connected", "message": message, "lastTransitionTime": time, "observedGeneration": 3});
    let expected: Value = json!({
        "phase": "Connected",
        "type": "webhook",
        "id": "in_my_hook",
        "credentialKeys": ["signing_secret"],
        "credentials": "00ff",
        "origin": "https://w.example",
        "lastTest": {
            "id": "change", "digest": "d1", "succeeded": true, "reason": "Connected", "message": "said by the worker", "latencyMs": 12,
            "at": "1970-01-01T00:16:41Z",
        },
        "observedGeneration": 3,
        "conditions": [
            condition("Ready", "True", "said by the worker", "1970-01-01T00:16:41Z"),
            condition("Reconciling", "False", SEE_READY, "1970-01-01T00:16:41Z"),
            condition("Stalled", "False", SEE_READY, "1970-01-01T00:16:40Z"),
        ],
    });
    assert_eq!(serde_json::to_value(&status).unwrap(), expected);
    assert_eq!(step(&hook(), &status, 2000, |steps| steps.standing(false)), status, "at rest nothing is written");
    assert_eq!(step(&hook(), &status, 2000, |steps| steps.standing(true)), status, "nor while the same is tested again");
}

#[test]
fn a_failure_says_who_has_to_act() {
    let connected = step(&hook(), &IntegrationStatus::default(), 1, |steps| steps.tested("change", &reply(true, CONNECTED)));
    for (said, expected) in [
        ("Unreachable", "Error: Ready=False Unreachable, Reconciling=False Unreachable, Stalled=False Unreachable"),
        ("TimedOut", "Error: Ready=False TimedOut, Reconciling=False TimedOut, Stalled=False TimedOut"),
        ("Unauthorized", "Error: Ready=False Unauthorized, Reconciling=False Unauthorized, Stalled=True Unauthorized"),
        ("Connected", "Error: Ready=False Unexpected, Reconciling=False Unexpected, Stalled=True Unexpected"),
        ("no word", "Error: Ready=False Unexpected, Reconciling=False Unexpected, Stalled=True Unexpected"),
        ("", "Error: Ready=False Unexpected, Reconciling=False Unexpected, Stalled=True Unexpected"),
    ] {
        let failed = step(&hook(), &connected, 2, |steps| steps.tested("change", &reply(false, said)));
        assert_eq!(told(&failed), expected);
        assert_eq!(step(&hook(), &failed, 3, |steps| steps.standing(false)), failed, "{said}");
    }
    for (reason, expected) in [
        ("SecretMissing", "Disconnected: Ready=False SecretMissing, Reconciling=False SecretMissing, Stalled=True SecretMissing"),
        (
            WORKER_UNAVAILABLE,
            "Disconnected: Ready=False WorkerUnavailable, Reconciling=False WorkerUnavailable, Stalled=False WorkerUnavailable",
        ),
        (
            "CredentialsForAnotherHost",
            "Error: Ready=False CredentialsForAnotherHost, Reconciling=False CredentialsForAnotherHost, Stalled=True CredentialsForAnotherHost",
        ),
    ] {
        let fault = ConditionFault { reason, message: "m".to_owned() };
        let settled = step(&hook(), &connected, 2, |steps| steps.settled(&fault));
        assert_eq!((told(&settled).as_str(), &settled.last_test), (expected, &connected.last_test), "what was tested stands");
        assert_eq!(step(&hook(), &settled, 3, |steps| steps.settled(&fault)), settled, "{reason}");
    }
}

#[test]
fn who_asked_is_answered_though_nothing_was_tested() {
    let mut asked = hook();
    asked.metadata.annotations = Some([(labels::TEST.to_owned(), "01J".to_owned())].into());
    let fault = ConditionFault { reason: WORKER_UNAVAILABLE, message: "m".repeat(2000) };
    let answered = step(&asked, &IntegrationStatus::default(), 1, |steps| steps.settled(&fault));
    let test = answered.last_test.clone().unwrap();
    assert_eq!((test.id.as_str(), test.succeeded, test.reason.as_str(), test.digest.as_str()), ("01J", false, WORKER_UNAVAILABLE, ""));
    assert_eq!(test.message.len(), MESSAGE_MAX);
    assert_eq!(step(&asked, &answered, 2, |steps| steps.settled(&fault)), answered, "once");
    let mended = step(&asked, &answered, 3, |steps| steps.standing(false));
    assert!(told(&mended).starts_with("Disconnected: Ready=Unknown NotTested"), "it is no answer about what there is then");
}

#[test]
fn what_a_worker_says_has_its_length() {
    let long = ProbeReply { message: "ä".repeat(5000), latency_ms: Some(-1), ..reply(false, &"R".repeat(65)) };
    let test = step(&hook(), &IntegrationStatus::default(), 1, |steps| steps.tested("change", &long)).last_test.unwrap();
    assert_eq!((test.message.chars().count(), test.reason.as_str(), test.latency_ms), (MESSAGE_MAX, UNEXPECTED, None));
}

#[test]
fn alerts_are_told_of_where_some_are_asked_for() {
    let asks = integration("webhook: {url: 'https://w.example/in'}, alerts: {}");
    let before = step(&asks, &IntegrationStatus::default(), 1, |steps| steps.tested("change", &reply(true, CONNECTED)));
    let of = |before: &IntegrationStatus, delivered| {
        let status = step(&asks, before, 9, |steps| Steps { delivered, ..steps }.standing(false));
        let condition = status.conditions.iter().find(|condition| condition.type_ == DELIVERING).cloned().unwrap();
        (format!("{} {}", condition.status, condition.reason), condition.message, status)
    };
    assert_eq!(of(&before, None).0, "Unknown NothingYet");
    assert_eq!((of(&before, Some(None)).0.as_str(), of(&before, Some(None)).2.delivery), ("Unknown NothingYet", None));
    let arrived = Delivered { has_arrived: true, ..Delivered::default() };
    let (word, _, status) = of(&before, Some(Some(&arrived)));
    assert_eq!(word, "True Delivered");
    let nothing = Delivered::default();
    let words = (of(&status, Some(Some(&nothing))).0, of(&before, Some(Some(&nothing))).0);
    assert_eq!(words, ("True Delivered".to_owned(), "Unknown NothingYet".to_owned()), "an agent is deleted with its messages");
    let failing = Delivered { waiting: 10, failing_since: Some(at(60)), last_error: Some("status 503".to_owned()), ..arrived.clone() };
    let (word, message, status) = of(&before, Some(Some(&failing)));
    assert_eq!(word, "False Failing");
    assert_eq!(message, "no alert has arrived since 1970-01-01T00:01:00Z, and at least 10 wait: status 503");
    let delivery = status.delivery.clone().unwrap();
    assert_eq!((delivery.waiting, delivery.failing_since, delivery.last_error.as_deref()), (10, Some(Time(at(60))), Some("status 503")));
    assert!(told(&status).starts_with("Connected: Ready=True"), "that is another thing");
    assert_eq!(of(&status, None).2, status, "while nobody looks, what was said stands");
    let given_up = Delivered { gave_up: true, last_error: Some("status 410".to_owned()), ..arrived };
    let (word, message, _) = of(&before, Some(Some(&given_up)));
    assert_eq!((word.as_str(), message.ends_with("not sent any more: status 410")), ("False GivenUp", true));
    let quiet = step(&hook(), &status, 10, |steps| Steps { delivered: Some(Some(&failing)), ..steps }.standing(false));
    assert_eq!((quiet.delivery, quiet.conditions.len()), (None, 3), "nobody asks for any");
}

#[test]
fn each_turn_is_one_event() {
    let test = |before: &IntegrationStatus, succeeded, reason: &str| {
        step(&hook(), before, 1, |steps| steps.tested("change", &reply(succeeded, reason)))
    };
    let fresh = IntegrationStatus::default();
    let good = test(&fresh, true, CONNECTED);
    let bad = test(&good, false, "Unauthorized");
    let events = |before: &IntegrationStatus, now: &IntegrationStatus| {
        let (trouble, is_news) = trouble(before, now);
        (connected(before, now).map(|event| event.reason), trouble.map(|event| event.note), is_news)
    };
    let name = Some("IntegrationConnected".to_owned());
    assert_eq!(events(&fresh, &good), (name.clone(), None, false));
    assert_eq!(events(&good, &good), (None, None, false));
    assert_eq!(events(&good, &bad), (None, Some("Unauthorized: said by the worker".to_owned()), true));
    assert!(!events(&bad, &test(&bad, false, "Unauthorized")).2, "the same again is no news");
    assert!(events(&bad, &test(&bad, false, "TimedOut")).2);
    assert_eq!(events(&bad, &test(&bad, true, CONNECTED)), (name, None, false));
    assert_eq!(good.type_, Some(IntegrationType::Webhook));
}
