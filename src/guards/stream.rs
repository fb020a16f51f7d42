//! Judges an answer while it is being written. Only the run that is not over yet is held back: as a rule one word,
//! the groups of a number or a name that waits for its value, and never more than `runs::LONGEST` bytes (4 KiB).
//! Text is read once, memory does not grow with the answer, and what is let out equals what `check` makes of the
//! whole, up to the place where it blocks.

use std::sync::Arc;

use crate::finding::{Action, Block, Finding, Name};
use crate::guards::{Text, finding, masked};
use crate::pii::CONTEXT;
use crate::runs::Cutter;
use crate::topics;

/// What may be sent on, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    Text(String),
    Finding(Finding),
    /// The answer ends here; whatever is pushed later is dropped.
    Blocked(Block),
}

#[derive(Debug)]
pub struct Stream {
    guards: Option<Arc<Text>>,
    cutter: Cutter,
    /// What was let out last, as context, and then what is held back.
    buffer: String,
    held: usize,
    /// Where the buffer begins in the whole answer.
    offset: usize,
    topics: Vec<topics::Reading>,
    over: bool,
}

impl Stream {
    pub(crate) fn new(guards: Option<Arc<Text>>) -> Self {
        let count = guards.as_ref().map_or(0, |guards| guards.topics.len());
        let topics = std::iter::repeat_with(topics::Reading::default).take(count).collect();
        Self { guards, cutter: Cutter::default(), buffer: String::new(), held: 0, offset: 0, topics, over: false }
    }

    /// Takes a fragment and gives back what can no longer become part of a finding.
    pub fn push(&mut self, fragment: &str) -> Vec<Out> {
        if self.over || fragment.is_empty() {
            return Vec::new();
        }
        let Some(guards) = self.guards.clone() else {
            return vec![Out::Text(fragment.to_owned())];
        };
        let mut out = Vec::new();
        let mut rest = fragment;
        // A large fragment is taken in pieces, so that the buffer keeps its bound.
        while !rest.is_empty() && !self.over {
            let (piece, later) = rest.split_at(rest.floor_char_boundary(crate::runs::LONGEST));
            self.buffer.push_str(piece);
            rest = later;
            while let Some(end) = self.cutter.end(&self.buffer[self.held..]) {
                self.release(&guards, self.held + end, false, &mut out);
                if self.over {
                    break;
                }
            }
            self.forget();
        }
        out
    }

    /// The answer is over: gives back the rest.
    pub fn finish(&mut self) -> Vec<Out> {
        let mut out = Vec::new();
        if let Some(guards) = self.guards.clone()
            && !self.over
        {
            self.release(&guards, self.buffer.len(), true, &mut out);
        }
        self.over = true;
        out
    }

    /// Lets the buffer out up to `end`, masked, or blocks before the finding that asks for it.
    fn release(&mut self, guards: &Text, end: usize, last: bool, out: &mut Vec<Out>) {
        let run = self.held..end;
        let mut found = Vec::new();
        if guards.reads_runs() {
            guards.run(&self.buffer, run.clone(), &mut found);
        }
        let stop = found.iter().find(|finding| finding.action == Action::Block).map(|finding| finding.span.start);
        let mut text = masked(&self.buffer, run.start..stop.unwrap_or(run.end), &found).into_owned();
        let place = |mut finding: Finding| {
            finding.span = finding.span.start + self.offset..finding.span.end + self.offset;
            finding
        };
        let mut found: Vec<Finding> = found.into_iter().map(place).collect();
        let mut cut = false;
        for ((topics, action), reading) in guards.topics.iter().zip(&mut self.topics) {
            let mut each = |topic: &str, span| {
                cut |= *action == Action::Block;
                found.push(finding(Name::BlockedTopics, topic, span, *action));
            };
            topics.read(reading, &self.buffer[run.clone()], self.offset + run.start, &mut each);
            if last {
                topics.end(reading, &mut each);
            }
        }
        if cut {
            // The last word of the topic lies in this run or ended just before it.
            text.clear();
        }
        self.held = end;
        if !text.is_empty() {
            match out.last_mut() {
                Some(Out::Text(last)) => last.push_str(&text),
                _ => out.push(Out::Text(text)),
            }
        }
        found.sort_by_key(|finding| (finding.span.start, finding.span.end));
        self.tell(found, out);
    }

    fn tell(&mut self, found: Vec<Finding>, out: &mut Vec<Out>) {
        for finding in found {
            let block = (finding.action == Action::Block).then(|| Block::found(finding.guard, &finding.kind));
            out.push(Out::Finding(finding));
            if let Some(block) = block {
                out.push(Out::Blocked(block));
                self.over = true;
                self.buffer = String::new();
                self.held = 0;
                return;
            }
        }
    }

    /// Drops what was let out, but for the context of a number.
    fn forget(&mut self) {
        let from = self.buffer.floor_char_boundary(self.held.saturating_sub(2 * CONTEXT));
        self.buffer.drain(..from);
        self.held -= from;
        self.offset += from;
    }
}
