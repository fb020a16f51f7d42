//! The policies that the agent is held to, beside its own guards: those of its variables, and those of a file that the platform
//! renews while the process runs. The file is looked at every two seconds; what was compiled from it is put in force at once for turns that
//! begin, and turns under way keep what they began with. A file that cannot be used changes nothing.

mod file;
mod selection;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use slipway_guards::Guards;
use slipway_http::Error;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use crate::settings::Settings;
use crate::telemetry::metrics::Meters;
use file::{FileIdentity, PolicyFile};
use selection::{Selected, Selection};

const POLL_INTERVAL: Duration = Duration::from_secs(2);

pub(crate) struct Policies {
    selection: Arc<Selection>,
    /// The agent's own guards, with the policies that its variables hold whole.
    own: Guards,
    current: RwLock<Arc<Guards>>,
    /// False until the file has been read once.
    ready: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The file that was used last, or found to be unusable.
    seen: Option<FileIdentity>,
    /// Why the file cannot be used, as it was logged last.
    fault: Option<String>,
    missing: Vec<String>,
}

impl Policies {
    /// Reads the variables, and the file if it can be read already. What is wrong with the variables is refused.
    pub(crate) fn open(settings: &Settings, meters: &Meters) -> Result<Arc<Self>, Vec<String>> {
        let selection = Selection::read(&settings.guards, &settings.policies, settings.policies_file.clone()).map_err(|mut faults| {
            // Those of the guards are told with them.
            faults.extend(Guards::compile(&settings.guards, &[]).err().into_iter().flatten());
            faults
        })?;
        let own = selection.own()?;
        let policies = Arc::new(Self::with(selection, own));
        meters.policies(policies.own.policies(), 0);
        if policies.selection.file.is_some() {
            let found = policies.look(policies.seen().as_ref());
            policies.take(found, meters);
        }
        Ok(policies)
    }

    /// Guards that nothing changes.
    pub(crate) fn fixed(guards: Guards) -> Arc<Self> {
        Arc::new(Self::with(Selection::default(), guards))
    }

    /// Those of turns of an evaluation: what is in force now, without limits, and what these turns take counts nowhere.
    pub(crate) fn rehearsing(&self) -> Arc<Self> {
        Self::fixed(self.current().without_limits())
    }

    fn with(selection: Selection, own: Guards) -> Self {
        let ready = AtomicBool::new(selection.file.is_none());
        let current = RwLock::new(Arc::new(own.clone()));
        Self { selection: Arc::new(selection), own, current, ready, state: Mutex::default() }
    }

    /// What a turn that begins now is held to. Refused until the file has been read: nobody talks to an agent that is less guarded than
    /// it was asked to be.
    pub(crate) fn for_turn(&self) -> Result<Arc<Guards>, Error> {
        self.check()?;
        Ok(self.current())
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.ready.load(Ordering::Acquire) {
            return Ok(());
        }
        let fault = self.state().fault.clone().unwrap_or_default();
        Err(Error::unavailable(format!("the policies of this agent cannot be read yet: {fault}")))
    }

    /// What is in force now, for work that belongs to no turn.
    pub(crate) fn current(&self) -> Arc<Guards> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The agent's own guards.
    pub(crate) fn own(&self) -> &Guards {
        &self.own
    }

    /// Follows the file for as long as the process lives.
    pub(crate) async fn watch(self: Arc<Self>, meters: Meters) {
        if self.selection.file.is_none() {
            return;
        }
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (this, seen) = (Arc::clone(&self), self.seen());
            // Reading and compiling take milliseconds.
            if this.is_unchanged(seen.as_ref()) {
                continue;
            }
            match spawn_blocking(move || this.look(seen.as_ref())).await {
                Ok(found) => self.take(found, &meters),
                Err(error) => error!(%error, "the policies could not be compiled"),
            }
        }
    }

    fn is_unchanged(&self, seen: Option<&FileIdentity>) -> bool {
        let path = self.selection.file.as_deref();
        path.is_some_and(|path| FileIdentity::of(path).is_ok_and(|now| seen == Some(&now)))
    }

    /// Reads and compiles the file, if it is another than before.
    fn look(&self, before: Option<&FileIdentity>) -> Found {
        let Some(path) = self.selection.file.as_deref() else { return Found::Same };
        let seen = match FileIdentity::of(path) {
            Ok(seen) if Some(&seen) == before => return Found::Same,
            Ok(seen) => seen,
            Err(fault) => return Found::Fault { seen: None, fault },
        };
        let text = match file::read(path) {
            Ok(text) => text,
            // It may be readable the next time.
            Err(fault) => return Found::Fault { seen: None, fault },
        };
        let may_lack = self.ready.load(Ordering::Acquire);
        match PolicyFile::parse(&text).and_then(|file| self.selection.select(file, may_lack)) {
            Ok(selected) => Found::New { seen, selected },
            // What is missing may come with the next file only.
            Err(fault) => Found::Fault { seen: Some(seen), fault },
        }
    }

    fn take(&self, found: Found, meters: &Meters) {
        match found {
            Found::Same => {}
            Found::Fault { seen, fault } => {
                meters.policies_reloaded(false, SystemTime::now());
                let mut state = self.state();
                if seen.is_some() {
                    state.seen = seen;
                }
                if state.fault.as_ref() != Some(&fault) {
                    if self.ready.load(Ordering::Acquire) {
                        error!(fault, "the file of policies cannot be used; the former policies stay in force");
                    } else {
                        error!(fault, "the file of policies cannot be used; this agent answers nothing before it can");
                    }
                    state.fault = Some(fault);
                }
            }
            Found::New { seen, selected: Selected { guards, missing } } => {
                let guards = guards.continuing(&self.own);
                let count = guards.policies();
                meters.policies(count, missing.len());
                meters.policies_reloaded(true, SystemTime::now());
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(guards);
                self.ready.store(true, Ordering::Release);
                let mut state = self.state();
                info!(policies = count, "policies are in force");
                if missing != state.missing && !missing.is_empty() {
                    warn!(missing = missing.join(", "), "policies that this agent is to be held to do not exist");
                }
                *state = State { seen: Some(seen), fault: None, missing };
            }
        }
    }

    fn seen(&self) -> Option<FileIdentity> {
        self.state().seen.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a look at the file found.
enum Found {
    Same,
    New {
        seen: FileIdentity,
        selected: Selected,
    },
    Fault {
        /// Of a file that stays unusable until it changes.
        seen: Option<FileIdentity>,
        fault: String,
    },
}
