//! Samples of agents' readiness: the manager adds one a minute and agent; no team's login has a right on the table.

use std::collections::BTreeMap;

use crate::connection::{ask, in_time};
use crate::readings::AgentKey;
use crate::{Fault, Tenants};

/// The most rows of one statement.
const BATCH: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadinessSample {
    pub agent: AgentKey,
    pub ready: bool,
}

impl Tenants {
    /// Adds samples of this minute, by the database's clock. An agent has one a minute: a second one changes nothing.
    pub async fn record_readiness(&self, samples: &[ReadinessSample]) -> Result<(), Fault> {
        const ADD: &str = "
            INSERT INTO slipway.readiness_hours AS r (team, agent_id, hour, uid, samples, ready, last_minute, last_ready)
            SELECT s.team, s.agent_id, date_trunc('hour', t.minute, 'UTC'), s.uid, 1, s.ready::integer, t.minute,
                   CASE WHEN s.ready THEN t.minute END
            FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) AS s (team, agent_id, uid, ready),
                 (SELECT date_trunc('minute', clock_timestamp(), 'UTC') AS minute) t
            ON CONFLICT (team, agent_id, hour, uid) DO UPDATE SET
                samples = r.samples + 1, ready = r.ready + excluded.ready, last_minute = excluded.last_minute,
                last_ready = coalesce(excluded.last_ready, r.last_ready)
            WHERE r.last_minute < excluded.last_minute";
        // Each agent once, and in the order of keys.
        let once: BTreeMap<_, _> = samples.iter().map(|sample| (key(&sample.agent), sample)).collect();
        for batch in once.values().collect::<Vec<_>>().chunks(BATCH) {
            let texts = |text: fn(&AgentKey) -> &String| batch.iter().map(|sample| text(&sample.agent).clone()).collect::<Vec<_>>();
            in_time(async {
                let mut work = self.door.begin().await?;
                ask(ADD)
                    .bind(texts(|key| &key.team))
                    .bind(texts(|key| &key.agent_id))
                    .bind(texts(|key| &key.uid))
                    .bind(batch.iter().map(|sample| sample.ready).collect::<Vec<_>>())
                    .execute(&mut *work)
                    .await?;
                work.commit().await
            })
            .await?;
        }
        Ok(())
    }
}

fn key(AgentKey { team, agent_id, uid }: &AgentKey) -> [&str; 3] {
    [team, agent_id, uid]
}
