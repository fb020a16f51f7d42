//! One entry per rule of `crds/`: what it accepts, what it refuses, and how it says so.

mod agents;
mod governance;
mod integrations;
mod knowledge;
mod tools;

pub(super) struct Rule {
    pub kind: &'static str,
    /// Must be in the refusal: the field at fault.
    pub field: &'static str,
    /// The rule's message, word for word.
    pub message: &'static str,
    /// A spec, as YAML, beside the required fields.
    pub accepted: &'static str,
    pub refused: &'static [&'static str],
}

pub(super) const RULES: [&[Rule]; 5] = [agents::RULES, governance::RULES, integrations::RULES, knowledge::RULES, tools::RULES];
