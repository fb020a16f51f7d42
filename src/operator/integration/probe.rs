//! A test of an integration by the team's worker: the login is read from its Secret now and goes with the call. How many tests are
//! under way at once is limited, of a team and of all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slipway_api::Integration;
use slipway_api::worker::{ProbeReply, ProbeRequest, TEST_PATH};

use super::plan::WORKER_UNAVAILABLE;
use crate::context::Context;
use crate::control_port::Sign;
use crate::fault::ConditionFault;
use crate::{integrations, worker_call};

/// How many tests are under way at once.
pub(super) const MAX_TESTS: usize = 32;
const MAX_TESTS_OF_TEAM: usize = 4;

/// How many tests of each team are under way.
#[derive(Clone, Default)]
pub(super) struct Permits(Arc<Mutex<HashMap<String, usize>>>);

/// The right to one test. It ends with this.
pub(super) struct Permit {
    of: Permits,
    team: String,
}

impl Permits {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None while too many are under way.
    pub(super) fn take(&self, team: &str) -> Option<Permit> {
        let mut teams = self.lock();
        if teams.values().sum::<usize>() >= MAX_TESTS || teams.get(team).is_some_and(|tests| *tests >= MAX_TESTS_OF_TEAM) {
            return None;
        }
        *teams.entry(team.to_owned()).or_default() += 1;
        Some(Permit { of: self.clone(), team: team.to_owned() })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut teams = self.of.lock();
        let left = teams.remove(&self.team).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            teams.insert(self.team.clone(), left);
        }
    }
}

/// What the worker found; or why there is no word from it.
pub(super) async fn probe(
    context: &Context,
    sign: Option<&Sign>,
    team: &str,
    integration: &Integration,
) -> Result<ProbeReply, ConditionFault> {
    let unavailable = |message: String| ConditionFault { reason: WORKER_UNAVAILABLE, message };
    let sign = sign.ok_or_else(|| unavailable("the platform has no key with which workers are called".to_owned()))?;
    let credentials = integrations::login(context, integration).await?;
    let request = ProbeRequest { kind: integration.spec.kind().unwrap_or_default(), config: integration.spec.config(), credentials };
    worker_call::post(context, sign, team, (TEST_PATH, &request)).await.map_err(|fault| unavailable(fault.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_has_its_share_of_the_tests() {
        let permits = Permits::default();
        let mut held: Vec<Permit> = (0..MAX_TESTS_OF_TEAM).map_while(|_| permits.take("a")).collect();
        assert_eq!((held.len(), permits.take("a").is_none()), (MAX_TESTS_OF_TEAM, true));
        held.extend((0..MAX_TESTS).map_while(|at| permits.take(&format!("t{at}"))));
        assert_eq!(held.len(), MAX_TESTS);
        assert!(permits.take("z").is_none(), "all together have theirs, too");
        drop(held.remove(0));
        assert!(permits.take("a").is_some());
        held.clear();
        assert!(permits.lock().is_empty(), "nobody is remembered who tests nothing");
    }
}
