//! The workers of teams: each team with a knowledge base or an integration has one, and is asked whether it is ready.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use slipway_api::names::TeamSlug;
use tokio::time::{sleep, timeout};

use super::{Finding, LONG_PROBE_TIMEOUT, Status};
use crate::caches::Caches;
use crate::call::Call;
use crate::relay::worker_is_ready;

/// How many workers are asked, and how many of them at once.
const MAX_ASKED: usize = 100;
const CONCURRENCY: usize = 16;
/// The time limit of one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// How many faults a message tells.
const MAX_FAULTS: usize = 3;

pub(super) async fn test(call: &Call) -> Finding {
    let teams = teams(&call.context.caches);
    let wanted = teams.len();
    let questions: Vec<_> = teams.into_iter().take(MAX_ASKED).map(|team| ask(call, team)).collect();
    let answers = stream::iter(questions).buffer_unordered(CONCURRENCY).take_until(sleep(LONG_PROBE_TIMEOUT));
    let mut asked: Vec<Asked> = answers.collect().await;
    asked.sort_by(|(one, _), (other, _)| one.cmp(other));
    finding(&asked, wanted)
}

/// A team, and whether its worker is ready.
type Asked = (TeamSlug, Result<(), String>);

async fn ask(call: &Call, team: TeamSlug) -> Asked {
    let outcome = match timeout(ANSWER_TIMEOUT, worker_is_ready(call, &team)).await {
        Ok(outcome) => outcome.map_err(|error| error.message().to_owned()),
        Err(_) => Err(format!("the worker of team {team} does not answer within {} s", ANSWER_TIMEOUT.as_secs())),
    };
    (team, outcome)
}

/// The teams that have a worker, or should.
fn teams(caches: &Caches) -> BTreeSet<TeamSlug> {
    let of = |namespace: &str| TeamSlug::new(namespace.strip_prefix("team-")?).ok();
    let mut all = caches.knowledge_bases.collect(None, |namespace, _, _| of(namespace));
    all.extend(caches.integrations.collect(None, |namespace, _, _| of(namespace)));
    all.into_iter().collect()
}

fn finding(asked: &[Asked], wanted: usize) -> Finding {
    if wanted == 0 {
        return Finding::new(Status::NotConfigured, "no team has a knowledge base or an integration, and so a worker");
    }
    let faults: Vec<&str> = asked.iter().filter_map(|(_, outcome)| outcome.as_ref().err().map(String::as_str)).collect();
    let late = wanted.min(MAX_ASKED).saturating_sub(asked.len());
    let mut words = vec![format!("{} of {wanted} workers are ready", asked.len() - faults.len())];
    words.extend(faults.iter().take(MAX_FAULTS).map(|fault| (*fault).to_owned()));
    if faults.len() > MAX_FAULTS {
        words.push(format!("{} more are not", faults.len() - MAX_FAULTS));
    }
    if wanted > MAX_ASKED {
        words.push(format!("no more than {MAX_ASKED} were asked"));
    }
    if late > 0 {
        words.push(format!("{late} had not answered within {} s", LONG_PROBE_TIMEOUT.as_secs()));
    }
    let message = words.join("; ");
    Finding::of(if faults.is_empty() && late == 0 { Ok(message) } else { Err(message) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_counted_and_the_first_faults_told() {
        let team = |name: &str, outcome: Result<(), &str>| (TeamSlug::new(name).unwrap(), outcome.map_err(str::to_owned));
        let broken = |count: usize| (0..count).map(|nth| team(&format!("t{nth}"), Err("broken"))).collect::<Vec<_>>();
        let whole = |count: usize| (0..count).map(|nth| team(&format!("t{nth}"), Ok(()))).collect::<Vec<_>>();
        for (asked, wanted, status, message) in [
            (vec![], 0, Status::NotConfigured, "no team has a knowledge base or an integration, and so a worker"),
            (whole(2), 2, Status::Ok, "2 of 2 workers are ready"),
            ([whole(1), broken(1)].concat(), 2, Status::Error, "1 of 2 workers are ready; broken"),
            (broken(5), 5, Status::Error, "0 of 5 workers are ready; broken; broken; broken; 2 more are not"),
            (whole(100), 230, Status::Ok, "100 of 230 workers are ready; no more than 100 were asked"),
            (whole(1), 3, Status::Error, "1 of 3 workers are ready; 2 had not answered within 10 s"),
        ] {
            let found = finding(&asked, wanted);
            assert_eq!((found.status, &*found.message), (status, message));
        }
    }
}
