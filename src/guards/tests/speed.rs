//! The cost of the guards. Run alone and optimised: `cargo test --release -p slipway-guards --test speed -- --ignored --nocapture`.
//! `GUARD='["secrets-scanner"]' valgrind --tool=callgrind speed-… --ignored one_guard` counts its instructions.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made says so by panicking")]

use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use slipway_guards::{Asked, Budget, Guards, Policy, Side, Spent};

const ALL: &str = r#"["pii-detection", "secrets-scanner", "prompt-injection", "blocked-topics"]"#;
const EACH: [&str; 5] = [r#"["pii-detection"]"#, r#"["secrets-scanner"]"#, r#"["prompt-injection"]"#, r#"["blocked-topics"]"#, ALL];

fn text() -> String {
    let paragraph = "Dear team, the meeting on 2026-11-23 moves to 14:30 in room 4.12; please tell Anna (anna@mail.example.org) and call +44 20 7946 0018 \
        if you can't come. I would like you to explain how the new release works, show every step, and write down what the system needs. \
        The build 3f786850e387550fdab836ed7e6dc881de23001b passed, see https://ci.example.org/builds/8812?tab=logs for details. ";
    paragraph.repeat(20)[..4096].to_owned()
}

/// The fastest of many runs: other work on the machine only adds time.
fn fastest(rounds: usize, mut act: impl FnMut()) -> Duration {
    let mut timed = || {
        let start = Instant::now();
        act();
        start.elapsed()
    };
    (0..rounds).map(|_| timed()).min().unwrap()
}

/// Kilobytes of memory that this process has resident.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "measures time and memory"]
fn what_the_guards_cost() {
    let text = text();
    for settings in EACH {
        let before = resident();
        let kept: Vec<Guards> = (0..20).map(|_| Guards::read(settings, "").unwrap()).collect();
        let memory = resident().saturating_sub(before) / 20;
        let time = fastest(4000, || {
            kept[0].check(Side::Input, &text);
        });
        println!("{settings}: {memory} KiB, check of 4 KiB {time:?}");
    }
    let guards = Guards::read(ALL, "").unwrap();
    let built = fastest(400, || drop(Guards::read(ALL, "").unwrap()));
    let stream = fastest(4000, || {
        let mut stream = guards.stream();
        for token in text.split_inclusive(' ') {
            stream.push(token);
        }
        stream.finish();
    });
    let whole = fastest(4000, || {
        guards.check(Side::Input, &text);
    });
    println!("built in {built:?}; stream of 4 KiB in tokens {stream:?}");
    if !cfg!(debug_assertions) {
        assert!(whole <= Duration::from_micros(200), "check of 4 KiB took {whole:?}");
    }
}

/// Ten policies, one rule of each type in most of them, beside all guards.
fn ten_policies() -> Vec<Policy> {
    let rules = |number: usize| {
        json!([
            {"type": "blocked_topics", "operator": "contains", "value": format!("violence, illegal_activity, self_harm, topic {number}, insider trading")},
            {"type": "max_tokens", "operator": "lt", "value": "100000"},
            {"type": "max_latency", "operator": "lt", "value": "2000"},
            {"type": "max_cost_per_day", "operator": "lt", "value": "1000"},
            {"type": "max_requests_per_minute", "operator": "lt", "value": "1000000"},
            {"type": "denied_tools", "operator": "contains", "value": "shell, github"},
            {"type": "allowed_models", "operator": "in", "value": "openai:gpt-4o, anthropic:*"},
            {"type": "required_guards", "operator": "contains", "value": "pii-detection, secrets-scanner"},
        ])
    };
    let policy = |number| {
        let severity = if number % 2 == 0 { "critical" } else { "warning" };
        Policy::read(json!({"id": format!("gp_{number}"), "severity": severity, "rules": rules(number)})).unwrap()
    };
    (0..10).map(policy).collect()
}

/// What a chat of 1 KiB pays: its message is judged, its limits, its model and a tool; and an answer of 1 KiB in tokens.
#[test]
#[ignore = "measures time"]
fn what_ten_policies_and_all_guards_cost_a_chat() {
    const EVERY: &str =
        r#"["pii-detection", "secrets-scanner", "prompt-injection", "blocked-topics", "max-tokens", "rate-limit", "spend-limit"]"#;
    let message = &text()[..1024];
    let policies = ten_policies();
    let every = EVERY.replace(r#""max-tokens""#, r#"{"name": "max-tokens", "limit": 100000}"#);
    let every = every.replace(r#""rate-limit""#, r#"{"name": "rate-limit", "requests": 1000000}"#);
    let guards = Guards::compile(&every, &policies).unwrap();
    let tokens: Vec<&str> = message.split_inclusive(' ').collect();
    let before = || {
        black_box(guards.model("openai", "gpt-4o"));
        let budget = Budget {
            now: SystemTime::now(),
            tokens_in_prompt: 256,
            unpriced: None,
            expected_usd: 0.001,
            tick: Instant::now(),
            lease: Asked::NotYet,
        };
        let turn = guards.before_turn(&budget);
        black_box(guards.check(Side::Input, black_box(message)));
        let spent = Spent { now: budget.now, tokens_in_prompt: 256, tokens: 300, usd: 0.0, latency: Duration::from_millis(1) };
        black_box(guards.after(&spent));
        turn
    };
    let answer = || {
        let mut stream = guards.stream();
        for token in &tokens {
            black_box(stream.push(token));
        }
        black_box(stream.finish());
    };
    for (what, act) in [("message and limits", &(|| drop(before())) as &dyn Fn()), ("answer in tokens", &answer)] {
        // Twenty windows of a thousand: of the quietest, as other work on the machine only adds time.
        let window = || {
            let once = |_| {
                let start = Instant::now();
                act();
                start.elapsed()
            };
            let mut times: Vec<Duration> = (0..1000).map(once).collect();
            times.sort_unstable();
            (times[990], times[500])
        };
        let windows: Vec<_> = (0..20).map(|_| window()).collect();
        let (p99, p50) = *windows.iter().min().unwrap();
        let worst = windows.iter().max().unwrap().0;
        println!("{what}, 1 KiB: p50 {p50:?}, p99 {p99:?}; p99 of the busiest window {worst:?}");
        if !cfg!(debug_assertions) {
            assert!(p99 <= Duration::from_micros(100), "{what}: p99 {p99:?}");
        }
    }
    let built = fastest(100, || drop(Guards::compile(&every, &policies).unwrap()));
    println!("compiled in {built:?}");
}

/// One text, checked a hundred times, so that the rest of the process is negligible.
#[test]
#[ignore = "for a profiler"]
fn one_guard() {
    let guards = Guards::read(&std::env::var("GUARD").unwrap_or_else(|_| ALL.to_owned()), "").unwrap();
    let text = text();
    for _ in 0..100 {
        black_box(guards.check(Side::Input, black_box(&text)));
    }
}

/// Adversarial texts for a guard: eight times the text may take little more than eight times as long.
/// `PIECE` names one of them, to be measured alone.
#[test]
#[ignore = "measures time"]
fn no_text_costs_more_than_its_length() {
    let guards = Guards::read(ALL, "").unwrap();
    let pieces = [
        "x",
        "=",
        ":",
        "\"",
        "@",
        "1 ",
        "1.",
        "12-",
        "a=",
        "key=",
        "api_key: ",
        "password=\"",
        "eyJ-",
        "eyJa.",
        "sk-",
        "xoxb-",
        "ops_eyJ-",
        "://",
        "a://b:c@",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY",
        "a@b.co,",
        "a b ",
        "0x1 ",
        "01010101 ",
        "SWdub3Jl",
        "é",
        "\u{200b}",
        "р",
        "炸",
        "ignore all previous ",
        "kill ",
        "bearer ",
        "GB29",
        "::1",
        "<",
        "[INST",
        "\n",
        "system:\n",
        "AKIA",
        "4111 ",
        "A3-",
        ".atlasv1.",
        "Q~",
        "MII",
        "Ａ",
        "discord,",
    ];
    let asked = std::env::var("PIECE").ok();
    for piece in pieces.into_iter().filter(|piece| asked.as_deref().is_none_or(|asked| asked == *piece)) {
        let text = piece.repeat((1 << 19) / piece.len());
        let short = fastest(5, || drop(black_box(guards.check(Side::Input, &text[..text.floor_char_boundary(1 << 16)]))));
        let long = fastest(2, || drop(black_box(guards.check(Side::Input, &text))));
        let bytes = f64::from(u32::try_from(text.len()).unwrap());
        let (nanoseconds, growth) = (long.as_secs_f64() * 1e9 / bytes, long.as_secs_f64() / short.as_secs_f64());
        println!("{piece:?}: {nanoseconds:.0} ns a byte; eight times the text takes {growth:.1} times as long");
        assert!(growth < 24.0, "{piece:?}: eight times the text takes {growth:.1} times as long");
    }
}
