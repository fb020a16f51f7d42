//! The essential tasks of a process: watches and controllers. A task that ends unasked or panics fails the process: the
//! liveness probe reports it, and the manager exits.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The tasks of one process. Clones share the same state.
#[derive(Clone)]
pub struct Tasks(watch::Sender<Option<String>>);

impl Default for Tasks {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Tasks {
    /// Runs a task that must not end. An aborted task has not failed.
    pub fn spawn(&self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.spawn_while(|| true, name, task)
    }

    /// Runs a task that may end once `must_run` returns false.
    pub fn spawn_while(
        &self,
        must_run: impl Fn() -> bool + Send + 'static,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let (tasks, name) = (self.clone(), name.into());
        tokio::spawn(async move {
            let why = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(()) if !must_run() => return,
                Ok(()) => "it ended".to_owned(),
                Err(panic) => format!("it panicked: {}", panic_message(&*panic)),
            };
            tracing::error!(task = name, why, "an essential task ended");
            tasks.0.send_if_modified(|failure| {
                let is_first = failure.is_none();
                failure.get_or_insert_with(|| format!("{name}: {why}"));
                is_first
            });
        })
    }

    /// Runs a task that ends once it is done. A panic fails the process.
    pub fn spawn_once(&self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.spawn_while(|| false, name, task)
    }

    /// The first task that failed, and how.
    pub fn failure(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Resolves once a task has failed.
    pub async fn failed(&self) {
        // `self` is the sender, so that the channel stays open.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_or_panics_fails_the_process() {
        let (ends, panics) = (Tasks::default(), Tasks::default());
        drop(ends.spawn("watch of pods", async {}));
        ends.failed().await;
        assert_eq!(ends.failure().as_deref(), Some("watch of pods: it ended"));
        drop(panics.spawn("controller agent", async { panic!("no {}", "way") }));
        panics.failed().await;
        assert_eq!(panics.failure().as_deref(), Some("controller agent: it panicked: no way"));
        let finite = Tasks::default();
        finite.spawn_once("a walk", async { panic!("lost") }).await.unwrap();
        assert_eq!(finite.failure().as_deref(), Some("a walk: it panicked: lost"));
        ends.spawn("another", async {}).await.unwrap();
        assert_eq!(ends.failure().as_deref(), Some("watch of pods: it ended"), "the first counts");
    }

    #[tokio::test]
    async fn a_task_that_may_end_or_is_aborted_has_not_failed() {
        let (tasks, goes_on) = (Tasks::default(), Arc::new(AtomicBool::new(true)));
        let asked = goes_on.clone();
        tasks
            .spawn_while(move || asked.load(Ordering::SeqCst), "one", async move { goes_on.store(false, Ordering::SeqCst) })
            .await
            .unwrap();
        tasks.spawn_once("done", async {}).await.unwrap();
        let aborted = tasks.spawn("two", pending());
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
        assert_eq!(tasks.failure(), None);
    }
}
