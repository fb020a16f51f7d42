//! What a refused turn is told: which limit it was, whose, and how long to wait.

use std::time::{Duration, Instant};

use super::counted::Day;
use super::{Amounts, Limit};
use crate::finding::{Block, GuardName};
use crate::share::Share;

impl Amounts {
    pub(super) fn refusal(&self, limit: &Limit, seen: f64, now: u64) -> Block {
        let (guard, by) = (limit.guard, by(limit));
        let (message, retry_after) = match guard {
            GuardName::RateLimit => return too_often(limit, self.minute.wait_for(limit)),
            GuardName::SpendLimit if self.day.usd < limit.most => (
                format!("refused by {by}: the turns under way may use up its {} USD of today; try again when one has ended", limit.most),
                Some(1),
            ),
            GuardName::SpendLimit => return used_up(limit, Day::SECONDS - now % Day::SECONDS),
            _ => (format!("refused by {by}: the prompt has {seen} tokens, {} are the limit; send less text", limit.most), None),
        };
        Block { guard, message, retry_after: retry_after.map(Duration::from_secs), policy: limit.policy.clone() }
    }
}

/// The guard, and the policy that has it.
fn by(limit: &Limit) -> String {
    limit.policy.as_ref().map_or_else(|| limit.guard.to_string(), |asker| format!("{} (policy {})", limit.guard, asker.policy))
}

pub(super) fn too_often(limit: &Limit, wait: u64) -> Block {
    let message = format!("refused by {}: {} requests a minute are allowed; try again in {wait} s", by(limit), limit.most);
    Block { guard: limit.guard, message, retry_after: Some(Duration::from_secs(wait)), policy: limit.policy.clone() }
}

fn used_up(limit: &Limit, wait: u64) -> Block {
    let message =
        format!("refused by {}: this agent has used up its {} USD of today; the next day begins at 00:00 UTC", by(limit), limit.most);
    Block { guard: limit.guard, message, retry_after: Some(Duration::from_secs(wait)), policy: limit.policy.clone() }
}

pub(super) fn unknown(limit: &Limit) -> Block {
    let message = format!("refused by {}: nobody knows what is left of it while the database is away; try again later", by(limit));
    Block { guard: limit.guard, message, retry_after: Some(Duration::from_secs(2)), policy: limit.policy.clone() }
}

/// The other replicas have the rest of the day's budget, or it is used up.
pub(super) fn no_share(limit: &Limit, share: &Share, wait: Duration, now: Instant) -> Block {
    if share.spending.everyone() >= limit.most {
        return used_up(limit, share.spending.day_ends_in(now).as_secs().max(1));
    }
    let message = format!(
        "refused by {}: the turns under way, in all pods of this agent, may use up its {} USD of today; try again when some have ended",
        by(limit),
        limit.most
    );
    Block { guard: limit.guard, message, retry_after: Some(wait.max(Duration::from_secs(1))), policy: limit.policy.clone() }
}

/// The refusal of a model without a price.
pub(super) fn uncounted(limit: &Limit, model: &str) -> Block {
    let message = format!(
        "refused by {}: nobody knows what {model} costs, so that its limit would never be reached; give the price in the agent's \
         governance.limits.prices, or take the guard out",
        by(limit)
    );
    Block { guard: limit.guard, message, retry_after: None, policy: limit.policy.clone() }
}
