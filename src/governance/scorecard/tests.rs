//! Scorecards of agents of which all, a part, or nothing was measured.

use proptest::prelude::*;

use super::*;

fn usage() -> MeasuredUsage {
    MeasuredUsage {
        requests: 100,
        errors: 3,
        unknown: None,
        input_tokens: 200_000,
        output_tokens: 100_000,
        cost_micros: Some(10_000_000),
        guard_blocks: 10,
        pii: 10,
        injections: 1,
        violations: 4,
        latency: vec![0, 0, 100, 0],
        took: None,
        audited: Some(Share { count: 68, of: 100 }),
        cited: Some(Share { count: 30, of: 40 }),
    }
}

fn measured() -> Measurements {
    let score = |mean| Some(Score { mean, source: ScoreSource::Slipway });
    Measurements {
        usage: Some(usage()),
        latency_bounds: vec![500, 1000, 3000],
        correctness: score(0.9),
        relevance_to_query: score(0.7),
        safety: Some(Score { mean: 1.0, source: ScoreSource::Mlflow }),
        factual_accuracy: score(0.6),
        min_score: Some(75.0),
        safety_floor: Some(0.8),
    }
}

fn card(measured: &Measurements) -> Scorecard {
    scorecard(measured, Timestamp::UNIX_EPOCH)
}

#[test]
fn a_card_of_which_all_was_measured() {
    let card = card(&measured());
    let scores: Vec<_> = DimensionName::ALL.map(|name| card.dimension(name)).map(|it| (it.score.unwrap(), it.grade.unwrap())).into();
    // Quality: (80 + 75 + 60) / 3. Safety: (100 + 90 + 50 + 100) / 4. Cost: (50 + 50 + 50) / 3. Compliance: (50 + 80) / 2.
    assert_eq!(scores, [(71.67, Grade::C), (85.0, Grade::B), (50.0, Grade::F), (65.0, Grade::D)]);
    assert_eq!((card.overall, card.grade), (Some(70.33), Some(Grade::C)));
    assert_eq!((card.coverage, card.not_measured.len(), card.source), (1.0, 0, ScoreSource::Mlflow));
    assert_eq!(card.quality.metrics.iter().map(|it| it.status.unwrap().as_str()).collect::<Vec<_>>(), ["ok", "warning", "ok", "warning"]);
}

#[test]
fn of_nothing_measured_nothing_is_said() {
    for measured in [Measurements::default(), Measurements { usage: Some(MeasuredUsage::default()), ..Measurements::default() }] {
        let card = card(&measured);
        assert_eq!((card.overall, card.grade, card.coverage, card.source), (None, None, 0.0, ScoreSource::Slipway));
        assert_eq!(card.not_measured.len(), 13);
        assert!(DimensionName::ALL.iter().all(|name| card.dimension(*name).score.is_none()));
    }
}

#[test]
fn a_missing_dimension_leaves_its_weight_to_others() {
    let mut measured = measured();
    measured.usage = None;
    let card = card(&measured);
    // Quality without citations: (80 + 60) / 2 at 0.35; safety alone: 100 at 0.30.
    assert_eq!((card.quality.score, card.safety.score, card.cost.score), (Some(70.0), Some(100.0), None));
    assert_eq!(card.overall, Some(83.85));
    assert!((card.coverage - 0.31).abs() < 1e-9, "two thirds of 0.35 and a quarter of 0.30");
    assert!(card.not_measured.contains(&"source_citation_rate") && card.not_measured.contains(&"audit_coverage_pct"));
}

#[test]
fn a_number_that_is_no_score_is_not_measured() {
    for mean in [1.5, -0.1, f64::NAN, f64::INFINITY] {
        let mut measured = measured();
        measured.safety = Some(Score { mean, source: ScoreSource::Mlflow });
        let card = card(&measured);
        assert_eq!((&*card.not_measured, card.source), (&["safety/mean"][..], ScoreSource::Slipway), "{mean}");
    }
}

#[test]
fn a_cost_that_lacks_a_price_is_not_measured() {
    let mut measured = measured();
    measured.usage = Some(MeasuredUsage { cost_micros: None, ..usage() });
    let card = card(&measured);
    assert_eq!((card.cost.metrics[2].value, card.cost.metrics[2].score), (None, None));
    assert_eq!(card.not_measured, ["estimated_daily_cost_usd"]);
    assert!((card.coverage - 0.93).abs() < 1e-9, "a third of 0.20 is missing: {}", card.coverage);
    measured.usage = Some(MeasuredUsage { cost_micros: Some(0), ..usage() });
    assert_eq!(self::card(&measured).cost.metrics[2].score, Some(100.0), "what is free is known to be");
}

#[test]
fn background_work_has_a_price_and_no_other_merit() {
    let usage = MeasuredUsage { input_tokens: 5, cost_micros: Some(2_000_000), ..MeasuredUsage::default() };
    let card = card(&Measurements { usage: Some(usage), ..Measurements::default() });
    assert_eq!((card.cost.score, card.safety.score, card.compliance.score), (Some(100.0), None, None));
    assert_eq!(card.cost.metrics[2].value, Some(2.0));
}

#[test]
fn a_latency_beyond_the_bounds_is_said_to_be_at_least() {
    let mut measured = measured();
    measured.usage = Some(MeasuredUsage { latency: vec![0, 0, 0, 1], ..usage() });
    let latency = &card(&measured).cost.metrics[1];
    assert_eq!((latency.value, latency.at_least), (Some(3000.0), true));
}

#[test]
fn a_mean_is_exact_where_it_was_counted() {
    let mut measured = measured();
    let took = |count, of| Some(MeasuredUsage { took: Some(Share { count, of }), ..usage() });
    let average = |measured: &Measurements| card(measured).cost.metrics[1].value;
    measured.usage = took(40_000, 100);
    assert_eq!(average(&measured), Some(400.0));
    measured.usage = took(40_000, 99);
    assert_eq!(average(&measured), Some(2000.0), "one request was not counted: the histogram has them all");
}

#[test]
fn requests_without_a_duration_are_in_no_average() {
    let mut measured = measured();
    let took = Some(Share { count: 40_000, of: 100 });
    measured.usage = Some(MeasuredUsage { requests: 1_000, took, ..usage() });
    assert_eq!(card(&measured).cost.metrics[1].value, Some(400.0));
}

#[test]
fn grades_begin_where_the_specification_says() {
    for (score, grade) in [(100.0, "A"), (90.0, "A"), (89.99, "B"), (80.0, "B"), (79.99, "C"), (70.0, "C"), (60.0, "D"), (59.99, "F")] {
        assert_eq!(Grade::of(score).as_str(), grade, "{score}");
    }
}

fn count() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0_i64..2000, 1 => any::<i64>()]
}

fn any_usage() -> impl Strategy<Value = MeasuredUsage> {
    let share = || prop::option::of((count(), count()).prop_map(|(count, of)| Share { count, of }));
    (prop::array::uniform8(count()), prop::option::of(count()), prop::collection::vec(count(), 0..6), share(), share()).prop_map(
        |(
            [requests, errors, input_tokens, output_tokens, guard_blocks, pii, injections, violations],
            cost_micros,
            latency,
            audited,
            cited,
        )| {
            let (unknown, took) = (None, audited);
            let (tokens, counts) = ((input_tokens, output_tokens), (guard_blocks, pii, injections, violations));
            let ((input_tokens, output_tokens), (guard_blocks, pii, injections, violations)) = (tokens, counts);
            MeasuredUsage {
                requests,
                errors,
                unknown,
                input_tokens,
                output_tokens,
                cost_micros,
                guard_blocks,
                pii,
                injections,
                violations,
                latency,
                took,
                audited,
                cited,
            }
        },
    )
}

proptest! {
    #[test]
    fn whatever_rows_say_a_card_keeps_its_bounds(usage in prop::option::of(any_usage()), mean in prop::option::of(any::<f64>())) {
        let safety = mean.map(|mean| Score { mean, source: ScoreSource::Slipway });
        let card = card(&Measurements { usage, safety, latency_bounds: vec![500, 1000, 3000], ..Measurements::default() });
        prop_assert!(card.overall.is_none_or(|overall| (0.0..=100.0).contains(&overall)));
        prop_assert!((0.0..=1.0).contains(&card.coverage));
        prop_assert_eq!(card.overall.is_none(), card.not_measured.len() == 13);
        for metric in DimensionName::ALL.iter().flat_map(|name| &card.dimension(*name).metrics) {
            prop_assert_eq!(metric.value.is_some(), metric.score.is_some() && metric.status.is_some());
        }
    }
}
