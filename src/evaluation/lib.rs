//! Evaluation, without a model, a cluster or a clock: which scorers apply to a case and what they ask a judge, what a
//! judge's answer means, how scores become a mean with an interval, and a mean a verdict.

pub mod canary_gate;
mod comparison;
mod guidelines;
mod harm;
mod judge;
mod lexical;
mod matching;
mod profile;
mod prompt;
mod scoring;
mod seed;
mod silence;
mod summary;
mod tool_calls;
mod turn;
mod verdict;
mod vocabulary;
pub mod wire;

pub use comparison::{Comparison, Metric, Winner, compare};
pub use judge::{Judged, Question, prompt_versions, question, read_answer, repair};
pub use profile::{Profile, threshold};
pub use prompt::sealed;
pub use scoring::{Applies, applies, deterministic, heuristic};
pub use seed::seed;
pub use silence::{SILENT_CASES, Silence};
pub use summary::{Mean, RunSummary, summarize};
pub use turn::{CaseTurn, ToolCall};
pub use verdict::{Outcome, Verdict, passes, verdict};
