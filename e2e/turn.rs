//! Who runs beside whom. Most tests run together, some at a time. Then come those that want no state role on the cluster but
//! their own, again some at a time and the longest first, and then those that want the cluster for themselves, one by one. A long test on an API
//! server of its own disturbs none of these, but it is work for the machine: it begins when no other waits to run together or
//! without the state role, and fills the time that those alone spend waiting. One that waits for many minutes and does little else begins at once; `hack/test`
//! lets some of these begin in a process of their own before the others do.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

/// As many as two cores can carry: they wait for pods most of the time.
const PLACES: usize = 6;

static CROWD: Mutex<Crowd> = Mutex::new(Crowd::NOBODY);
static CHANGED: Condvar = Condvar::new();
/// When the first turn was asked for.
static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);

#[derive(Debug)]
struct Crowd {
    together: Group,
    long: Group,
    unwatched: Group,
    longest: Group,
    /// Somebody is.
    is_alone: bool,
    /// There is room for one API server beside the cluster's own, and it is taken.
    has_second: bool,
}

/// Tests that run together.
#[derive(Debug)]
struct Group {
    /// For a place.
    waiting: usize,
    running: usize,
}

impl Group {
    const NOBODY: Self = Self { waiting: 0, running: 0 };

    fn is_over(&self) -> bool {
        self.waiting + self.running == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Together,
    Second,
    Long,
    Unwatched,
    Longest,
    Alone,
    Apart,
}

impl Crowd {
    const NOBODY: Self = Self {
        together: Group::NOBODY,
        long: Group::NOBODY,
        unwatched: Group::NOBODY,
        longest: Group::NOBODY,
        is_alone: false,
        has_second: false,
    };

    fn group(&mut self, kind: Kind) -> Option<&mut Group> {
        match kind {
            Kind::Together | Kind::Second => Some(&mut self.together),
            Kind::Long => Some(&mut self.long),
            Kind::Unwatched => Some(&mut self.unwatched),
            Kind::Longest => Some(&mut self.longest),
            Kind::Alone | Kind::Apart => None,
        }
    }

    fn has_room(&self, kind: Kind) -> bool {
        match kind {
            Kind::Together => self.has_room(Kind::Long) && self.together.running < PLACES,
            Kind::Second => self.has_room(Kind::Together) && !self.has_second,
            Kind::Long => !self.is_alone && self.unwatched.running + self.longest.running == 0,
            Kind::Longest => !self.is_alone && self.together.is_over(),
            Kind::Unwatched => self.has_room(Kind::Longest) && self.longest.waiting == 0 && self.unwatched.running < PLACES,
            Kind::Alone => {
                let groups = [&self.together, &self.long, &self.unwatched, &self.longest];
                !self.is_alone && groups.into_iter().all(Group::is_over)
            }
            Kind::Apart => self.together.waiting + self.unwatched.waiting == 0 && !self.has_second,
        }
    }

    fn waits(&mut self, kind: Kind) {
        if let Some(group) = self.group(kind) {
            group.waiting += 1;
        }
    }

    /// For one that has waited.
    fn begins(&mut self, kind: Kind) {
        if let Some(group) = self.group(kind) {
            group.waiting -= 1;
            group.running += 1;
        }
        self.keep(kind, true);
    }

    fn ends(&mut self, kind: Kind) {
        if let Some(group) = self.group(kind) {
            group.running -= 1;
        }
        self.keep(kind, false);
    }

    /// What a turn of this kind takes besides a place in a group.
    fn keep(&mut self, kind: Kind, is_taken: bool) {
        match kind {
            Kind::Alone => self.is_alone = is_taken,
            Kind::Second | Kind::Apart => self.has_second = is_taken,
            Kind::Together | Kind::Long | Kind::Unwatched | Kind::Longest => {}
        }
    }
}

/// A test's place in the crowd, kept while it runs.
pub struct Turn {
    kind: Kind,
    /// Why nothing may run beside it.
    reason: Option<&'static str>,
    begun: Instant,
}

impl Turn {
    fn take(kind: Kind) -> Self {
        LazyLock::force(&FIRST);
        let mut crowd = crowd();
        crowd.waits(kind);
        let mut crowd = CHANGED.wait_while(crowd, |crowd| !crowd.has_room(kind)).unwrap_or_else(PoisonError::into_inner);
        crowd.begins(kind);
        drop(crowd);
        // That nobody waits any more is news as well.
        CHANGED.notify_all();
        Self { kind, reason: None, begun: Instant::now() }
    }
}

pub fn together() -> Turn {
    Turn::take(Kind::Together)
}

/// Together, and with the API server beside the cluster's own.
pub(crate) fn with_second() -> Turn {
    Turn::take(Kind::Second)
}

/// Together, and beside those that stop the installed state role, for a test that waits for many minutes and does little else: it takes
/// no place, so that it begins with the first. Only those that run alone wait for its end.
pub fn long() -> Turn {
    Turn::take(Kind::Long)
}

/// Together with others that stop the installed state role, see [`crate::platform::WithoutState`].
pub fn unwatched() -> Turn {
    Turn::take(Kind::Unwatched)
}

/// The same for a test that waits for many minutes and does little else: it takes no place, and begins before the others.
pub fn longest_unwatched() -> Turn {
    Turn::take(Kind::Longest)
}

/// Lets all go first that could run together. The reason is what other tests would suffer from, or would disturb.
pub fn alone(reason: &'static str) -> Turn {
    let mut turn = Turn::take(Kind::Alone);
    wait_for_others();
    turn.reason = Some(reason);
    turn.begun = Instant::now();
    turn
}

/// Until no other process runs tests on the same cluster: while one does, `hack/test` holds a lock on this file.
fn wait_for_others() {
    let Some(path) = std::env::var_os("SLIPWAY_OTHERS") else { return };
    let locked = File::open(path).and_then(|file| file.lock());
    assert!(locked.is_ok(), "the end of the other tests could not be waited for: {locked:?}");
}

/// With the API server beside the cluster's own, and nothing on the cluster; lets all begin first that could run together.
pub(crate) fn apart() -> Turn {
    Turn::take(Kind::Apart)
}

impl Drop for Turn {
    fn drop(&mut self) {
        crowd().ends(self.kind);
        CHANGED.notify_all();
        tell(self);
    }
}

/// How long a test had its place and since when, for the list that `hack/test` prints in the end.
fn tell(turn: &Turn) {
    let Some(list) = std::env::var_os("SLIPWAY_TIMES") else { return };
    let name = thread::current().name().unwrap_or_default().to_owned();
    let kind = format!("{:?}", turn.kind).to_lowercase();
    let reason = turn.reason.map(|reason| format!(", as it {reason}")).unwrap_or_default();
    let line = format!("{} {name} ({kind}{reason}, from second {})\n", turn.begun.elapsed().as_secs(), (turn.begun - *FIRST).as_secs());
    if let Ok(mut list) = OpenOptions::new().create(true).append(true).open(list) {
        let _ = list.write_all(line.as_bytes());
    }
}

fn crowd() -> MutexGuard<'static, Crowd> {
    CROWD.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::Kind::{Alone, Apart, Long, Longest, Second, Together, Unwatched};
    use super::*;

    fn crowd(waiting: &[Kind], running: &[Kind]) -> Crowd {
        let mut crowd = Crowd::NOBODY;
        for kind in waiting.iter().chain(running) {
            crowd.waits(*kind);
        }
        for kind in running {
            crowd.begins(*kind);
        }
        crowd
    }

    #[test]
    fn who_disturbs_nobody_has_room() {
        let all = [Together, Second, Long, Unwatched, Longest, Alone, Apart];
        // Who waits, who runs, and which of all kinds have room beside them.
        let table: &[(&[Kind], &[Kind], &[Kind])] = &[
            (&[], &[], &all),
            (&[], &[Together; PLACES - 1], &[Together, Second, Long, Apart]),
            (&[], &[Together; PLACES], &[Long, Apart]),
            (&[Together], &[Together], &[Together, Second, Long]),
            (&[], &[Second], &[Together, Long]),
            (&[Second], &[Second], &[Together, Long]),
            (&[], &[Long], &[Together, Second, Long, Unwatched, Longest, Apart]),
            (&[Long], &[], &[Together, Second, Long, Unwatched, Longest, Apart]),
            (&[], &[Apart], &[Together, Long, Unwatched, Longest, Alone]),
            (&[], &[Unwatched], &[Unwatched, Longest, Apart]),
            (&[], &[Unwatched; PLACES], &[Longest, Apart]),
            (&[Unwatched], &[], &[Together, Second, Long, Unwatched, Longest]),
            (&[Together], &[Unwatched], &[]),
            (&[], &[Longest], &[Unwatched, Longest, Apart]),
            (&[Longest], &[], &[Together, Second, Long, Longest, Apart]),
            (&[Together], &[Longest], &[]),
            (&[], &[Alone], &[Apart]),
            (&[Unwatched, Together], &[Alone, Apart], &[]),
        ];
        for (waiting, running, expected) in table {
            let crowd = crowd(waiting, running);
            let room: Vec<Kind> = all.into_iter().filter(|kind| crowd.has_room(*kind)).collect();
            assert_eq!(&room, expected, "{waiting:?} wait, {running:?} run");
        }
    }

    #[test]
    fn who_ends_leaves_nothing_taken() {
        let mut crowd = crowd(&[], &[Second, Together, Long, Unwatched, Longest, Alone]);
        for kind in [Together, Alone, Second, Long, Longest, Unwatched] {
            crowd.ends(kind);
        }
        assert!(crowd.has_room(Alone) && crowd.has_room(Second), "{crowd:?}");
    }
}
