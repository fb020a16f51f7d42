//! Tests that cannot be tried where they are run: told, and counted by `hack/test`, which takes none for a whole machine.

use std::fs::OpenOptions;
use std::io::Write;

/// Says why the current test ends here without having tried anything.
#[expect(clippy::print_stderr, reason = "the test harness shows it")]
pub fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    eprintln!("skipped: {why}");
    if let Some(list) = std::env::var_os("SLIPWAY_SKIPPED") {
        let written = OpenOptions::new().create(true).append(true).open(list).and_then(|mut list| writeln!(list, "{test}: {why}"));
        written.expect("the list of skipped tests can be written");
    }
}
