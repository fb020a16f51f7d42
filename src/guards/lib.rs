//! What must not pass between people, agents and models: personal data, secrets, injected instructions,
//! blocked topics, and more tokens, requests or money than was agreed. Nothing here does I/O or waits:
//! text and a clock go in, a verdict comes out. `check` judges a whole text, `stream` the fragments of an
//! answer, `before_turn` and `after` the budget. Findings never quote what was found.

mod bare;
mod finding;
mod guards;
mod hidden;
mod injection;
mod limits;
mod needles;
mod phrases;
mod pii;
mod policy;
mod runs;
mod secrets;
mod settings;
mod stream;
mod topics;
mod words;

pub use finding::{Action, Block, Finding, Name, Side, Verdict};
pub use guards::Guards;
pub use limits::{Breach, Budget, Limits, Spent, Turn};
pub use settings::Price;
pub use stream::{Out, Stream};
