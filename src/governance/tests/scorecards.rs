//! Scorecards of measurements in JSON, and the same computed by a program that shares nothing with ours but the specification.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_database::LATENCY_BOUNDS_MS;
use slipway_governance::{Dimension, DimensionName, MeasuredUsage, Measurements, Score, ScoreSource, Share, quantile, scorecard};

fn share(value: &Value) -> Option<Share> {
    Some(Share { count: value["count"].as_i64()?, of: value["of"].as_i64()? })
}

fn score(value: &Value) -> Option<Score> {
    let source = if value["source"] == "mlflow" { ScoreSource::Mlflow } else { ScoreSource::Slipway };
    Some(Score { mean: value["mean"].as_f64()?, source })
}

fn usage(value: &Value) -> Option<MeasuredUsage> {
    let count = |name: &str| value[name].as_i64();
    let counted = |name| count(name).unwrap_or(0);
    Some(MeasuredUsage {
        requests: count("requests")?,
        errors: counted("errors"),
        unknown: count("unknown"),
        input_tokens: counted("input_tokens"),
        output_tokens: counted("output_tokens"),
        cost_micros: count("cost_micros"),
        guard_blocks: counted("guard_blocks"),
        pii: counted("pii"),
        injections: counted("injections"),
        violations: counted("violations"),
        latency: value["latency"].as_array().unwrap().iter().map(|count| count.as_i64().unwrap()).collect(),
        took: share(&value["took"]),
        audited: share(&value["audited"]),
        cited: share(&value["cited"]),
    })
}

fn measured(value: &Value) -> Measurements {
    Measurements {
        usage: usage(&value["usage"]),
        latency_bounds: LATENCY_BOUNDS_MS.to_vec(),
        correctness: score(&value["correctness"]),
        relevance_to_query: score(&value["relevance_to_query"]),
        safety: score(&value["safety"]),
        factual_accuracy: score(&value["factual_accuracy"]),
        min_score: value["min_score"].as_f64(),
        safety_floor: value["safety_floor"].as_f64(),
    }
}

fn dimension(dimension: &Dimension) -> Value {
    let metrics: Vec<Value> = dimension
        .metrics
        .iter()
        .map(|metric| {
            json!({"name": metric.name, "value": metric.value, "score": metric.score, "status": metric.status.map(slipway_governance::MetricStatus::as_str),
                "threshold": metric.threshold, "unit": metric.unit.as_str(), "at_least": metric.at_least, "source": metric.source.as_str()})
        })
        .collect();
    json!({"score": dimension.score, "grade": dimension.grade.map(slipway_governance::Grade::as_str), "metrics": metrics})
}

fn ours(value: &Value) -> Value {
    let measured = measured(value);
    let card = scorecard(&measured, Timestamp::UNIX_EPOCH);
    let [quality, safety, cost, compliance] = DimensionName::ALL.map(|name| dimension(card.dimension(name)));
    let usage = measured.usage.unwrap_or_default();
    let estimate = |found: Option<slipway_governance::Estimate>| found.map(|found| json!([found.value, found.at_least]));
    let average = estimate(usage.average_latency(&LATENCY_BOUNDS_MS));
    let p95 = estimate(quantile(&LATENCY_BOUNDS_MS, &usage.latency, 0.95));
    json!({"overall": card.overall, "grade": card.grade.map(slipway_governance::Grade::as_str), "quality": quality, "safety": safety, "cost": cost,
        "compliance": compliance, "coverage": card.coverage, "not_measured": card.not_measured, "data_source": card.source.as_str(),
        "average": average, "p95": p95, "error_rate": usage.error_percent()})
}

/// Numbers as they are after a multiplication in another order.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
            (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1.0)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len() && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| is_same(one, other)))
        }
        (one, other) => one == other,
    }
}

/// The same numbers each time, of every kind and size: 200 agents, of each of which something else was measured.
fn agents() -> Vec<Value> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let mut agents = Vec::new();
    for _ in 0..200 {
        let size = [1, 10, 1_000, 100_000][usize::try_from(below(4)).unwrap()];
        let requests = below(size + 1);
        let mut latency = vec![0; LATENCY_BOUNDS_MS.len() + 1];
        for _ in 0..requests.min(500) {
            latency[usize::try_from(below(16)).unwrap()] += 1;
        }
        let mut some = |value: Value| if below(3) == 0 { Value::Null } else { value };
        let usage = json!({"requests": requests, "errors": requests / 7, "unknown": some(json!(requests / 11)), "input_tokens": requests * 900,
            "output_tokens": requests * 350, "cost_micros": some(json!(requests * 4321)), "guard_blocks": requests / 3, "pii": requests / 5,
            "injections": requests / 40, "violations": requests / 30, "latency": latency,
            "took": some(json!({"count": requests * 613, "of": requests.min(500) - requests % 2})),
            "audited": some(json!({"count": requests / 2 + requests % 2, "of": requests})), "cited": some(json!({"count": requests / 5, "of": requests / 2}))});
        let agent = json!({"usage": some(usage), "min_score": some(json!(75)), "safety_floor": some(json!(0.8))});
        let mut agent = agent;
        for scorer in ["correctness", "relevance_to_query", "safety", "factual_accuracy"] {
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let mean = below(1101) as f64 / 1000.0;
            let source = if below(4) == 0 { "mlflow" } else { "slipway" };
            agent[scorer] = if below(3) == 0 { Value::Null } else { json!({"mean": mean, "source": source}) };
        }
        agents.push(agent);
    }
    agents
}

#[test]
fn an_independent_program_computes_the_same_scorecards() {
    let agents = agents();
    let folder = std::env::temp_dir().join(format!("scorecards-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("measurements.json");
    fs::write(&file, json!({"bounds": LATENCY_BOUNDS_MS, "agents": agents}).to_string()).unwrap();
    let script = slipway_peers::repository().join("src/governance/tests/scorecards.py");
    let output = slipway_peers::python(&script, &[file.to_str().unwrap()], &[]);
    fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(theirs.len(), agents.len());
    for (agent, theirs) in agents.iter().zip(&theirs) {
        let ours = ours(agent);
        assert!(is_same(&ours, theirs), "{agent:#}\nours: {ours:#}\ntheirs: {theirs:#}");
    }
    let overall: Vec<_> = theirs.iter().filter_map(|card| card["overall"].as_f64()).collect();
    let (lowest, highest) = overall.iter().fold((100.0_f64, 0.0_f64), |(low, high), value| (low.min(*value), high.max(*value)));
    assert!(overall.len() > 150 && lowest < 50.0 && highest > 90.0, "the cases differ: {} from {lowest} to {highest}", overall.len());
}
