//! The GitOps controller of the story: a clone of the page's repository that is brought up to date whenever something was pushed, and
//! Argo CD's engine, which applies what it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use slipway_e2e::Checkout;
use slipway_e2e::gitops::Controller;

/// How often it looks whether something was pushed.
const POLL: Duration = Duration::from_millis(500);

pub(crate) struct Follower {
    pub(crate) controller: Controller,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Of a bare repository in which something lies.
    #[track_caller]
    pub(crate) fn of(bare: &Path, clone: PathBuf, namespace: &str) -> Self {
        let head = bare.join("refs/heads/main");
        let seen = pushed(&head);
        let checkout = Checkout::of(&bare.display().to_string(), clone, ".");
        let controller = Controller::start(&checkout, namespace, None);
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut seen = seen;
            while !ends.load(Ordering::Relaxed) {
                thread::sleep(POLL);
                let now = pushed(&head);
                if now != seen {
                    checkout.pull();
                    seen = now;
                }
            }
        });
        Self { controller, is_over, thread: Some(thread) }
    }
}

/// The newest commit.
fn pushed(head: &Path) -> String {
    fs::read_to_string(head).unwrap_or_default()
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it failed at has been told.
            let _ = thread.join();
        }
    }
}
