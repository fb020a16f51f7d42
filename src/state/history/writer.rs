//! Group commit. Changes that arrive while a group is written wait in a queue, and the next group takes them all: each
//! change is a commit of its own, and the group shares one pack, one sync of the disk and one move of the branch.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use gix::ObjectId;
use gix::objs::Kind;

use super::branch::Lock;
use super::cache::{CommitEffect, Location};
use super::change::{ChangeOutcome, HistoryChange};
use super::message::Commit;
use super::objects::ObjectReader;
use super::pack::ObjectBatch;
use super::repository::{PACK_FOLDER, Repository, locked};
use super::status::StatusFile;
use super::worktree::Directory;
use super::{HistoryFault, branch, disk};

/// Changes in one group. Bounds how long the first of them waits.
const MAX_GROUP: usize = 32;
/// How long a group waits for more changes if the last group was larger.
const GATHER_TIME: Duration = Duration::from_micros(300);
/// How often a group is built again because another program moved the branch.
const MAX_ATTEMPTS: usize = 16;
/// Memory of the trees and status files that are kept between groups.
const MAX_HEAD_BYTES: usize = 8 * 1024 * 1024;
/// Status files that are kept between groups.
const MAX_STATUS_FILES: usize = 256;

/// A change in the queue.
pub(super) struct PendingWrite {
    pub change: HistoryChange,
    result: Mutex<Option<Result<ChangeOutcome, HistoryFault>>>,
    /// Whether the thread of this change writes the next group. Guarded with `wake`.
    is_leader: Mutex<bool>,
    wake: Condvar,
}

#[derive(Default)]
pub(super) struct WriteQueue {
    waiting: Vec<Arc<PendingWrite>>,
    /// Whether a group is being written.
    is_busy: bool,
    /// Size of the last group.
    last_group: usize,
}

/// A group that is being written. On drop every change without a result fails, and the queue has its next leader.
struct Group<'a> {
    repository: &'a Repository,
    writes: Vec<Arc<PendingWrite>>,
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        for write in &self.writes {
            locked(&write.result).get_or_insert_with(|| Err(interrupted()));
            // A thread that has just seen no result sleeps by now.
            drop(locked(&write.is_leader));
            write.wake.notify_one();
        }
        let mut queue = locked(&self.repository.queue);
        queue.last_group = self.writes.len();
        match queue.waiting.first() {
            Some(next) => {
                *locked(&next.is_leader) = true;
                next.wake.notify_one();
            }
            None => queue.is_busy = false,
        }
    }
}

/// The newest commit, with its files as far as they are loaded. The next change is made to it.
pub(super) struct Head {
    commit: Option<ObjectId>,
    pub root: Directory,
    pub status_files: HashMap<String, StatusFile>,
    /// The highest version there ever was, by agent.
    pub highest: HashMap<String, u64>,
    /// Releases of the group that is being written, by name.
    pub group_releases: HashMap<String, Location>,
    /// Whether a change was made only in part.
    pub is_inconsistent: bool,
}

/// Why a group was not written.
enum Stop {
    /// Another program moved the branch.
    Moved,
    /// A change failed in part. The others are made again without it.
    Again,
    Fault(HistoryFault),
}

impl From<HistoryFault> for Stop {
    fn from(fault: HistoryFault) -> Self {
        Self::Fault(fault)
    }
}

impl Repository {
    /// Makes a change. It is durable when this returns.
    pub(super) fn submit(&self, change: HistoryChange) -> Result<ChangeOutcome, HistoryFault> {
        let write = Arc::new(PendingWrite { change, result: Mutex::default(), is_leader: Mutex::default(), wake: Condvar::new() });
        {
            let mut queue = locked(&self.queue);
            queue.waiting.push(write.clone());
            let is_free = !std::mem::replace(&mut queue.is_busy, true);
            drop(queue);
            let mut is_leader = locked(&write.is_leader);
            *is_leader |= is_free;
            while !*is_leader && locked(&write.result).is_none() {
                is_leader = write.wake.wait(is_leader).unwrap_or_else(PoisonError::into_inner);
            }
        }
        if let Some(result) = locked(&write.result).take() {
            return result;
        }
        // The writers of the last group are about to write again. Waiting for them saves them a group.
        let is_smaller = {
            let queue = locked(&self.queue);
            queue.waiting.len() < queue.last_group
        };
        if is_smaller {
            thread::sleep(GATHER_TIME);
        }
        let writes = {
            let mut queue = locked(&self.queue);
            let size = queue.waiting.len().min(MAX_GROUP);
            queue.waiting.drain(..size).collect()
        };
        let group = Group { repository: self, writes };
        self.write_group(&mut locked(&self.head), &group.writes);
        drop(group);
        locked(&write.result).take().unwrap_or_else(|| Err(interrupted()))
    }

    /// Writes the group and sets the result of each change.
    fn write_group(&self, kept: &mut Option<Head>, group: &[Arc<PendingWrite>]) {
        let mut moved = 0;
        let fault = loop {
            let waiting: Vec<_> = group.iter().filter(|write| locked(&write.result).is_none()).collect();
            if waiting.is_empty() {
                return;
            }
            match self.attempt(kept, &waiting) {
                Ok(()) => return,
                Err(Stop::Again) => {}
                Err(Stop::Moved) if moved < MAX_ATTEMPTS => moved += 1,
                Err(Stop::Moved) => {
                    break HistoryFault::Busy(format!("{} keeps being moved by another program; try again later", branch::BRANCH));
                }
                Err(Stop::Fault(fault)) => break fault,
            }
        };
        for write in group {
            locked(&write.result).get_or_insert_with(|| Err(fault.clone()));
        }
    }

    fn attempt(&self, kept: &mut Option<Head>, waiting: &[&Arc<PendingWrite>]) -> Result<(), Stop> {
        let objects = self.objects()?;
        let published = objects.head()?;
        // Taken, so that the next group does not build on a failed one.
        let mut head = match kept.take().filter(|head| head.commit == published) {
            Some(head) => head,
            None => Head::load(published, &objects)?,
        };
        let mut batch = ObjectBatch::default();
        let mut effects = Vec::new();
        let mut outcomes = Vec::new();
        for write in waiting {
            let change = &write.change;
            let made = self.find_recorded(change, &head, &objects).and_then(|known| match known {
                Some(outcome) => Ok((outcome, None)),
                None => head.apply(change, &objects, &mut batch),
            });
            match made {
                Ok((mut outcome, Some(mut effect))) => {
                    let commit = head.commit(change, outcome.version, &mut batch)?;
                    outcome.commit = Some(commit);
                    if let Some(name) = change.release() {
                        let location = Location { agent: change.agent.clone(), version: outcome.version, commit };
                        head.group_releases.insert(name.to_owned(), location.clone());
                        effect.name = Some((name.to_owned(), location));
                    }
                    effects.push(effect);
                    outcomes.push((write, outcome));
                }
                Ok((mut outcome, None)) => {
                    outcome.commit = outcome.commit.or(head.commit);
                    outcomes.push((write, outcome));
                }
                Err(fault) => {
                    *locked(&write.result) = Some(Err(fault));
                    if head.is_inconsistent {
                        return Err(Stop::Again);
                    }
                }
            }
        }
        self.publish(published, head.commit, &batch, effects)?;
        for (write, outcome) in outcomes {
            *locked(&write.result) = Some(Ok(outcome));
        }
        head.trim();
        *kept = (head.bytes() < MAX_HEAD_BYTES).then_some(head);
        Ok(())
    }

    /// Makes the group durable: first the objects, then the branch.
    fn publish(
        &self,
        published: Option<ObjectId>,
        commit: Option<ObjectId>,
        batch: &ObjectBatch,
        effects: Vec<CommitEffect>,
    ) -> Result<(), Stop> {
        let folder = self.path().join(PACK_FOLDER);
        let branch = self.path().join(branch::BRANCH);
        if let Some(commit) = commit.filter(|_| !batch.is_empty()) {
            // From here on no other program can move the branch.
            let lock = Lock::take(self.path(), commit)?;
            if self.objects()?.head()? != published {
                return Err(Stop::Moved);
            }
            // All files are synced at the same time, which is one flush of the disk.
            let mut pack = thread::scope(|scope| {
                let synced = scope.spawn(|| lock.sync());
                let written = batch.write(&folder);
                synced.join().unwrap_or_else(|_| Err(interrupted())).and(written)
            })?;
            let mut cache = locked(&self.cache);
            // Until both folders are synced; also if a thread for that cannot be made.
            self.is_unsynced.store(true, Ordering::SeqCst);
            // Both are renamed before either folder is synced. If the power fails in between and only the branch has its
            // new name, recovery finds the pack under its temporary name.
            let moved = pack.publish().and_then(|()| lock.commit()).and_then(|()| {
                thread::scope(|scope| {
                    let packs = scope.spawn(|| disk::sync_folder(&folder));
                    let branch = branch::sync(&branch);
                    packs.join().unwrap_or_else(|_| Err(interrupted())).and(branch)
                })
            });
            if let Err(fault) = moved {
                // The branch may have moved, so that the cache may be wrong.
                cache.move_to(None);
                return Err(fault.into());
            }
            cache.advance(published, commit, effects);
            self.repack.pack_added(pack.bytes);
        } else if self.is_unsynced.load(Ordering::SeqCst) {
            // What was found is reported again and must be durable.
            disk::sync_folder(&folder)?;
            branch::sync(&branch)?;
        }
        self.is_unsynced.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// The outcome of an earlier change that recorded a release of the same name.
    fn find_recorded(&self, change: &HistoryChange, head: &Head, objects: &ObjectReader) -> Result<Option<ChangeOutcome>, HistoryFault> {
        let Some(name) = change.release() else { return Ok(None) };
        let location = if let Some(location) = head.group_releases.get(name) {
            Some(location.clone())
        } else {
            let mut cache = locked(&self.cache);
            cache.move_to(objects.head()?);
            cache.named(name, objects)?
        };
        let Some(location) = location else { return Ok(None) };
        if location.agent != change.agent {
            return Err(HistoryFault::Refused(format!(
                "release {name} was recorded for agent {}, not for {}",
                location.agent, change.agent
            )));
        }
        Ok(Some(ChangeOutcome { version: location.version, commit: Some(location.commit), is_new: false }))
    }
}

impl Head {
    fn load(commit: Option<ObjectId>, objects: &ObjectReader) -> Result<Self, HistoryFault> {
        let root = match commit {
            Some(commit) => Directory::load(objects, objects.root(commit)?)?,
            None => Directory::default(),
        };
        let (status_files, highest, group_releases) = (HashMap::new(), HashMap::new(), HashMap::new());
        Ok(Self { commit, root, status_files, highest, group_releases, is_inconsistent: false })
    }

    fn commit(&mut self, change: &HistoryChange, version: u64, batch: &mut ObjectBatch) -> Result<ObjectId, HistoryFault> {
        let commit = Commit {
            tree: self.root.write(batch)?,
            parent: self.commit,
            author: &change.author,
            seconds: change.when.as_second(),
            text: &change.text,
            about: &change.about(version),
        };
        let id = batch.insert(Kind::Commit, commit.bytes())?;
        self.commit = Some(id);
        Ok(id)
    }

    /// Drops what the next group does not need.
    fn trim(&mut self) {
        self.root.trim();
        self.group_releases.clear();
        if self.status_files.len() > MAX_STATUS_FILES {
            self.status_files.clear();
            self.highest.clear();
        }
    }

    /// Estimated memory.
    fn bytes(&self) -> usize {
        self.root.bytes() + self.status_files.values().map(|file| file.text().len()).sum::<usize>()
    }
}

fn interrupted() -> HistoryFault {
    HistoryFault::Busy("writing was interrupted; try again".to_owned())
}
