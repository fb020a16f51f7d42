//! A program's output as pages: a thread parses while the next pages are printed, a few pages ahead of who takes them.

use std::io::{self, BufReader};
use std::process::{ChildStdout, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::extract::program::{Allowance, Running};

/// How many pages are parsed ahead.
const AHEAD: usize = 4;

pub(super) struct Stream<T> {
    /// Dropped before the receiver and so killed first: the thread then comes to the output's end.
    running: Running,
    pages: Receiver<T>,
    thread: Option<JoinHandle<()>>,
}

pub(super) enum Next<T> {
    Page(T),
    /// The output is at its end, whatever the reason.
    End,
    /// No page came in time; the program is killed.
    Stalled,
}

/// What a parser gives pages to; false when nobody wants more.
pub(super) type Give<'a, T> = dyn FnMut(T) -> bool + 'a;

impl<T: Send + 'static> Stream<T> {
    pub(super) fn start(
        command: Command,
        allowance: Allowance,
        parse: fn(BufReader<ChildStdout>, &mut Give<'_, T>) -> io::Result<()>,
    ) -> io::Result<Self> {
        let mut running = Running::start(command, allowance)?;
        let output = running.output().ok_or_else(|| io::Error::other("a program has no output"))?;
        let (sender, pages): (SyncSender<T>, _) = sync_channel(AHEAD);
        // A fault of reading ends the pages, as the program's own end does.
        let thread = thread::spawn(move || drop(parse(output, &mut |page| sender.send(page).is_ok())));
        Ok(Self { running, pages, thread: Some(thread) })
    }

    pub(super) fn next(&mut self, patience: Duration) -> Next<T> {
        match self.pages.recv_timeout(patience) {
            Ok(page) => Next::Page(page),
            Err(RecvTimeoutError::Disconnected) => {
                if let Some(thread) = self.thread.take() {
                    let _ = thread.join();
                }
                Next::End
            }
            Err(RecvTimeoutError::Timeout) => {
                self.running.kill();
                Next::Stalled
            }
        }
    }
}
