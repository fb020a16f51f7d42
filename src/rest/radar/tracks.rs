//! The two tracks of an agent with a canary, each with its present version: read for one agent at a time, as canaries are few.

use jiff::Timestamp;
use slipway_api::Track;
use slipway_cluster::Key;
use slipway_database::{AgentUsage, Fault, Reader, RunScore, Used};
use slipway_governance::{MeasuredUsage, Score, ScoreSource};

use super::fleet::{RELEVANCE, Reading, SAFETY, Serving, Snapshot, granted, runs};
use super::key_of;
use crate::agents::{AgentState, ConversationStorage};
use crate::context::Context;
use crate::list_cache::ListEntry;

/// What was measured of the stable track and of the canary. None without a canary, and where it is not known.
pub(crate) async fn readings(
    context: &Context,
    key: &Key,
    item: &ListEntry<AgentState>,
    snapshot: &Snapshot,
) -> Option<[(Track, Reading); 2]> {
    let reader = context.database.as_ref()?;
    let canary = item.data.canary_run.as_deref()?;
    let recorded = match Recorded::read(reader, key, item, snapshot.since()).await {
        Ok(recorded) => recorded,
        Err(fault) => {
            tracing::debug!(%fault, "tracks are not known");
            return None;
        }
    };
    let runs = runs(context, Some(&key.namespace));
    let reading = |track, run_hash: Option<&str>| {
        let mut reading = recorded.of(track, run_hash.unwrap_or_default(), item.data.storage == ConversationStorage::Platform);
        let serves: Serving = (key.clone(), run_hash.map(Into::into));
        if let Some(run) = runs.get(&serves).filter(|run| run_hash.is_some() && run.created >= item.created) {
            reading.take_scores(&run.scores, snapshot.taken_at);
        }
        (track, reading)
    };
    Some([reading(Track::Stable, item.data.run_hash.as_deref()), reading(Track::Canary, canary.run_hash.as_deref())])
}

/// What the database has of one agent, by track and by what ran.
struct Recorded {
    used: Vec<AgentUsage>,
    scores: Vec<RunScore>,
}

impl Recorded {
    async fn read(reader: &Reader, key: &Key, item: &ListEntry<AgentState>, since: Timestamp) -> Result<Self, Fault> {
        let (keys, readings) = ([key_of(&key.namespace, item)], reader.readings());
        let used = readings.usage_by_run(&keys, since).await?;
        let scores = granted(readings.sampled_by_run(&keys, since).await)?.unwrap_or_default();
        Ok(Self { used, scores })
    }

    fn of(&self, track: Track, run_hash: &str, is_recorded: bool) -> Reading {
        let mut reading = if is_recorded { Reading::idle() } else { Reading::default() };
        let is_of = |found: &str, hash: &str| found == track.as_str() && hash == run_hash;
        let mut used: Option<Used> = None;
        for row in self.used.iter().filter(|row| is_of(&row.track, &row.run_hash)) {
            used.get_or_insert_default().add(&row.used);
            reading.is_partial |= row.partial;
        }
        if let Some(used) = used {
            reading.usage = Some(MeasuredUsage::from(&used));
        }
        // Of several judges the one counts that scored the most, as in the scorecard of the whole agent.
        let mean = |scorer: &str| {
            let scored = self.scores.iter().filter(|score| score.scorer == scorer && is_of(&score.track, &score.run_hash));
            scored.max_by_key(|score| score.scored).map(|score| Score { mean: score.mean, source: ScoreSource::Slipway })
        };
        (reading.safety, reading.relevance_to_query) = (mean(SAFETY), mean(RELEVANCE));
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_track_has_what_it_runs_now() {
        let used = |track: &str, hash: &str, requests| AgentUsage {
            agent: 0,
            track: track.to_owned(),
            run_hash: hash.to_owned(),
            used: Used { requests, ..Used::default() },
            last_minute: Timestamp::UNIX_EPOCH,
            partial: requests == 7,
        };
        let score = |track: &str, judge: &str, scorer: &str, mean, scored| RunScore {
            agent: 0,
            track: track.to_owned(),
            run_hash: "now".to_owned(),
            judge: judge.to_owned(),
            scorer: scorer.to_owned(),
            mean,
            scored,
        };
        let recorded = Recorded {
            used: vec![used("stable", "now", 7), used("stable", "before", 100), used("canary", "now", 3), used("", "now", 50)],
            scores: vec![
                score("stable", "one", SAFETY, 0.5, 1),
                score("stable", "two", SAFETY, 0.75, 9),
                score("canary", "one", RELEVANCE, 0.25, 1),
            ],
        };
        let requests = |reading: &Reading| reading.usage.as_ref().map(|usage| usage.requests);
        let mean = |score: Option<Score>| score.map(|score| score.mean);
        let (stable, canary) = (recorded.of(Track::Stable, "now", true), recorded.of(Track::Canary, "now", true));
        assert_eq!(
            (requests(&stable), mean(stable.safety), mean(stable.relevance_to_query), stable.is_partial),
            (Some(7), Some(0.75), None, true)
        );
        assert_eq!(
            (requests(&canary), mean(canary.safety), mean(canary.relevance_to_query), canary.is_partial),
            (Some(3), None, Some(0.25), false)
        );
        assert_eq!(requests(&recorded.of(Track::Canary, "next", true)), Some(0), "nobody has asked it");
        assert_eq!(requests(&recorded.of(Track::Canary, "next", false)), None, "nobody counts");
    }
}
