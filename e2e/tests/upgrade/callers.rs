//! People who go on asking while the platform changes, and what they did not get.

use std::io::{Error, ErrorKind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use slipway_e2e::Call;

/// How long each of them thinks before asking again.
const THOUGHT: Duration = Duration::from_millis(40);
/// How long a caller whose connection is refused tries again.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Somebody who makes the same call again and again, in a thread of its own, until asked what became of it.
pub(crate) struct Caller {
    stop: Sender<()>,
    told: JoinHandle<CallerReport>,
}

/// What somebody was answered.
#[derive(Default, Debug)]
pub(crate) struct CallerReport {
    pub answered: usize,
    /// Doors that were found closed before anything was said, and opened when they were knocked at again.
    pub knocked_twice: usize,
    pub faults: Vec<String>,
    pub slowest: Duration,
}

impl Caller {
    /// A caller that expects `says` in each answer.
    pub(crate) fn of(call: Call, says: &str) -> Self {
        let (stop, stopped) = channel::<()>();
        let says = says.to_owned();
        let told = thread::spawn(move || {
            let (mut told, began) = (CallerReport::default(), Instant::now());
            while matches!(stopped.recv_timeout(THOUGHT), Err(RecvTimeoutError::Timeout)) {
                let asked = Instant::now();
                if let Err(fault) = ask(&call, &says, &mut told) {
                    told.faults.push(format!("after {:.2} s: {fault}", (asked - began).as_secs_f64()));
                }
                told.slowest = told.slowest.max(asked.elapsed());
            }
            told
        });
        Self { stop, told }
    }

    /// Ends it.
    #[track_caller]
    pub(crate) fn told(self) -> CallerReport {
        drop(self.stop);
        self.told.join().unwrap_or_else(|_| panic!("a caller ended by itself"))
    }
}

/// Nothing was said: nobody listens there any more, or nobody is there.
fn is_closed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::TimedOut)
}

fn ask(call: &Call, says: &str, told: &mut CallerReport) -> Result<(), String> {
    let began = Instant::now();
    let mut knocked = 0;
    let reply = loop {
        match call.try_send() {
            Err(error) if is_closed(&error) && began.elapsed() < RECONNECT_TIMEOUT => {
                knocked += 1;
                thread::sleep(THOUGHT);
            }
            other => break other.map_err(|error| error.to_string())?,
        }
    };
    if reply.status != 200 || !reply.body.contains(says) {
        return Err(format!("{reply:?}"));
    }
    told.answered += 1;
    told.knocked_twice += usize::from(knocked > 0);
    Ok(())
}
