//! Judges an answer while it is being written.

use crate::finding::{Block, Finding};

/// What may be sent on, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    Text(String),
    Finding(Finding),
    /// The answer ends here; whatever is pushed later is dropped.
    Blocked(Block),
}

#[derive(Debug, Default)]
pub struct Stream {}

impl Stream {
    /// Takes a fragment and gives back what can no longer become part of a finding.
    pub fn push(&mut self, fragment: &str) -> Vec<Out> {
        if fragment.is_empty() { Vec::new() } else { vec![Out::Text(fragment.to_owned())] }
    }

    /// The answer is over: gives back the rest.
    pub fn finish(&mut self) -> Vec<Out> {
        Vec::new()
    }
}
