//! Tasks without which a process is of no use: its watches and its controllers. A task that ends though nobody asked it to,
//! be it by a panic, fails the process: liveness says so, and the manager ends the process.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The tasks of one process. Clones speak of the same.
#[derive(Clone)]
pub struct Tasks(watch::Sender<Option<String>>);

impl Default for Tasks {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Tasks {
    /// Runs a task that has no end. One that is aborted has not failed.
    pub fn spawn(&self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.spawn_while(|| true, name, task)
    }

    /// Runs a task that may end once `goes_on` says no.
    pub fn spawn_while(
        &self,
        goes_on: impl Fn() -> bool + Send + 'static,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let (tasks, name) = (self.clone(), name.into());
        tokio::spawn(async move {
            let why = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(()) if !goes_on() => return,
                Ok(()) => "it ended".to_owned(),
                Err(panic) => format!("it panicked: {}", panic_message(&*panic)),
            };
            tracing::error!(task = name, why, "a task that has no end is over");
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
        // The sender is this very object, so that the channel stays open.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }
}

/// What a panic said.
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
    async fn what_is_told_to_end_has_not_failed() {
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
