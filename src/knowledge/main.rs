//! The program of knowledge bases. So far it reads documents, as a subprocess of itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    slipway_knowledge::subprocess::child_main(std::env::args_os().skip(1))
}
