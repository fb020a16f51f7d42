//! Bad weather between the installed manager and its API server, until it is stopped: `hack/test weather` runs this.
//!
//!     slipway-weather LISTEN SERVER
//!
//! Both are addresses of plain HTTP: who comes in proves who he is by a token, which is handed on.

use std::env;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use slipway_e2e::fault::{Door, Weather, seed};

/// Bad enough that every scenario meets some of it, and good enough that each gets to its end in the time that it has.
const WEATHER: Weather = Weather { refused: 4, unheard: 3, stale: 4, lost: 60, repeated: 10, slow: 60 };
/// How long it stays so.
const DAY: Duration = Duration::from_hours(24);
/// How often it is told what has happened.
const NEWS: Duration = Duration::from_secs(10);

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that tells on its output what it has done")]
fn main() -> ExitCode {
    let addresses: Vec<SocketAddr> = env::args().skip(1).filter_map(|address| address.parse().ok()).collect();
    let &[listen, server] = addresses.as_slice() else {
        eprintln!("usage: slipway-weather LISTEN SERVER, both as in 127.0.0.1:80");
        return ExitCode::from(2);
    };
    let door = Door::wide(listen, server);
    door.storm(WEATHER, seed(), DAY);
    loop {
        thread::sleep(NEWS);
        println!("{:?}", door.met());
    }
}
