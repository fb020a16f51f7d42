//! What the guards cost. Run alone and optimised: `cargo test -p slipway-guards --test speed -- --ignored --nocapture`
//! with `CARGO_PROFILE_DEV_OPT_LEVEL=2 CARGO_PROFILE_DEV_DEBUG_ASSERTIONS=false`.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made says so by panicking")]

use std::time::{Duration, Instant};

use slipway_guards::{Guards, Side};

const ALL: &str = r#"["pii-detection", "secrets-scanner", "prompt-injection", "blocked-topics"]"#;
const EACH: [&str; 5] = [r#"["pii-detection"]"#, r#"["secrets-scanner"]"#, r#"["prompt-injection"]"#, r#"["blocked-topics"]"#, ALL];

fn text() -> String {
    let paragraph = "Dear team, the meeting on 2026-11-23 moves to 14:30 in room 4.12; please tell Anna (anna@mail.example.org) and call +44 20 7946 0018 \
        if you can't come. I would like you to explain how the new release works, show every step, and write down what the system needs. \
        The build 3f786850e387550fdab836ed7e6dc881de23001b passed, see https://ci.example.org/builds/8812?tab=logs for details. ";
    paragraph.repeat(20)[..4096].to_owned()
}

/// The fastest of many: other work on the machine only ever adds.
fn fastest(mut act: impl FnMut()) -> Duration {
    let mut timed = || {
        let start = Instant::now();
        act();
        start.elapsed()
    };
    (0..4000).map(|_| timed()).min().unwrap()
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
        let time = fastest(|| {
            kept[0].check(Side::Input, &text);
        });
        println!("{settings}: {memory} KiB, check of 4 KiB {time:?}");
    }
    let guards = Guards::read(ALL, "").unwrap();
    let built = fastest(|| drop(Guards::read(ALL, "").unwrap()));
    let stream = fastest(|| {
        let mut stream = guards.stream();
        for token in text.split_inclusive(' ') {
            stream.push(token);
        }
        stream.finish();
    });
    let whole = fastest(|| {
        guards.check(Side::Input, &text);
    });
    println!("built in {built:?}; stream of 4 KiB in tokens {stream:?}");
    if !cfg!(debug_assertions) {
        assert!(whole <= Duration::from_micros(400), "check of 4 KiB took {whole:?}");
    }
}
