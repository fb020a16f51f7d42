//! What agents say, know and use, in PostgreSQL.
//!
//! A runtime opens a [`Store`], which is one agent's rows and no more. The manager makes the schema with
//! [`migrate`] and gives each team a login of its own with [`Tenants`]. REST has a [`Reader`]. Knowledge bases are in a
//! database of their own, see [`knowledge`]. `docs/database.md` has the schema, who may see what, and what a PgBouncer in between has to know.

mod alerts;
mod backfill;
mod batch;
mod budget;
mod connection;
mod conversation;
mod deletion;
mod deliveries;
mod evaluation;
mod fault;
mod feedback;
mod id;
pub mod knowledge;
mod login;
mod measured;
mod memory;
mod memory_search;
mod migrate;
mod owners;
mod pool;
mod reader;
mod readiness;
mod readings;
mod retention;
mod roles;
mod sampling;
mod shown;
mod steps;
mod store;
mod strangers;
mod tenants;
mod transfer;
mod turn;
mod types;
mod usage;
mod violations;

pub use alerts::{Alert, KeptAlert, MAX_TRACES, RaisedAlert};
pub use budget::{BudgetLease, BudgetRequest, REQUESTS_LEASE, RateLease, RateRequest, SPENDING_LEASE, SpendingLease, SpendingRequest};
pub use connection::{Options, PodRun};
pub use deliveries::{AlertStage, Deliveries, Delivery, GivenUp, MAX_PAYLOAD_BYTES, NewDelivery, Postponed, Waiting};
pub use evaluation::EvaluationResult;
pub use fault::Fault;
pub use feedback::{AppendedCase, DueFeedback, Feedback, Marked};
pub use login::Login;
pub use memory::spelling;
#[doc(hidden)]
pub use migrate::migrate_up_to;
pub use migrate::{LATEST, MINIMUM, Migrated, Vectors, migrate};
pub use owners::{Claim, HELD_DAYS, Holder, Home};
pub use reader::{Reader, Records};
pub use readiness::ReadinessSample;
pub use readings::{
    AgentConversations, AgentKey, AgentReadiness, AgentScore, AgentTraces, AgentUsage, AgentViolations, MAX_AGENTS, PolicyConversations,
    Readings, RunScore, RunViolations, Used,
};
pub use retention::Retention;
pub use sampling::{SampledScore, SampledTurn};
pub use shown::{Detail, Listed};
pub use store::Store;
pub use strangers::Stranger;
pub use tenants::{Ensured, FEWEST_CONNECTIONS, Isolation, Passwords, Tenants};
pub use turn::{LEASE, LONGEST_MESSAGE, Turn};
pub use types::{
    Category, ConversationSummary, Embedding, Generation, LATENCY_BOUNDS_MS, LATENCY_BUCKETS, MOST_LISTED, MemoryEntry, NewMemory,
    NewMessage, Page, Remembered, Role, StoredMessage, UsageMinute,
};
pub use violations::{MAX_CONVERSATIONS, Stage, ViolationMinute};
