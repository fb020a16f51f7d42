//! A controller without a cluster: requests, calls of the reconciler, and their times.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use thiserror::Error;
use tokio::time::{sleep, timeout};

use super::*;

#[derive(Debug, Error)]
#[error("no")]
struct No;

impl Failure for No {
    fn category(&self) -> &'static str {
        "no"
    }
}

/// A running controller, and the sender of its phase.
struct Running {
    requests: Requests,
    metrics: Metrics,
    phase: watch::Sender<Phase>,
    task: JoinHandle<()>,
}

impl Running {
    fn new<F>(concurrency: usize, reconcile: impl Fn(Key) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Next<No>> + Send + 'static,
    {
        let (requests, metrics, phase) = (Requests::default(), Metrics::default(), watch::Sender::new(Phase::Running));
        let options = Options { name: "test", concurrency, requests: requests.clone(), metrics: metrics.clone(), phase: phase.subscribe() };
        let task = start::<ConfigMap, No, F>(&Tasks::default(), options, reconcile);
        Self { requests, metrics, phase, task }
    }

    fn errors(&self, category: &'static str) -> u64 {
        self.metrics.errors.get_or_create(&ByCategory { controller: "test", category }).get()
    }
}

fn key(name: &str) -> Key {
    Key::new("team-a", name)
}

/// The calls of a reconciler, in order, with their times.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(String, Instant)>>>);

impl Log {
    fn note(&self, key: &Key) -> usize {
        let mut log = self.0.lock().unwrap();
        log.push((key.name.clone(), Instant::now()));
        log.iter().filter(|(name, _)| *name == key.name).count()
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }

    fn pauses(&self) -> Vec<Duration> {
        self.0.lock().unwrap().windows(2).map(|two| two[1].1 - two[0].1).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_coalesced_until_the_reconcile_begins() {
    let log = Log::default();
    let at_once = Arc::new(AtomicUsize::new(0));
    let controller = Running::new(4, {
        let log = log.clone();
        move |key| {
            let (log, at_once) = (log.clone(), at_once.clone());
            async move {
                log.note(&key);
                assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0, "one object has one reconcile at a time");
                sleep(Duration::from_secs(1)).await;
                at_once.fetch_sub(1, Ordering::SeqCst);
                Ok(None)
            }
        }
    });
    controller.requests.add_all([key("a"), key("a"), key("a")]);
    assert_eq!(controller.requests.depth(), 1);
    sleep(Duration::from_millis(500)).await;
    assert_eq!((log.names().len(), controller.requests.depth()), (1, 0));
    controller.requests.add_all([key("a"), key("a")]);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(log.names().len(), 2, "a request during the reconcile is reconciled after it, though that one wanted no more");
    controller.requests.add(key("a"));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(log.names().len(), 3, "an object without a requeue is reconciled again on request");
    assert_eq!(controller.errors("panic"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_earliest_time_counts_and_a_resync_comes_back() {
    let log = Log::default();
    let controller = Running::new(1, {
        let log = log.clone();
        move |key| {
            log.note(&key);
            future::ready(Ok(Some(RESYNC)))
        }
    });
    let start = Instant::now();
    for seconds in [30, 1, 60] {
        controller.requests.add_after(key("a"), Duration::from_secs(seconds));
    }
    sleep(Duration::from_secs(20)).await;
    assert_eq!(log.names().len(), 1);
    let first = log.0.lock().unwrap()[0].1 - start;
    assert!(first >= Duration::from_secs(1) && first < Duration::from_secs(2), "{first:?}");
    controller.requests.add(key("a"));
    sleep(Duration::from_millis(10)).await;
    assert_eq!(log.names().len(), 2, "a request does not wait for the resync");
    sleep(RESYNC + Duration::from_millis(10)).await;
    assert_eq!(log.names().len(), 3, "and a resync comes within its time");
    assert_eq!(RESYNC.as_secs(), 30, "as the specification says");
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_growing_pauses() {
    let log = Log::default();
    let controller = Running::new(1, {
        let log = log.clone();
        move |key| future::ready(if log.note(&key) == 5 { Ok(Some(Duration::from_hours(1))) } else { Err(No) })
    });
    controller.requests.add(key("a"));
    sleep(Duration::from_mins(1)).await;
    assert_eq!((log.names().len(), controller.errors("no")), (5, 4));
    let pauses: Vec<u128> = log.pauses().iter().map(|pause| pause.as_millis() / 100).collect();
    assert_eq!(pauses, [5, 10, 20, 40]);
    controller.requests.add(key("a"));
    sleep(Duration::from_millis(700)).await;
    assert_eq!(log.names().len(), 7, "after a success the pauses begin anew");
}

/// In earlier versions the first panic ended a worker silently.
#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failed_reconcile_and_ends_no_worker() {
    let log = Log::default();
    let controller = Running::new(1, {
        let log = log.clone();
        move |key| {
            let times = log.note(&key);
            assert!(key.name != "bad" || times > 2, "out of order");
            future::ready(Ok(None))
        }
    });
    controller.requests.add_all([key("bad"), key("bad")]);
    sleep(Duration::from_millis(100)).await;
    controller.requests.add_all([key("good"), key("better")]);
    sleep(Duration::from_millis(100)).await;
    let mut others = log.names().split_off(1);
    others.sort();
    assert_eq!(others, ["better", "good"], "the only worker goes on");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(log.names().split_off(3), ["bad", "bad"], "and what panicked is tried again");
    assert_eq!(controller.errors("panic"), 2);
    assert!(!controller.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn concurrency_is_limited() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let controller = Running::new(3, {
        let most = most.clone();
        move |_| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_secs(1)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(None)
            }
        }
    });
    controller.requests.add_all((0..30).map(|at| key(&at.to_string())));
    sleep(Duration::from_secs(11)).await;
    let by = ByController { controller: "test" };
    assert_eq!((controller.metrics.reconciles.get_or_create(&by).get(), most.load(Ordering::SeqCst)), (30, 3));
}

/// kube would take what is due in the order of a hash set.
#[tokio::test(start_paused = true)]
async fn first_in_is_first_out_and_a_busy_object_overtakes_nobody() {
    let (log, requests) = (Log::default(), Arc::new(Mutex::new(Requests::default())));
    let controller = Running::new(1, {
        let (log, requests) = (log.clone(), requests.clone());
        move |of: Key| {
            let (log, requests) = (log.clone(), requests.lock().unwrap().clone());
            async move {
                log.note(&of);
                if of.name == "busy" {
                    requests.add(of);
                }
                sleep(Duration::from_millis(10)).await;
                Ok(None)
            }
        }
    });
    *requests.lock().unwrap() = controller.requests.clone();
    let names: Vec<String> = (0..100).map(|at| at.to_string()).collect();
    controller.requests.add(key("busy"));
    controller.requests.add_all(names.iter().map(|name| key(name)));
    sleep(Duration::from_secs(5)).await;
    let log = log.names();
    let (busy, others): (Vec<_>, Vec<_>) = log.into_iter().partition(|name| name == "busy");
    assert_eq!(others, names);
    assert!(busy.len() > 50, "it has its turn when the others have had theirs: {}", busy.len());
}

#[tokio::test(start_paused = true)]
async fn what_is_due_by_its_time_waits_its_turn_and_no_longer() {
    let log = Log::default();
    let controller = Running::new(1, {
        let log = log.clone();
        move |of: Key| {
            let log = log.clone();
            async move {
                log.note(&of);
                sleep(Duration::from_millis(100)).await;
                Ok(None)
            }
        }
    });
    // A second's work at once, and another that is due early in it.
    controller.requests.add_all((0..10).map(|at| key(&format!("now-{at}"))));
    for (name, millis) in [("second", 150), ("first", 120)] {
        controller.requests.add_after(key(name), Duration::from_millis(millis));
    }
    sleep(Duration::from_secs(3)).await;
    let names = log.names();
    let place = |name: &str| names.iter().position(|found| found == name).unwrap();
    assert!(place("first") < place("second") && place("second") <= 7, "{names:?}");
    assert_eq!(names.len(), 12);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_requested_during_its_reconcile_takes_no_place_of_others() {
    let log = Log::default();
    let controller = Running::new(2, {
        let log = log.clone();
        move |of: Key| {
            let log = log.clone();
            async move {
                log.note(&of);
                sleep(Duration::from_secs(if of.name == "slow" { 10 } else { 1 })).await;
                Ok(None)
            }
        }
    });
    controller.requests.add(key("slow"));
    sleep(Duration::from_secs(1)).await;
    controller.requests.add_all([key("slow"), key("a"), key("b")]);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(log.names(), ["slow", "a", "b"]);
    assert_eq!(controller.requests.depth(), 1, "its second reconcile has yet to begin");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(log.names(), ["slow", "a", "b", "slow"]);
}

/// The phase changes while one reconcile runs and another waits.
async fn ending(phase: Phase) -> (Log, Duration) {
    let log = Log::default();
    let controller = Running::new(1, {
        let log = log.clone();
        move |of: Key| {
            let log = log.clone();
            async move {
                sleep(Duration::from_secs(3)).await;
                log.note(&of);
                Ok(Some(Duration::ZERO))
            }
        }
    });
    controller.requests.add(key("a"));
    sleep(Duration::from_secs(1)).await;
    controller.requests.add(key("b"));
    let told = Instant::now();
    controller.phase.send_replace(phase);
    timeout(Duration::from_secs(10), controller.task).await.unwrap().unwrap();
    controller.requests.add(key("c"));
    assert_eq!(controller.requests.depth(), 0, "nobody takes requests any more");
    (log, told.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_finishing_controller_ends_running_reconciles_and_begins_none() {
    let (log, took) = ending(Phase::Finishing).await;
    assert_eq!(log.names(), ["a"]);
    assert!(took >= Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_controller_drops_running_reconciles() {
    let (log, took) = ending(Phase::Abandoned).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(log.names(), [""; 0]);
    assert!(took < Duration::from_millis(100), "{took:?}");
}
