//! Alerts a second that reach a receiver which answers at once, by the queue in the database, the operator and the team's worker, beside
//! a client that posts the same bodies and does nothing else.

use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::json;
use slipway_api::ids;
use slipway_peers::Postgres;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::receiver::{MARK, Receiver};
use super::{ALLOWING, Integrations, TIMEOUT};
use crate::cluster::TEAM;
use crate::manager::Manager;
use crate::{http, table};

/// As many of a team are sent something at once.
const RECEIVERS: usize = 8;
/// To each.
const MESSAGES: usize = 250;
const ALL: usize = RECEIVERS * MESSAGES;
/// 32 bytes that sign nothing else.
const SIGNING_SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// `manager` is one without a database, which tests the integrations.
pub(super) async fn measure(bench: &Integrations<'_>, manager: Manager) -> anyhow::Result<()> {
    let receiver = Receiver::start()?;
    let names: Vec<String> = (0..RECEIVERS).map(|nth| format!("hook-{nth}")).collect();
    let what = json!({"webhook": {"url": format!("http://127.0.0.1:{}/hook", receiver.port)}, "alerts": {}});
    for name in &names {
        bench.apply(name, &what, Some(("signing_secret", SIGNING_SECRET))).await?;
    }
    let uids = bench.connected(&names).await?;
    drop(manager);

    let postgres = Postgres::durable();
    let url = postgres.url();
    slipway_database::migrate(&url, None, None).await?;
    let body = body();
    seed(&postgres, &uids, &body);
    let _manager = Manager::ready_with(&[&ALLOWING[..], &["--database-url", url.as_str()]].concat()).await?;
    let deadline = Instant::now() + TIMEOUT;
    let heard = loop {
        let heard = receiver.heard();
        if heard.len() >= ALL {
            break heard;
        }
        if Instant::now() > deadline {
            bail!("{} of {ALL} messages arrive within {} s", heard.len(), TIMEOUT.as_secs());
        }
        sleep(Duration::from_millis(50)).await;
    };
    let took = heard[ALL - 1].duration_since(heard[0]).as_secs_f64();
    let floor = block_in_place(|| posted(receiver.port, &body))?;
    let count = f64::from(u32::try_from(ALL)?);
    let (rate, floor) = (count / took, count / floor);
    table::part(&format!("Integrations: {ALL} alerts for {RECEIVERS} webhooks of a receiver that answers at once"));
    table::beside("deliveries", (&table::per_second(rate), rate), (&table::per_second(floor), floor), ">= 100/s");
    table::remark(
        "from the first that arrives to the last, each noted in a database that keeps what it says; the floor is a client that posts the same bodies, eight at once, each on a connection of its own",
    );
    if heard.len() > ALL {
        table::remark(&format!("{} arrived twice", heard.len() - ALL));
    }
    Ok(())
}

/// What is sent about an alert.
fn body() -> String {
    let data = json!({
        "id": "al_00000000000000000000000000", "team": TEAM, "agent_id": "ag_bench", "agent": "agent-00000", "severity": "critical",
        "metric": "error_rate_pct", "policy": null, "value": 34.0, "threshold": 20.0, "message": "34 % of requests fail, more than 20 %",
        "trace_ids": ["tr_01ARZ3NDEKTSV4RRFFQ69G5FAV"], "created_at": "2026-01-02T03:04:05Z", "resolved_at": null,
    });
    json!({"type": "alert.raised", "timestamp": "2026-01-02T03:04:05Z", "data": data}).to_string()
}

/// Messages that are due, as the operator writes them when alerts are raised.
fn seed(postgres: &Postgres, uids: &[String], body: &str) {
    let (team, uids) = (ids::team(TEAM), uids.join("', '"));
    postgres.psql(&format!(
        "INSERT INTO slipway.alert_deliveries (team, agent_id, integration, alert_id, stage, message_id, payload, created_at, due_at)
         SELECT '{team}', 'ag_bench', i.uid, 'al_' || lpad(n::text, 26, '0'), 'raised', '{MARK}' || i.place || '_' || n, '{body}', now(), now()
         FROM unnest(ARRAY['{uids}']::text[]) WITH ORDINALITY AS i (uid, place), generate_series(1, {MESSAGES}) n"
    ));
}

/// The seconds of as many posts of the same body by clients of their own.
fn posted(port: u16, body: &str) -> anyhow::Result<f64> {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let send_all = || (0..MESSAGES).try_for_each(|_| http::post(port, "/floor", body).map(drop));
        let clients: Vec<_> = (0..RECEIVERS).map(|_| scope.spawn(send_all)).collect();
        for client in clients {
            match client.join() {
                Ok(outcome) => outcome?,
                Err(_) => bail!("a client has panicked"),
            }
        }
        Ok(begun.elapsed().as_secs_f64())
    })
}
