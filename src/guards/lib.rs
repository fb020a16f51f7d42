//! Guards for the text between users, agents and models: personal data, secrets, injected instructions, blocked topics; and
//! limits of tokens, requests and cost; and what policies say about tools, models and guards. Pure code without I/O: text and a clock go in, a verdict comes out. `check` judges a
//! whole text, `stream` the fragments of an answer, `before_turn` and `after` the limits. Findings never quote the text.

mod finding;
mod guards;
mod hidden;
mod injection;
mod limits;
mod needles;
mod normalised;
mod phrases;
mod pii;
mod policy;
mod rule;
mod ruled;
mod runs;
mod secrets;
mod settings;
mod share;
mod stream;
mod topics;
mod words;

pub use finding::{Action, Block, Finding, GuardName, Side, Verdict};
pub use guards::Guards;
pub use limits::{Asked, Breach, Budget, Hold, Spent, TurnCheck};
pub use policy::Policy;
pub use rule::{PolicyRule, RuleType};
pub use ruled::Ruled;
pub use settings::Price;
pub use share::{Asker, Lease, RequestsLease, RequestsWish, SpendingLease, SpendingWish, Wish};
pub use stream::{GuardStream, StreamItem};
