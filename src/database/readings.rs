//! What is read of many agents at once, by REST and the manager: usage, violations, readiness and alerts. One question each, by functions
//! of the database that show nothing of an earlier Agent under the same id.

mod activity;
mod traces;
mod violations;

use jiff::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::connection::{Door, Question, ask, in_time};
use crate::conversation::time;
use crate::feedback::is_denied;
use crate::types::{LATENCY_BUCKETS, MOST_LISTED, Page, start_of_minute};
use crate::{Alert, Fault, id};
pub use activity::{AgentConversations, AgentScore, RunScore};
pub use traces::AgentTraces;
pub use violations::{AgentViolations, PolicyConversations, RunViolations};

const NOT_GRANTED: &str = "this login may not read usage, violations, readiness and alerts; docs/rest.md has what it has to be granted";
/// Of how many agents one question may be.
pub const MAX_AGENTS: usize = 10_000;

/// An Agent, by the ids of its team and its own, and its UID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentKey {
    pub team: String,
    pub agent_id: String,
    pub uid: String,
}

/// What was used in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub requests: i64,
    pub errors: i64,
    pub input_tokens: i64,
    pub output_tokens: i64,
    /// Millionths of a US dollar.
    pub cost_micros: i64,
    /// Requests of which a guard blocked something.
    pub guard_blocks: i64,
    pub pii: i64,
    pub injections: i64,
    pub violations: i64,
    /// Requests by how long they took, not cumulative; the bounds are [`crate::LATENCY_BOUNDS_MS`].
    pub latency: [i64; LATENCY_BUCKETS],
    /// The requests that those below are of; runtimes of earlier versions do not measure these.
    pub measured: i64,
    /// What those of the histogram took together, in milliseconds.
    pub latency_ms: i64,
    /// Requests whose turn is stored with its trace, or whose spans an exporter accepted.
    pub audited: i64,
    /// Answers for which knowledge was searched or could be.
    pub retrieved: i64,
    /// Of these the answers with sources.
    pub cited: i64,
    /// Requests, and calls behind the scenes, of models whose price is not known: `cost_micros` lacks them.
    pub unpriced: i64,
    /// Requests for whose end nobody waited.
    pub cancelled: i64,
}

/// What one agent used, or one agent on one track and release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentUsage {
    /// Its place among those that were asked for.
    pub agent: usize,
    /// Empty where it was not asked for, or the runtime was not told.
    pub track: String,
    /// What a release names in its `status.runHash`; empty as the track.
    pub run_hash: String,
    pub used: Used,
    /// The last minute in which something was counted.
    pub last_minute: Timestamp,
    /// There are more rows than are read of one agent, so that the counts are too low.
    pub partial: bool,
}

/// How often an agent was found ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentReadiness {
    /// Its place among those that were asked for.
    pub agent: usize,
    pub samples: i64,
    pub ready: i64,
    /// The last minute in which it was ready, if it was.
    pub last_ready: Option<Timestamp>,
}

/// Reads through the door of [`crate::Reader`] or [`crate::Tenants`].
pub struct Readings<'a>(pub(crate) &'a Door);

impl Readings<'_> {
    /// What agents have used from the minute of `since` on: whole hours from the roll-up, the hour in which `since` lies from minutes.
    /// Agents without usage are left out.
    pub async fn usage(&self, agents: &[AgentKey], since: Timestamp) -> Result<Vec<AgentUsage>, Fault> {
        self.used(agents, since, false).await
    }

    /// The same, by track and run hash.
    pub async fn usage_by_run(&self, agents: &[AgentKey], since: Timestamp) -> Result<Vec<AgentUsage>, Fault> {
        self.used(agents, since, true).await
    }

    async fn used(&self, agents: &[AgentKey], since: Timestamp, by_run: bool) -> Result<Vec<AgentUsage>, Fault> {
        const USED: &str = "SELECT * FROM slipway.usage_since($1, $2, $3, 'epoch'::timestamptz + $4 * interval '1 second', $5)";
        self.read(agents, |keys| keys.ask(USED).bind(start_of_minute(since).as_second()).bind(by_run), usage).await
    }

    /// Samples of readiness in the hours that touch what comes after `since`. Agents without samples are left out.
    pub async fn readiness(&self, agents: &[AgentKey], since: Timestamp) -> Result<Vec<AgentReadiness>, Fault> {
        const SAMPLED: &str = "SELECT * FROM slipway.readiness_since($1, $2, $3, 'epoch'::timestamptz + $4 * interval '1 second')";
        self.read(agents, |keys| keys.ask(SAMPLED).bind(since.as_second()), readiness).await
    }

    /// Alerts of agents, the newest first; only those that are not resolved, if `open`.
    pub async fn alerts(&self, agents: &[AgentKey], open: bool, limit: u32, cursor: Option<&str>) -> Result<Page<Alert>, Fault> {
        const ALERTS: &str = "SELECT * FROM slipway.alerts_of($1, $2, $3, $4, $5, $6)";
        if !(1..=MOST_LISTED).contains(&limit) {
            return Err(Fault::Refused(format!("a page has 1 to {MOST_LISTED} alerts")));
        }
        if let Some(cursor) = cursor {
            id::check("cursor", cursor)?;
        }
        let ask = |keys: &Keys| keys.ask(ALERTS).bind(open).bind(cursor.map(str::to_owned)).bind(i64::from(limit) + 1);
        let mut items = self.read(agents, ask, Alert::read).await?;
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next_cursor = items.last().filter(|_| more).map(|alert| alert.id.clone());
        Ok(Page { items, next_cursor })
    }

    async fn read<T>(
        &self,
        agents: &[AgentKey],
        question: impl Fn(&Keys) -> Question<'static> + Send + Sync,
        row: impl Fn(&PgRow) -> Result<T, Fault> + Send + Sync,
    ) -> Result<Vec<T>, Fault>
    where
        T: Send,
    {
        if agents.is_empty() {
            return Ok(Vec::new());
        }
        check(agents)?;
        let keys = Keys::new(agents);
        in_time(async {
            let mut work = self.0.begin().await?;
            let rows = match question(&keys).fetch_all(&mut *work).await {
                Err(error) if is_denied(&error) => return Err(Fault::Broken(NOT_GRANTED.to_owned())),
                rows => rows?,
            };
            work.commit().await?;
            rows.iter().map(row).collect()
        })
        .await
    }
}

fn check(agents: &[AgentKey]) -> Result<(), Fault> {
    if agents.len() > MAX_AGENTS {
        return Err(Fault::Refused(format!("at most {MAX_AGENTS} agents are asked for at once")));
    }
    Ok(())
}

struct Keys {
    teams: Vec<String>,
    agents: Vec<String>,
    uids: Vec<String>,
}

impl Keys {
    fn new(agents: &[AgentKey]) -> Self {
        let of = |part: fn(&AgentKey) -> &String| agents.iter().map(|key| part(key).clone()).collect();
        Self { teams: of(|key| &key.team), agents: of(|key| &key.agent_id), uids: of(|key| &key.uid) }
    }

    fn ask(&self, question: &'static str) -> Question<'static> {
        ask(question).bind(self.teams.clone()).bind(self.agents.clone()).bind(self.uids.clone())
    }
}

/// `nth` counts from 1.
fn place(row: &PgRow) -> Result<usize, Fault> {
    let nth: i64 = row.try_get("nth")?;
    usize::try_from(nth - 1).map_err(|_| Fault::Broken("a place before the first".to_owned()))
}

fn usage(row: &PgRow) -> Result<AgentUsage, Fault> {
    let latency: Vec<i64> = row.try_get("latency")?;
    let latency = latency.try_into().map_err(|_| Fault::Broken("a histogram of other bounds".to_owned()))?;
    Ok(AgentUsage {
        agent: place(row)?,
        track: row.try_get("track")?,
        run_hash: row.try_get("run_hash")?,
        used: Used {
            requests: row.try_get("requests")?,
            errors: row.try_get("errors")?,
            input_tokens: row.try_get("input_tokens")?,
            output_tokens: row.try_get("output_tokens")?,
            cost_micros: row.try_get("cost_micros")?,
            guard_blocks: row.try_get("guard_blocks")?,
            pii: row.try_get("pii")?,
            injections: row.try_get("injections")?,
            violations: row.try_get("violations")?,
            latency,
            measured: row.try_get("measured")?,
            latency_ms: row.try_get("latency_ms")?,
            audited: row.try_get("audited")?,
            retrieved: row.try_get("retrieved")?,
            cited: row.try_get("cited")?,
            unpriced: row.try_get("unpriced")?,
            cancelled: row.try_get("cancelled")?,
        },
        last_minute: time(row.try_get("last_minute")?)?,
        partial: row.try_get("partial")?,
    })
}

fn readiness(row: &PgRow) -> Result<AgentReadiness, Fault> {
    let last_ready: Option<i64> = row.try_get("last_ready")?;
    Ok(AgentReadiness {
        agent: place(row)?,
        samples: row.try_get("samples")?,
        ready: row.try_get("ready")?,
        last_ready: last_ready.map(time).transpose()?,
    })
}

impl Used {
    /// Adds what another span, run or agent used.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cost_micros += other.cost_micros;
        self.guard_blocks += other.guard_blocks;
        self.pii += other.pii;
        self.injections += other.injections;
        self.violations += other.violations;
        for (mine, theirs) in self.latency.iter_mut().zip(&other.latency) {
            *mine += theirs;
        }
        self.measured += other.measured;
        self.latency_ms += other.latency_ms;
        self.audited += other.audited;
        self.retrieved += other.retrieved;
        self.cited += other.cited;
        self.unpriced += other.unpriced;
        self.cancelled += other.cancelled;
    }
}
