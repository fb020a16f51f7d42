//! What `slipway-worker extract` is, by itself: the tests of extraction start it as their subprocess.

use std::process::ExitCode;

fn main() -> ExitCode {
    slipway_knowledge::subprocess::child_main(std::env::args_os().skip(1))
}
