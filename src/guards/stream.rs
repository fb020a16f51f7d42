//! Judges an answer while it is being streamed. Only the incomplete run is held back: usually one word, the groups of a
//! number, or a name without its value, and never more than `runs::MAX_RUN_BYTES` (4 KiB). Text is read once, memory does not
//! grow with the answer, and the released text equals that of `check` on the whole answer, up to the point where it blocks.

use std::ops::Range;
use std::sync::Arc;

use crate::finding::{Action, Block, Finding};
use crate::guards::{TextGuards, demanded, masked};
use crate::pii::CONTEXT_BYTES;
use crate::policy::Demand;
use crate::runs::RunSplitter;
use crate::topics;

/// An item to send to the client, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamItem {
    Text(String),
    Finding(Finding),
    /// The answer ends; later fragments are dropped.
    Blocked(Block),
}

#[derive(Debug)]
pub struct GuardStream {
    guards: Option<Arc<TextGuards>>,
    splitter: RunSplitter,
    /// The last released text, as context, followed by the text that is held back.
    buffer: String,
    held: usize,
    /// The position of the buffer in the whole answer.
    offset: usize,
    topics: topics::TopicReader,
    over: bool,
}

impl GuardStream {
    pub(crate) fn new(guards: Option<Arc<TextGuards>>) -> Self {
        let topics = topics::TopicReader::default();
        Self { guards, splitter: RunSplitter::default(), buffer: String::new(), held: 0, offset: 0, topics, over: false }
    }

    /// Adds a fragment, and returns the text that can no longer become part of a finding.
    pub fn push(&mut self, fragment: &str) -> Vec<StreamItem> {
        if self.over || fragment.is_empty() {
            return Vec::new();
        }
        let Some(guards) = self.guards.clone() else {
            return vec![StreamItem::Text(fragment.to_owned())];
        };
        let mut out = Vec::new();
        let mut rest = fragment;
        // A large fragment is processed in pieces to bound the buffer.
        while !rest.is_empty() && !self.over {
            let (piece, later) = rest.split_at(rest.floor_char_boundary(crate::runs::MAX_RUN_BYTES));
            self.buffer.push_str(piece);
            rest = later;
            while let Some(end) = self.splitter.end(&self.buffer[self.held..]) {
                self.release(&guards, self.held + end, false, &mut out);
                if self.over {
                    break;
                }
            }
            self.forget();
        }
        out
    }

    /// Ends the answer and returns the rest.
    pub fn finish(&mut self) -> Vec<StreamItem> {
        let mut out = Vec::new();
        if let Some(guards) = self.guards.clone()
            && !self.over
        {
            self.release(&guards, self.buffer.len(), true, &mut out);
        }
        self.over = true;
        out
    }

    /// Releases the buffer up to `end`, masked, or blocks before a finding that does so.
    fn release(&mut self, guards: &TextGuards, end: usize, last: bool, out: &mut Vec<StreamItem>) {
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
        if let Some(topics) = &guards.topics {
            let mut each = |topic: &str, span, demand: &Demand| {
                cut |= demand.action == Action::Block;
                found.push(demanded(topic, span, demand));
            };
            topics.read(&mut self.topics, &self.buffer[run.clone()], self.offset + run.start, &mut each);
            if last {
                topics.end(&mut self.topics, &mut each);
            }
        }
        if cut {
            // The last word of the topic is in this run or just before it.
            text.clear();
        }
        self.held = end;
        if !text.is_empty() {
            match out.last_mut() {
                Some(StreamItem::Text(last)) => last.push_str(&text),
                _ => out.push(StreamItem::Text(text)),
            }
        }
        found.sort_by_key(|finding| (finding.span.start, finding.span.end));
        self.tell(found, out);
    }

    /// What is found at the same place as that which blocks is told, too: it may be others' to know.
    fn tell(&mut self, found: Vec<Finding>, out: &mut Vec<StreamItem>) {
        let mut blocked: Option<(Range<usize>, Block)> = None;
        for finding in found {
            if blocked.as_ref().is_some_and(|(span, _)| *span != finding.span) {
                break;
            }
            if finding.action == Action::Block && blocked.is_none() {
                blocked = Some((finding.span.clone(), Block::of(&finding)));
            }
            out.push(StreamItem::Finding(finding));
        }
        if let Some((_, block)) = blocked {
            out.push(StreamItem::Blocked(block));
            self.over = true;
            self.buffer = String::new();
            self.held = 0;
        }
    }

    /// Drops released text, except for the context of numbers.
    fn forget(&mut self) {
        let from = self.buffer.floor_char_boundary(self.held.saturating_sub(2 * CONTEXT_BYTES));
        self.buffer.drain(..from);
        self.held -= from;
        self.offset += from;
    }
}
