//! The turns under way: their limit, and the end of the process: no turn begins then, and those that are still under way shortly
//! before it are told to end.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// A turn goes on when its client disconnects, so connections do not bound their number.
const MAX_TURNS: u32 = 4096;

pub(crate) struct Turns {
    places: Arc<Semaphore>,
    stage: watch::Sender<Stage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// Turns finish, and none begins.
    Closed,
    /// Turns finish with what they have.
    CutOff,
}

/// Why no turn may begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Closed,
    Taken,
}

/// Held for as long as a turn is under way, by whatever does the work.
#[derive(Clone)]
pub(crate) struct Running {
    _place: Arc<OwnedSemaphorePermit>,
    stage: watch::Receiver<Stage>,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(MAX_TURNS as usize)), stage: watch::Sender::new(Stage::Open) }
    }

    /// A place for one more turn.
    pub(crate) fn begin(&self) -> Result<Running, Full> {
        if *self.stage.borrow() != Stage::Open {
            return Err(Full::Closed);
        }
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Full::Taken)?;
        Ok(Running { _place: Arc::new(place), stage: self.stage.subscribe() })
    }

    /// None begins from now on.
    pub(crate) fn close(&self) {
        self.stage.send_if_modified(|stage| *stage == Stage::Open && std::mem::replace(stage, Stage::Closed) == Stage::Open);
    }

    /// Those under way end as soon as they can. Says how many there are.
    pub(crate) fn cut_off(&self) -> usize {
        self.stage.send_replace(Stage::CutOff);
        (MAX_TURNS as usize).saturating_sub(self.places.available_permits())
    }

    /// Resolves when none is under way.
    pub(crate) async fn ended(&self) {
        let _ = self.places.acquire_many(MAX_TURNS).await;
    }
}

impl Running {
    /// Resolves when the turn is to end with what it has.
    pub(crate) async fn cut_off(&self) {
        let told = self.stage.clone().wait_for(|stage| *stage == Stage::CutOff).await.is_ok();
        if !told {
            // The receiver is gone, so there is nothing to report to.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn turns_end_before_the_process_does() {
        let turns = Turns::new();
        let running = turns.begin().ok().unwrap();
        let (lease, other) = (running.clone(), turns.begin().ok().unwrap());
        assert!(running.cut_off().now_or_never().is_none() && turns.ended().now_or_never().is_none());
        turns.close();
        assert_eq!(turns.begin().err(), Some(Full::Closed));
        assert!(running.cut_off().now_or_never().is_none(), "those under way may finish");
        drop(other);
        assert_eq!(turns.cut_off(), 1);
        running.cut_off().await;
        drop(running);
        assert!(turns.ended().now_or_never().is_none(), "its answer is being kept");
        drop(lease);
        turns.ended().await;
        turns.close();
        assert_eq!((turns.begin().err(), turns.cut_off()), (Some(Full::Closed), 0));
    }

    #[test]
    fn there_is_a_most() {
        let turns = Turns::new();
        let all: Vec<_> = (0..MAX_TURNS).map(|_| turns.begin().ok().unwrap()).collect();
        assert_eq!(turns.begin().err(), Some(Full::Taken));
        drop(all);
        assert!(turns.begin().is_ok());
    }
}
