//! Writing releases. Whoever comes while another writes waits in a queue, and the next to write takes all who wait:
//! each change is a commit of its own, and all of them share one pack, one sync of it, and one move of the branch.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use gix::ObjectId;

use super::branch::Lock;
use super::change::{Change, Outcome};
use super::message::Commit;
use super::pack::{Batch, Closed};
use super::repository::{Repository, locked};
use super::source::Source;
use super::standings::Sheet;
use super::tip::Folder;
use super::view::{Effect, Place};
use super::{Fault, branch, disk};

/// So many changes share a pack at most, so that the first of them does not wait long.
const TOGETHER: usize = 32;
/// How long the first of a round waits for those who wrote with it before.
const GATHER: Duration = Duration::from_micros(300);
/// How often the branch may move away while we write.
const ATTEMPTS: usize = 16;
/// What is kept in memory between writes; beyond that it is read again.
const KEPT: usize = 8 * 1024 * 1024;
/// Of so many agents it is kept where their versions stand.
const SHEETS: usize = 256;

/// A change in the queue, and what came of it.
pub(super) struct Ticket {
    pub change: Change,
    done: Mutex<Option<Result<Outcome, Fault>>>,
    /// Whether its thread is the one that writes next. Goes with `wake`.
    leads: Mutex<bool>,
    wake: Condvar,
}

/// Who waits, and whether somebody writes.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Vec<Arc<Ticket>>,
    is_busy: bool,
    /// How many wrote together last.
    last: usize,
}

/// The turn to write. When it ends, however it ends, nobody of the round waits any longer, and the next has the turn.
struct Turn<'a> {
    repository: &'a Repository,
    together: Vec<Arc<Ticket>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        for ticket in &self.together {
            locked(&ticket.done).get_or_insert_with(|| Err(interrupted()));
            // Whoever looked before that is asleep now, and hears it.
            drop(locked(&ticket.leads));
            ticket.wake.notify_one();
        }
        let mut queue = locked(&self.repository.queue);
        queue.last = self.together.len();
        match queue.waiting.first() {
            Some(next) => {
                *locked(&next.leads) = true;
                next.wake.notify_one();
            }
            None => queue.is_busy = false,
        }
    }
}

/// What is written next stands on this.
pub(super) struct Tip {
    commit: Option<ObjectId>,
    pub root: Folder,
    /// By agent, where its versions stand, and the highest version there ever was.
    pub sheets: HashMap<String, Sheet>,
    pub highest: HashMap<String, u64>,
    /// Names of releases that are written together with this one.
    pub fresh: HashMap<String, Place>,
    /// Whether a change is half made.
    pub is_torn: bool,
}

/// What stands in the way of a round.
enum Stop {
    /// Another hand has moved the branch.
    Moved,
    /// A change failed half-way; the others begin anew without it.
    Again,
    Fault(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Repository {
    /// Makes a change. It is on the disk when this returns.
    pub(super) fn submit(&self, change: Change) -> Result<Outcome, Fault> {
        let ticket = Arc::new(Ticket { change, done: Mutex::default(), leads: Mutex::default(), wake: Condvar::new() });
        {
            let mut queue = locked(&self.queue);
            queue.waiting.push(ticket.clone());
            let is_free = !std::mem::replace(&mut queue.is_busy, true);
            drop(queue);
            let mut leads = locked(&ticket.leads);
            *leads |= is_free;
            while !*leads && locked(&ticket.done).is_none() {
                leads = ticket.wake.wait(leads).unwrap_or_else(PoisonError::into_inner);
            }
        }
        if let Some(done) = locked(&ticket.done).take() {
            return done;
        }
        // Those who wrote together last come again about now; that they are waited for saves a round for them.
        let (here, last) = {
            let queue = locked(&self.queue);
            (queue.waiting.len(), queue.last)
        };
        if here < last {
            thread::sleep(GATHER);
        }
        let together = {
            let mut queue = locked(&self.queue);
            let most = queue.waiting.len().min(TOGETHER);
            queue.waiting.drain(..most).collect()
        };
        let turn = Turn { repository: self, together };
        self.round(&mut locked(&self.tip), &turn.together);
        drop(turn);
        self.tidy_if_due();
        locked(&ticket.done).take().unwrap_or_else(|| Err(interrupted()))
    }

    /// Writes all of them, and tells each what came of it.
    fn round(&self, kept: &mut Option<Tip>, together: &[Arc<Ticket>]) {
        let mut moved = 0;
        let fault = loop {
            let waiting: Vec<_> = together.iter().filter(|ticket| locked(&ticket.done).is_none()).collect();
            if waiting.is_empty() {
                return;
            }
            match self.attempt(kept, &waiting) {
                Ok(()) => return,
                Err(Stop::Again) => {}
                Err(Stop::Moved) if moved < ATTEMPTS => moved += 1,
                Err(Stop::Moved) => break Fault::Busy(format!("{} keeps being moved by another program; try again later", branch::BRANCH)),
                Err(Stop::Fault(fault)) => break fault,
            }
        };
        for ticket in together {
            locked(&ticket.done).get_or_insert_with(|| Err(fault.clone()));
        }
    }

    fn attempt(&self, kept: &mut Option<Tip>, waiting: &[&Arc<Ticket>]) -> Result<(), Stop> {
        let source = self.source()?;
        let head = source.head()?;
        // Taken, so that what fails half-way is not built upon.
        let mut tip = match kept.take().filter(|tip| tip.commit == head) {
            Some(tip) => tip,
            None => Tip::load(head, &source)?,
        };
        let mut batch = Batch::default();
        let mut effects = Vec::new();
        let mut outcomes = Vec::new();
        for ticket in waiting {
            let made = self.named(&ticket.change, &tip, &source).and_then(|known| match known {
                Some(outcome) => Ok((outcome, None)),
                None => tip.apply(&ticket.change, &source, &mut batch),
            });
            match made {
                Ok((mut outcome, Some(effect))) => {
                    let commit = tip.commit(&ticket.change, &outcome, &mut batch)?;
                    outcome.commit = Some(commit);
                    effects.push(tip.named(effect, &ticket.change, &outcome, commit));
                    outcomes.push((ticket, outcome));
                }
                Ok((mut outcome, None)) => {
                    outcome.commit = outcome.commit.or(tip.commit);
                    outcomes.push((ticket, outcome));
                }
                Err(fault) => {
                    *locked(&ticket.done) = Some(Err(fault));
                    if tip.is_torn {
                        return Err(Stop::Again);
                    }
                }
            }
        }
        let closed = batch.close()?;
        tip.close(&closed)?;
        for effect in &mut effects {
            effect.close(&closed);
        }
        self.publish(head, &tip, batch, effects)?;
        for (ticket, mut outcome) in outcomes {
            outcome.commit = outcome.commit.map(|commit| closed.id(commit));
            *locked(&ticket.done) = Some(Ok(outcome));
        }
        *kept = (tip.weight() < KEPT).then_some(tip);
        Ok(())
    }

    /// Makes it durable: the objects first, then the branch that leads to them.
    fn publish(&self, head: Option<ObjectId>, tip: &Tip, batch: Batch, effects: Vec<Effect>) -> Result<(), Stop> {
        let path = self.path();
        if let Some(commit) = tip.commit.filter(|_| !batch.is_empty()) {
            // From here on nobody else can move the branch.
            let lock = Lock::take(path, commit)?;
            if self.source()?.head()? != head {
                return Err(Stop::Moved);
            }
            let folder = path.join("objects/pack");
            // The files are synced at the same time, so that the disk is asked once.
            let written = thread::scope(|scope| {
                let synced = scope.spawn(|| lock.sync());
                let written = batch.write(&folder, &mut locked(&self.press));
                synced.join().unwrap_or_else(|_| Err(interrupted())).and(written)
            })?;
            let mut view = locked(&self.view);
            // Both are named before either name is synced. Should only the branch's be on the disk when the power goes,
            // the pack is there all the same, and is found when the repository is opened.
            let moved = written.place().and_then(|()| lock.commit()).and_then(|()| {
                thread::scope(|scope| {
                    let packs = scope.spawn(|| disk::sync_folder(&folder));
                    let branch = branch::sync(&path.join(branch::BRANCH));
                    packs.join().unwrap_or_else(|_| Err(interrupted())).and(branch)
                })
            });
            if let Err(fault) = moved {
                // It may have moved; what readers saw last may no longer be true.
                self.is_unsure.store(true, Ordering::SeqCst);
                view.sync(None);
                return Err(fault.into());
            }
            view.advance(head, commit, effects);
        } else if self.is_unsure.load(Ordering::SeqCst) {
            // What was found is reported again, so that it must be on the disk.
            disk::sync_folder(&path.join("objects/pack"))?;
            branch::sync(&path.join(branch::BRANCH))?;
        }
        self.is_unsure.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// What a release of this name was answered before, if it was.
    fn named(&self, change: &Change, tip: &Tip, source: &Source) -> Result<Option<Outcome>, Fault> {
        let Some(name) = change.release() else { return Ok(None) };
        let place = if let Some(place) = tip.fresh.get(name) {
            Some(place.clone())
        } else {
            let mut view = locked(&self.view);
            view.sync(source.head()?);
            view.named(name, source)?
        };
        let Some(place) = place else { return Ok(None) };
        if place.agent != change.agent {
            return Err(Fault::Refused(format!("release {name} was recorded for agent {}, not for {}", place.agent, change.agent)));
        }
        Ok(Some(Outcome { version: place.version, commit: Some(place.commit), is_new: false }))
    }
}

impl Tip {
    fn load(commit: Option<ObjectId>, source: &Source) -> Result<Self, Fault> {
        let root = match commit {
            Some(commit) => Folder::load(source, source.root(commit)?)?,
            None => Folder::default(),
        };
        Ok(Self { commit, root, sheets: HashMap::new(), highest: HashMap::new(), fresh: HashMap::new(), is_torn: false })
    }

    fn commit(&mut self, change: &Change, outcome: &Outcome, batch: &mut Batch) -> Result<ObjectId, Fault> {
        let tree = self.root.seal("", batch)?;
        let about = change.about(outcome.version);
        let commit = Commit {
            tree,
            parent: self.commit,
            author: &change.author,
            seconds: change.when.as_second(),
            text: &change.text,
            about: &about,
        };
        let id = batch.commit(&commit);
        self.commit = Some(id);
        Ok(id)
    }

    /// Puts ids where open ones stand, and forgets what is not needed any longer.
    fn close(&mut self, closed: &Closed) -> Result<(), Fault> {
        self.commit = self.commit.map(|commit| closed.id(commit));
        self.root.close(closed)?;
        self.fresh.clear();
        if self.sheets.len() > SHEETS {
            self.sheets.clear();
            self.highest.clear();
        }
        Ok(())
    }

    /// How many bytes are held.
    fn weight(&self) -> usize {
        self.root.weight() + self.sheets.values().map(|sheet| sheet.text().len()).sum::<usize>()
    }

    fn named(&mut self, mut effect: Effect, change: &Change, outcome: &Outcome, commit: ObjectId) -> Effect {
        if let Some(name) = change.release() {
            let place = Place { agent: change.agent.clone(), version: outcome.version, commit };
            self.fresh.insert(name.to_owned(), place.clone());
            effect.name = Some((name.to_owned(), place));
        }
        effect
    }
}

fn interrupted() -> Fault {
    Fault::Busy("writing was interrupted; try again".to_owned())
}
