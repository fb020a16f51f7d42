//! Each row of what is to be done next.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use slipway_api::integration::{AlertSubscription, IntegrationTest};

use super::*;
use crate::testing::settings;
use crate::tool_rules::egress_of;

const MINUTE: Duration = Duration::from_mins(1);

/// What is otherwise than in most cases.
type Look = fn(&mut Seen<'_>);

fn secret(keys: &[&str], byte: u8) -> SecretState {
    SecretState { readable: false, keys: keys.iter().map(|key| (*key).to_owned()).collect(), origin: None, hash: [byte; 32] }
}

/// A case begins with an Integration that was tested as it is, and has its Secret.
struct Case {
    integration: Integration,
    secret: Option<SecretState>,
    own_secret: Option<SecretState>,
    before: IntegrationStatus,
    unanswered: Option<Unanswered>,
    egress: Egress,
    seen: Look,
}

impl Case {
    fn of(spec: &str) -> Self {
        let yaml = format!("{{metadata: {{name: x, namespace: team-a, generation: 1}}, spec: {{name: X, {spec}}}}}");
        let integration: Integration = serde_yaml::from_str(&yaml).unwrap();
        let own = secret(&["token", "webhook_url", "other"], 1);
        let at = Timestamp::from_second(1000).unwrap();
        let test = IntegrationTest { id: BY_CHANGE.to_owned(), digest: "d1".to_owned(), succeeded: true, ..IntegrationTest::default() };
        let before = IntegrationStatus {
            credentials: Some("0101010101010101".to_owned()),
            origin: integration.spec.origin(),
            last_test: Some(IntegrationTest { at: Some(Time(at)), ..test }),
            ..IntegrationStatus::default()
        };
        let egress = egress_of(&settings(None), "integrations");
        Self { integration, secret: Some(own.clone()), own_secret: Some(own), before, unanswered: None, egress, seen: |_| {} }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn asked(self, word: &str) -> Self {
        self.with(|case| case.integration.metadata.annotations = Some([(labels::TEST.to_owned(), word.to_owned())].into()))
    }

    fn look(&self) -> (IntegrationStep, LoginStatus) {
        let mut seen = Seen {
            integration: &self.integration,
            is_of_team: true,
            secrets_known: true,
            secret: self.secret.as_ref(),
            own_secret: self.own_secret.as_ref(),
            volume: None,
            has_worker: true,
            egress: &self.egress,
            digest: "d1",
            quiet: MINUTE,
            since_test: None,
            unanswered: self.unanswered.as_ref(),
            job: Job::Absent,
            interval: None,
            now: Timestamp::from_second(1030).unwrap(),
        };
        (self.seen)(&mut seen);
        let login = login(&seen, &self.before);
        (next(&seen, &login, &self.before), login)
    }

    fn step(&self) -> IntegrationStep {
        self.look().0
    }

    /// The reason for which it cannot be tested.
    fn reason(&self) -> &'static str {
        match self.step() {
            IntegrationStep::Settle(fault, _) => fault.reason,
            other => panic!("{other:?}"),
        }
    }
}

const PROMETHEUS: &str = "prometheus: {url: 'https://p.example'}";

fn test(id: &str) -> IntegrationStep {
    IntegrationStep::Test { id: id.to_owned() }
}

#[test]
fn one_that_was_tested_as_it_is_rests() {
    let case = Case::of(PROMETHEUS);
    assert_eq!(case.step(), IntegrationStep::Rest { next: None });
    assert_eq!(case.step(), IntegrationStep::Rest { next: None }, "however often it is looked at");
    assert_eq!(Case::of(PROMETHEUS).asked(BY_CHANGE).step(), IntegrationStep::Rest { next: None }, "it was answered");
    let unread = Case { seen: |seen| seen.secrets_known = false, ..Case::of(PROMETHEUS) };
    assert_eq!(unread.step(), IntegrationStep::Wait);
    assert_eq!(unread.look().1.origin.as_deref(), Some("https://p.example"), "what was known stands");
}

#[test]
fn what_keeps_one_from_a_test_is_told() {
    let homeless = Case { seen: |seen| (seen.is_of_team, seen.secrets_known) = (false, false), ..Case::of(PROMETHEUS) };
    assert_eq!(homeless.reason(), "NotATeamNamespace");
    assert_eq!(Case::of("description: d").reason(), "Invalid");
    assert_eq!(Case::of("local: {}").reason(), "VolumeNotNamed");
    for (spec, reason) in [
        ("prometheus: {url: 'http://10.0.0.1:9090'}", "AddressNotAllowed"),
        ("prometheus: {url: 'http://localhost'}", "AddressNotAllowed"),
        ("openai: {baseUrl: 'http://169.254.169.254/v1'}", "AddressNotAllowed"),
        ("databricks: {host: 127.0.0.1}", "AddressNotAllowed"),
        ("prometheus: {url: 'https://p.example:99999'}", "Invalid"),
        ("prometheus: {url: 'https://u:p@p.example'}", "Invalid"),
    ] {
        assert_eq!(Case::of(spec).reason(), reason, "{spec}");
    }
    let fault = match Case::of("prometheus: {url: 'http://10.0.0.1:9090'}").step() {
        IntegrationStep::Settle(fault, None) => fault,
        other => panic!("{other:?}"),
    };
    assert!(fault.message.starts_with("spec.prometheus: 10.0.0.1 is not reachable for integrations"), "{}", fault.message);
    assert!(fault.message.ends_with("the chart value agents.egressAllow"), "{}", fault.message);
}

#[test]
fn a_login_is_there_whole_and_allowed() {
    let without = |spec: &str| Case::of(spec).with(|case| (case.secret, case.own_secret) = (None, None));
    assert_eq!(without("slack: {}").reason(), "SecretMissing");
    assert_eq!(without(PROMETHEUS).step(), IntegrationStep::Rest { next: None }, "it may have none");
    let named = "prometheus: {url: 'https://p.example'}, credentialsSecret: login";
    assert_eq!(without(named).reason(), "SecretMissing");
    assert_eq!(Case::of(named).reason(), "SecretNotAllowed");
    let labelled = Case::of(named).with(|case| case.secret.as_mut().unwrap().readable = true);
    assert_eq!(labelled.step(), IntegrationStep::Rest { next: None });
    let partly = |spec: &str, keys: &[&str]| Case::of(spec).with(|case| case.secret = Some(secret(keys, 1))).reason();
    assert_eq!(partly("slack: {}", &["token"]), "SecretKeyMissing");
    assert_eq!(partly(PROMETHEUS, &["username"]), "SecretKeyMissing");
    let (_, login) = Case::of(PROMETHEUS).look();
    assert_eq!(login.keys, ["token"], "others are nobody's business");
}

#[test]
fn a_login_stays_with_the_host_that_it_was_written_for() {
    let moved = |change: fn(&mut Case)| {
        let there = Case::of("prometheus: {url: 'https://evil.example'}");
        there.with(|case| case.before.origin = Some("https://p.example".to_owned())).with(change)
    };
    let same = moved(|_| {});
    assert_eq!(same.reason(), ANOTHER_HOST);
    assert_eq!(same.look().1.origin.as_deref(), Some("https://p.example"));
    assert_eq!(same.asked("01J").reason(), ANOTHER_HOST, "nor is it sent because somebody asks");
    let anew = moved(|case| (case.secret, case.own_secret) = (Some(secret(&["token"], 2)), Some(secret(&["token"], 2))));
    let (step, login) = anew.look();
    assert_eq!((step, login.origin.as_deref()), (IntegrationStep::Rest { next: None }, Some("https://evil.example")));
    assert_eq!(login.credentials.as_deref(), Some("0202020202020202"));
    // By way of another Secret the host is not forgotten.
    let by_another = moved(|case| {
        case.integration.spec.credentials_secret = Some("labelled".to_owned());
        case.secret = Some(SecretState { readable: true, ..secret(&["token"], 9) });
    });
    let (step, login) = by_another.look();
    assert_eq!((step, login.origin.as_deref()), (IntegrationStep::Rest { next: None }, Some("https://p.example")));
    let gone = moved(|case| (case.secret, case.own_secret) = (None, None));
    assert_eq!(gone.look().1, LoginStatus::default());
    // One that was never used is for nobody yet.
    let unused = Case::of("prometheus: {url: 'https://p.example'}, credentialsSecret: labelled");
    assert_eq!(unused.with(|case| case.before = IntegrationStatus::default()).look().1.credentials, None);
}

/// A user who may write Integrations moves one between the writing of its Secret and the first look at either.
#[test]
fn a_secret_that_says_its_host_is_sent_to_no_other() {
    const MOVED: &str = "prometheus: {url: 'https://evil.example'}";
    let given = |spec: &str, before: IntegrationStatus| {
        Case::of(spec).with(|case| {
            let says = SecretState { origin: Some("https://p.example".to_owned()), ..secret(&["token"], 1) };
            (case.secret, case.own_secret, case.before) = (Some(says.clone()), Some(says), before);
        })
    };
    let first = given(MOVED, IntegrationStatus::default());
    assert_eq!(first.reason(), ANOTHER_HOST);
    assert_eq!(first.look().1.origin.as_deref(), Some("https://p.example"), "which is what alerts, Tools and models go by");
    assert_eq!(first.asked("01J").reason(), ANOTHER_HOST);
    let pinned = IntegrationStatus { origin: Some("https://evil.example".to_owned()), ..Case::of(MOVED).before };
    let (step, login) = given(MOVED, pinned).look();
    assert!(matches!(step, IntegrationStep::Settle(fault, None) if fault.reason == ANOTHER_HOST), "what was seen first counts for less");
    assert_eq!(login.origin.as_deref(), Some("https://p.example"));
    assert_eq!(given("prometheus: {url: 'https://P.example:443/api'}", IntegrationStatus::default()).step(), test(BY_CHANGE));
    // It is known also while another Secret is in use.
    let mut elsewhere = given("prometheus: {url: 'https://evil.example'}, credentialsSecret: labelled", IntegrationStatus::default());
    elsewhere.secret = Some(SecretState { readable: true, ..secret(&["token"], 9) });
    let (step, login) = elsewhere.look();
    assert_eq!((step, login.origin.as_deref()), (test(BY_CHANGE), Some("https://p.example")));
}

#[test]
fn a_change_is_tested_once_it_stays() {
    let changed = |seen: Look| Case { seen, ..Case::of(PROMETHEUS) };
    let early = changed(|seen| (seen.digest, seen.quiet) = ("d2", Duration::from_millis(500)));
    assert_eq!(early.step(), IntegrationStep::Later(Duration::from_millis(1500)));
    let still: Look = |seen| seen.digest = "d2";
    assert_eq!(changed(still).step(), test(BY_CHANGE));
    assert_eq!(changed(still).asked("01J").step(), test("01J"), "which answers the annotation, too");
    let fresh = changed(still).with(|case| case.before = IntegrationStatus::default());
    assert_eq!(fresh.step(), test(BY_CHANGE));
    let absent = changed(|seen| (seen.digest, seen.has_worker) = ("d2", false));
    assert_eq!(absent.reason(), WORKER_UNAVAILABLE);
}

#[test]
fn who_asks_is_answered_at_once_and_once() {
    let asks = |seen: Look| Case { seen, ..Case::of(PROMETHEUS) }.asked("01J");
    assert_eq!(asks(|_| {}).step(), test("01J"));
    assert_eq!(asks(|seen| (seen.digest, seen.quiet) = ("d2", Duration::ZERO)).step(), test("01J"));
    let soon = asks(|seen| seen.since_test = Some(Duration::from_millis(400)));
    assert_eq!(soon.step(), IntegrationStep::Later(Duration::from_millis(600)));
    let answered = asks(|_| {}).with(|case| case.before.last_test.as_mut().unwrap().id = "01J".to_owned());
    assert_eq!(answered.step(), IntegrationStep::Rest { next: None });
}

#[test]
fn an_interval_is_over_when_it_is() {
    let every = |seen: Look| Case { seen, ..Case::of(PROMETHEUS) };
    assert_eq!(every(|seen| seen.interval = Some(MINUTE)).step(), IntegrationStep::Rest { next: Some(Duration::from_secs(30)) });
    assert_eq!(every(|seen| seen.interval = Some(Duration::from_secs(30))).step(), test(BY_INTERVAL));
    let never = every(|seen| seen.interval = Some(MINUTE)).with(|case| case.before.last_test.as_mut().unwrap().at = None);
    assert_eq!(never.step(), test(BY_INTERVAL));
    let ahead = every(|seen| (seen.interval, seen.now) = (Some(MINUTE), Timestamp::UNIX_EPOCH));
    assert_eq!(ahead.step(), IntegrationStep::Rest { next: Some(MINUTE) }, "the clock was put back");
}

#[test]
fn a_test_that_nobody_carried_out_is_tried_again() {
    let fault = ConditionFault { reason: WORKER_UNAVAILABLE, message: "m".to_owned() };
    let waits = |times: u32, seen: Look| {
        let unanswered = Some(Unanswered { fault: fault.clone(), times });
        Case { seen, ..Case::of(PROMETHEUS) }.with(|case| case.unanswered = unanswered)
    };
    let tried: Look = |seen| (seen.digest, seen.since_test) = ("d2", Some(Duration::from_secs(4)));
    assert_eq!(waits(1, tried).step(), IntegrationStep::Settle(fault.clone(), Some(Duration::from_secs(1))));
    assert_eq!(waits(2, tried).step(), IntegrationStep::Settle(fault.clone(), Some(Duration::from_secs(6))));
    assert_eq!(waits(2, tried).asked("01J").step(), test("01J"), "who asks does not wait");
    let over: Look = |seen| (seen.digest, seen.since_test) = ("d2", Some(Duration::from_secs(5)));
    assert_eq!(waits(1, over).step(), test(BY_CHANGE));
    let by_time: Look = |seen| (seen.interval, seen.since_test) = (Some(Duration::from_secs(9)), Some(BETWEEN));
    assert_eq!(waits(1, by_time).reason(), WORKER_UNAVAILABLE, "nor is one whose time has come a hot loop");
    let pauses = [0, 1, 2, 3, 7, 8, 1000].map(|times| pause(times).as_secs());
    assert_eq!(pauses, [5, 5, 10, 20, 300, 300, 300]);
}

#[test]
fn files_are_tested_by_one_job_after_the_other() {
    let local = |seen: Look| Case { seen, ..Case::of("local: {path: docs}") };
    assert_eq!(local(|seen| seen.volume = Some("v")).step(), IntegrationStep::Rest { next: None });
    let started: Look = |seen| (seen.volume, seen.digest, seen.has_worker) = (Some("v"), "d2", false);
    assert_eq!(local(started).step(), IntegrationStep::StartJob { id: BY_CHANGE.to_owned() }, "no worker is asked");
    let earlier: Look = |seen| (seen.volume, seen.digest, seen.job) = (Some("v"), "d2", Job::Earlier);
    assert_eq!(local(earlier).step(), IntegrationStep::Clear);
    let present: Look = |seen| (seen.volume, seen.digest, seen.job) = (Some("v"), "d2", Job::Present);
    assert_eq!(local(present).asked("01J").step(), IntegrationStep::Watch);
}

#[test]
fn a_digest_is_of_what_is_tested_alone() {
    let one: Integration = Case::of("webhook: {url: 'https://w.example'}").integration;
    let of = |change: fn(&mut Integration), state: u8, volume| {
        let mut other = one.clone();
        change(&mut other);
        digest(b"k", &other, Some(&secret(&["token"], state)), volume).unwrap()
    };
    let before = of(|_| {}, 1, None);
    assert_eq!(before.len(), 32);
    let told = |of: &mut Integration| {
        of.spec.name = "Other".to_owned();
        of.spec.alerts = Some(AlertSubscription::default());
    };
    assert_eq!(of(told, 1, Some("v")), before, "people and alerts change nothing, nor does a volume");
    assert_ne!(of(|_| {}, 2, None), before);
    assert_ne!(of(|of| of.spec.webhook.as_mut().unwrap().url.push('a'), 1, None), before);
    let local: Integration = serde_json::from_value(json!({"metadata": {}, "spec": {"name": "X", "local": {}}})).unwrap();
    assert_ne!(digest(b"k", &local, None, Some("v")).unwrap(), digest(b"k", &local, None, Some("w")).unwrap());
}
