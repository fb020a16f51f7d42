//! What is wrong with an object of ours, in words for its author.

/// What is wrong, field first, and the word that a condition has for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConditionFault {
    pub reason: &'static str,
    pub message: String,
}
