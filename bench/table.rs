//! The printed table: what was measured, its floor beside it, and the ratio of the two. All that is printed is kept, to be
//! written as JSON in the end.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use serde_json::{Value, json};

use crate::numbers::exponent;

static KEPT: Mutex<Vec<Value>> = Mutex::new(Vec::new());

fn keep(line: Value) {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(line);
}

/// Writes what was printed so far.
pub(crate) fn write(path: &Path) -> anyhow::Result<()> {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    fs::write(path, serde_json::to_vec_pretty(&*kept)?).with_context(|| path.display().to_string())
}

/// Begins a part of the table.
pub(crate) fn part(title: &str) {
    println!("\n{title}");
    keep(json!({"part": title}));
}

/// A measured value beside its floor.
pub(crate) fn beside(what: &str, measured: (&str, f64), floor: (&str, f64), goal: &str) {
    let ratio = format!("{:.2} x", measured.1 / floor.1);
    println!("  {what:<34} {:>14}   floor {:>14}   {ratio:>9}   goal {goal}", measured.0, floor.0);
    keep(json!({"what": what, "measured": measured.0, "floor": floor.0, "ratio": measured.1 / floor.1, "goal": goal}));
}

/// A measured value that has no floor but zero.
pub(crate) fn alone(what: &str, measured: &str, goal: &str) {
    keep(json!({"what": what, "measured": measured, "goal": goal}));
    let goal = if goal.is_empty() { String::new() } else { format!("   goal {goal}") };
    println!("  {what:<34} {measured:>14}{goal}");
}

/// A remark on what was printed before.
pub(crate) fn remark(text: &str) {
    println!("    {text}");
    keep(json!({"remark": text}));
}

/// How values grow with the size; 1 is linear.
pub(crate) fn growth(what: &str, points: &[(u32, f64)]) {
    if let Some(exponent) = exponent(points).filter(|_| points.len() > 1) {
        let sizes: Vec<String> = points.iter().map(|(size, _)| size.to_string()).collect();
        println!("  {what:<34} {:>14}   between {}", format!("n^{exponent:.2}"), sizes.join(" and "));
        keep(json!({"what": what, "exponent": exponent, "between": sizes}));
    }
}

/// What else the machine was doing, for those who read absolute numbers.
pub(crate) fn machine() {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown").to_owned();
    println!("{cores} cores, load average of the last minute {load}");
    keep(json!({"cores": cores, "load": load}));
}

pub(crate) fn seconds(value: f64) -> String {
    format!("{value:.2} s")
}

pub(crate) fn milliseconds(value: f64) -> String {
    format!("{:.2} ms", value * 1000.0)
}

pub(crate) fn mebibytes(kib: f64) -> String {
    format!("{:.1} MiB", kib / 1024.0)
}

pub(crate) fn per_second(value: f64) -> String {
    format!("{value:.0}/s")
}

/// The memory of this process, in KiB.
pub(crate) fn resident() -> anyhow::Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
