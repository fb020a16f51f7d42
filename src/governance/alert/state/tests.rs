//! Alerts, minute by minute.

use proptest::prelude::*;

use super::*;

fn minute(number: i64) -> Timestamp {
    Timestamp::from_second(number * 60).unwrap()
}

/// What a manager keeps of an alert between passes.
#[derive(Default)]
struct Watch {
    open: Option<Open>,
    since: Option<Timestamp>,
}

impl Watch {
    fn step(&mut self, limit: &Limit, reading: Reading, now: Timestamp) -> AlertStep {
        let step = judge(limit, reading, self.open.as_ref(), self.since.take(), now);
        match &step {
            AlertStep::Rest | AlertStep::Keep => {}
            AlertStep::Wait { since } => self.since = Some(*since),
            AlertStep::Raise { level, .. } | AlertStep::Renew { level, .. } => {
                self.open = Some(Open { severity: level.severity, threshold: level.at, last_seen: now });
            }
            AlertStep::Resolve => self.open = None,
        }
        step
    }
}

fn errors() -> Limit {
    Limit::platform().into_iter().find(|limit| limit.topic == Topic::ErrorRate).unwrap()
}

/// A letter a minute: `.` rests, `w` waits, `R` raises, `=` keeps, `+` renews, `^` rises, `E` ends.
fn story(limit: &Limit, readings: impl IntoIterator<Item = Reading>) -> String {
    let mut watch = Watch::default();
    let letters = readings.into_iter().zip(0..).map(|(reading, number)| match watch.step(limit, reading, minute(number)) {
        AlertStep::Rest => '.',
        AlertStep::Wait { .. } => 'w',
        AlertStep::Raise { .. } => 'R',
        AlertStep::Keep => '=',
        AlertStep::Renew { has_risen: false, .. } => '+',
        AlertStep::Renew { has_risen: true, .. } => '^',
        AlertStep::Resolve => 'E',
    });
    letters.collect()
}

#[test]
fn an_alert_begins_and_ends_in_its_time() {
    use Reading::{Nothing, Value};
    let values = |values: &[f64]| values.iter().copied().map(Value).collect::<Vec<_>>();
    let down = Limit::platform().remove(0);
    let cost = Limit::daily_cost("gp_cap", Severity::Critical, 10.0).unwrap();
    for (limit, readings, expected) in [
        // Two minutes of errors are one alert, five calm minutes its end.
        (errors(), values(&[1.0, 6.0, 6.0, 6.0, 6.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), ".wwR+====E."),
        // Between 4.5 and 5 nothing begins, and nothing ends.
        (errors(), values(&[4.8, 4.8, 5.0, 4.8, 5.0, 5.0, 5.0, 4.8, 4.8, 4.8, 4.8, 4.8, 4.8]), "..w.wwR++++++"),
        (errors(), values(&[6.0, 6.0, 6.0, 30.0, 6.0, 30.0]), "wwR^++"),
        // That there is nothing to read ends an alert.
        (errors(), vec![Value(6.0), Value(6.0), Value(6.0), Nothing, Nothing, Nothing, Nothing, Nothing], "wwR====E"),
        (errors(), vec![Value(6.0), Nothing, Value(6.0), Value(6.0)], "w.ww"),
        (down, values(&[0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), "..R+====E.."),
        (cost, values(&[7.9, 8.1, 9.0, 10.0, 11.0, 0.0, 0.0, 0.0, 0.0, 0.0]), ".R+^+====E"),
    ] {
        assert_eq!(story(&limit, readings.clone()), expected, "{limit:?} {readings:?}");
    }
}

#[test]
fn the_level_of_an_open_alert_only_rises() {
    let open = Open { severity: Severity::Critical, threshold: 20.0, last_seen: minute(0) };
    let step = judge(&errors(), Reading::Value(6.0), Some(&open), None, minute(1));
    let level = Level { at: 20.0, severity: Severity::Critical };
    assert_eq!(step, AlertStep::Renew { value: 6.0, level, has_risen: false });
    let cost = Limit::daily_cost("gp_cap", Severity::Warning, 10.0).unwrap();
    let open = Open { severity: Severity::Warning, threshold: 8.0, last_seen: minute(0) };
    let spent = judge(&cost, Reading::Value(10.0), Some(&open), None, minute(1));
    assert_eq!(spent, AlertStep::Renew { value: 10.0, level: Level { at: 10.0, severity: Severity::Warning }, has_risen: false });
}

fn reading() -> impl Strategy<Value = Reading> {
    prop_oneof![
        6 => (0.0_f64..30.0).prop_map(Reading::Value),
        2 => (4.4_f64..5.1).prop_map(Reading::Value),
        1 => Just(Reading::Nothing),
    ]
}

proptest! {
    #[test]
    fn no_series_of_values_makes_alerts_flap(readings in prop::collection::vec(reading(), 1..200)) {
        let story = story(&errors(), readings);
        let mut began: Option<usize> = None;
        let mut ended: Option<usize> = None;
        for (number, letter) in story.chars().enumerate() {
            match letter {
                'R' => {
                    prop_assert!(began.is_none(), "there is one at most: {story}");
                    prop_assert!(ended.is_none_or(|ended| number - ended > 2), "none begins where one has ended: {story}");
                    began = Some(number);
                }
                'E' => {
                    prop_assert!(began.take().is_some_and(|began| number - began >= 5), "none ends where it began: {story}");
                    ended = Some(number);
                }
                '=' | '+' | '^' => prop_assert!(began.is_some(), "{story}"),
                _ => prop_assert!(began.is_none(), "{story}"),
            }
        }
    }

    #[test]
    fn a_manager_that_forgets_between_passes_makes_no_second(readings in prop::collection::vec(reading(), 1..100), forgets in prop::collection::vec(any::<bool>(), 100)) {
        let (limit, mut watch, mut open) = (errors(), Watch::default(), false);
        for ((reading, forgets), number) in readings.into_iter().zip(forgets).zip(0..) {
            // The row stays; what was remembered goes.
            if forgets {
                watch.since = None;
            }
            match watch.step(&limit, reading, minute(number)) {
                AlertStep::Raise { .. } => {
                    prop_assert!(!open);
                    open = true;
                }
                AlertStep::Resolve => open = false,
                _ => {}
            }
        }
    }
}
