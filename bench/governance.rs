//! Governance: what ten policies and all guards cost a chat of 1 KiB and the first byte of a stream, and what the radar and
//! scorecards of 1,000 agents cost, each of which has used something in every minute of a day.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_api::ids;
use slipway_database::{AgentKey, Tenants};
use slipway_peers::Postgres;
use tokio::task::block_in_place;

use crate::callers::Callers;
use crate::cluster::{Cluster, OPERATED, TEAM, agent_name};
use crate::load::{Answered, Load, SECONDS};
use crate::manager::Manager;
use crate::numbers::{median, percentile};
use crate::observe::complete;
use crate::rest::Rest;
use crate::start::{Process, cores};
use crate::streams::first_byte;
use crate::{http, runtime, table};

/// Of which the percentiles of an answer's time are taken, at each runtime in turn.
const CHATS: u32 = 2_000;
const STREAMS: u32 = 400;
const WARM: u32 = 200;
const AGENTS: u32 = 1_000;
const MINUTES: u32 = 1_440;
const PAGE: u32 = 100;

pub(crate) fn measure(runs: u32) -> anyhow::Result<()> {
    let (core, _) = cores()?;
    let (policies, guards) = (policies().to_string(), guards().to_string());
    let governed = [("RUNTIME_POLICIES", &*policies), ("RUNTIME_GUARDS", &*guards)];
    let postgres = Postgres::start();
    let url = postgres.url();
    let stored = [("RUNTIME_STORAGE", "postgresql"), ("RUNTIME_DATABASE_URL", &*url), ("RUNTIME_DATABASE_PREPARED_STATEMENTS", "true")];
    let served = |how: &[&[(&str, &str)]]| Served::start(&core, &how.concat());
    let alone = (served(&[])?, served(&[&governed])?);
    table::part(&format!(
        "Governance: a chat of 1 KiB with ten policies and all guards, runtime on one core, one at a time, each on a new connection; {CHATS} chats each, {runs} times"
    ));
    chats("without a database", &alone, runs)?;
    // One after the other, since each would migrate.
    let bare = served(&[&stored, &[("RUNTIME_DATABASE_MIGRATE", "true"), ("RUNTIME_AGENT_ID", "ag_bare")]])?;
    let kept = (bare, served(&[&stored, &[("RUNTIME_AGENT_ID", "ag_governed")], &governed])?);
    chats("with PostgreSQL and budgets", &kept, runs)?;
    table::remark("the floor is the same runtime without policies and guards; the database does not wait for the disk");
    let leased = postgres.psql("SELECT count(*) FROM slipway.budgets WHERE agent_id = 'ag_governed'");
    table::alone("agents with a shared budget", leased.trim(), "1");

    table::part(&format!("Governance: first byte of a stream with all guards, {STREAMS} streams each"));
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..STREAMS {
        without.push(first_byte(alone.0.port, "/chat/stream", &message(), "")?);
        with.push(first_byte(alone.1.port, "/chat/stream", &message(), "")?);
    }
    beside("first byte, p50", median(&with), median(&without), table::milliseconds, "1 ms later at most");
    beside("first byte, p99", percentile(&with, 99), percentile(&without, 99), table::milliseconds, "none");
    table::part("Governance: memory of the runtime (resident), after that");
    for (how, (bare, governed)) in [("without a database", &alone), ("with PostgreSQL", &kept)] {
        beside(how, governed.process.resident()?, bare.process.resident()?, table::mebibytes, "none");
    }
    Ok(())
}

struct Served {
    process: Process,
    port: u16,
}

impl Served {
    fn start(core: &str, variables: &[(&str, &str)]) -> anyhow::Result<Self> {
        let port = http::free_port()?;
        let process = runtime::serve(port, core, variables)?;
        runtime::first_chat(port, Instant::now())?;
        Ok(Self { process, port })
    }

    /// The seconds of a chat.
    fn chat(&self, body: &str) -> anyhow::Result<f64> {
        let begun = Instant::now();
        http::post(self.port, "/chat", body)?;
        Ok(begun.elapsed().as_secs_f64())
    }
}

/// Both are asked in turn, so that what the machine does meanwhile meets both.
fn chats(how: &str, (bare, governed): &(Served, Served), runs: u32) -> anyhow::Result<()> {
    let body = message();
    for server in [bare, governed] {
        for _ in 0..WARM {
            server.chat(&body)?;
        }
    }
    let mut found: [Vec<f64>; 4] = Default::default();
    for _ in 0..runs {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..CHATS {
            without.push(bare.chat(&body)?);
            with.push(governed.chat(&body)?);
        }
        let all = [median(&with), median(&without), percentile(&with, 99), percentile(&without, 99)];
        found.iter_mut().zip(all).for_each(|(list, value)| list.push(value));
    }
    let listed = |list: &[f64]| list.iter().map(|seconds| table::milliseconds(*seconds)).collect::<Vec<_>>().join(", ");
    table::remark(&format!("p99 of each time: {}; of the floor: {}", listed(&found[2]), listed(&found[3])));
    let [p50, floor50, p99, floor99] = found.map(|list| median(&list));
    beside(&format!("p50, {how}"), p50, floor50, table::milliseconds, "none");
    beside(&format!("p99, {how}"), p99, floor99, table::milliseconds, "0.1 ms more at most");
    table::remark(&format!(
        "policies and guards add {:.0} µs at the median and {:.0} µs at p99",
        (p50 - floor50) * 1e6,
        (p99 - floor99) * 1e6
    ));
    Ok(())
}

fn beside(what: &str, measured: f64, floor: f64, words: fn(f64) -> String, goal: &str) {
    table::beside(what, (&words(measured), measured), (&words(floor), floor), goal);
}

/// 1 KiB in which there is nothing to find.
fn message() -> String {
    let text = "The train to the coast leaves at nine from the second platform, and nobody knows why it is late. ".repeat(11);
    crate::streams::message(&text[..1024])
}

/// Of every type one at least, none of which is ever violated.
fn policies() -> Value {
    let rules = [
        ("max_tokens", "lt", "100000", "critical"),
        ("max_latency", "lt", "60000", "warning"),
        ("max_cost_per_day", "lt", "1000000", "critical"),
        ("max_requests_per_minute", "lte", "100000000", "critical"),
        ("blocked_topics", "contains", "violence, illegal_activity, self_harm", "critical"),
        ("blocked_topics", "contains", "gambling, weapons, insider trading, medical advice, legal advice", "critical"),
        ("blocked_topics", "contains", "competitor pricing, unannounced products, layoffs", "warning"),
        ("denied_tools", "contains", "shell, delete_everything, transfer_money", "critical"),
        ("allowed_models", "in", "stub:*, openai:gpt-4o", "critical"),
        ("required_guards", "contains", "pii-detection, secrets-scanner, prompt-injection", "critical"),
    ];
    rules
        .iter()
        .enumerate()
        .map(|(at, (kind, operator, value, severity))| {
            let rule = json!({"type": kind, "operator": operator, "value": value});
            json!({"id": format!("gp_bench_{at}"), "name": format!("Bench {at}"), "severity": severity, "enabled": true, "rules": [rule]})
        })
        .collect()
}

fn guards() -> Value {
    json!([
        "pii-detection", "secrets-scanner", "prompt-injection", "blocked-topics",
        {"name": "max-tokens", "limit": 100_000},
        {"name": "rate-limit", "requests": 100_000_000},
        {"name": "spend-limit", "usd": 1_000_000},
    ])
}

/// REST's pages about many agents, as a caller of an installation gets them.
pub(crate) async fn fleet(cluster: &Cluster) -> anyhow::Result<()> {
    let (core, other) = cores()?;
    cluster.clear().await?;
    let manager = Manager::ready().await?;
    let (uids, ()) = tokio::try_join!(cluster.create_agents(OPERATED, AGENTS), complete(cluster, OPERATED, AGENTS))?;
    drop(manager);
    let callers = Callers::prepare(cluster).await?;
    let postgres = Postgres::durable();
    block_in_place(|| seed(&postgres, &core, &uids))?;
    sizes(&postgres);
    violations(&postgres, &uids).await?;

    let url = postgres.url();
    let rest = Rest::start_with(&core, 1, Some(&callers), &["--database-url", &url]).await?;
    table::part(&format!(
        "Governance: {AGENTS} agents with a day of usage, pages of {PAGE}, 4 connections; a token of the cluster, reviews, REST on one core, {SECONDS} s each"
    ));
    let before = rest.process.resident()?;
    let header = callers.account.replace('\n', "\r\n");
    let one = format!("/api/v1/radar/{}", agent_name(AGENTS / 2));
    let pages = [
        ("radar", format!("/api/v1/radar?limit={PAGE}")),
        ("scorecards", format!("/api/v1/governance/scorecards?limit={PAGE}")),
        ("open alerts", format!("/api/v1/radar/alerts?limit={PAGE}")),
        ("radar, one agent", one.clone()),
        ("scorecard, one agent", one.replace("radar", "governance/scorecards")),
    ];
    let begun = Instant::now();
    let first = first_page(rest.port, &pages[0].1, &header)?;
    table::alone("first page, with its snapshot", &table::milliseconds(begun.elapsed().as_secs_f64()), "<= 1 s");
    if !first.contains("requests_24h") || first.contains("\"total_requests_24h\":null") {
        bail!("the radar shows no usage: {}", &first[..first.floor_char_boundary(400)]);
    }
    for (what, path) in &pages {
        let bytes = first_page(rest.port, path, &header)?.len();
        let load = Load { port: rest.port, core: &other, connections: 4, paths: path, body: None, headers: &callers.account };
        let Answered { rate, p50, p99 } = block_in_place(|| load.run())?;
        let figures = format!("{}, {}", table::milliseconds(p50), table::milliseconds(p99));
        table::alone(&format!("{what}, p50 and p99"), &figures, "p99 <= 50 ms");
        table::remark(&format!("{}, {bytes} bytes", table::per_second(rate)));
    }
    beside("memory of REST (resident)", rest.process.resident()?, before, table::mebibytes, "none");
    table::remark("the floor is the same process before it was asked; a snapshot of all agents is read once a minute at most");
    Ok(())
}

fn first_page(port: u16, path: &str, header: &str) -> anyhow::Result<String> {
    http::call(port, "GET", path, header, None, 200).with_context(|| path.to_owned())
}

/// A day of all agents, as their runtimes and the manager write it: each minute some requests of one model on one track, readiness,
/// an alert of every twentieth agent; each breaks a rule in every minute, and every tenth another one each hour.
fn seed(postgres: &Postgres, core: &str, uids: &[String]) -> anyhow::Result<()> {
    let (url, port) = (postgres.url(), http::free_port()?);
    let migrating = [
        ("RUNTIME_STORAGE", "postgresql"),
        ("RUNTIME_DATABASE_URL", &*url),
        ("RUNTIME_DATABASE_MIGRATE", "true"),
        ("RUNTIME_AGENT_ID", "ag_migrating"),
    ];
    let runtime = runtime::serve(port, core, &migrating)?;
    runtime::first_chat(port, Instant::now())?;
    drop(runtime);
    let mut agents = String::new();
    for (at, uid) in uids.iter().enumerate() {
        let _ = write!(
            agents,
            "{}('{}', '{uid}', {at})",
            if at == 0 { "" } else { ", " },
            ids::agent(OPERATED, &agent_name(u32::try_from(at)?))
        );
    }
    let team = ids::team(TEAM);
    let begun = Instant::now();
    postgres.psql(&format!(
        "CREATE TABLE public.bench (id text, uid text, at integer);
         INSERT INTO public.bench VALUES {agents};
         INSERT INTO slipway.owners (team, agent_id, uid, team_uid) SELECT '{team}', id, uid, 'bench' FROM public.bench ON CONFLICT DO NOTHING;
         INSERT INTO slipway.usage_by_run (team, agent_id, minute, track, run_hash, provider, model, requests, errors, input_tokens,
             output_tokens, cost_micros, guard_blocks, pii, injections, violations, latency, measured, latency_ms, audited, retrieved, cited,
             unpriced, cancelled)
         SELECT '{team}', id, date_trunc('minute', now()) - m * interval '1 minute', 'stable', 'bench', 'openai', 'gpt-4o', 10, m % 10 / 9, 9000,
             1000, 20000, m % 7 / 6, 0, 0, 0, array_fill(0::bigint, ARRAY[6]) || ARRAY[9, 1]::bigint[] || array_fill(0::bigint, ARRAY[8]), 10, 8500, 10, 5, 4, 0, 0
         FROM public.bench, generate_series(1, {MINUTES}) m;
         INSERT INTO slipway.readiness_hours (team, agent_id, hour, uid, samples, ready, last_minute, last_ready)
         SELECT '{team}', id, date_trunc('hour', now()) - h * interval '1 hour', uid, 60, 60, now(), now() FROM public.bench, generate_series(0, 24) h;
         INSERT INTO slipway.policy_violations (team, agent_id, minute, track, run_hash, policy, rule, stage, blocked, count, conversations)
         SELECT '{team}', id, date_trunc('minute', now()) - h * interval '1 hour', 'stable', 'bench', 'gp_default_tokens', 'max_tokens', 'input', false, 3, '{{1, 2, 3}}'
         FROM public.bench, generate_series(1, 23) h WHERE at % 10 = 0;
         INSERT INTO slipway.policy_violations (team, agent_id, minute, track, run_hash, policy, rule, stage, blocked, count, conversations)
         SELECT '{team}', id, date_trunc('minute', now()) - m * interval '1 minute', 'stable', 'bench', 'gp_default_latency', 'max_latency', 'output', false, 3,
             ARRAY[m, m + 1, m + 2] FROM public.bench, generate_series(1, {MINUTES}) m;
         INSERT INTO slipway.violation_hours (team, agent_id, hour, track, run_hash, policy, rule, stage, blocked, count, last_minute)
         SELECT team, agent_id, date_trunc('hour', minute, 'UTC'), track, run_hash, policy, rule, stage, blocked, sum(count), max(minute)
         FROM slipway.policy_violations GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9;
         INSERT INTO slipway.alerts (team, agent_id, id, uid, metric, policy, severity, message, value, threshold, traces, created_at, last_seen)
         SELECT '{team}', id, 'al_' || lpad(at::text, 26, '0'), uid, 'error_rate_pct', '', 'warning', 'A tenth of its requests fail.', 10, 5, '{{}}', now(), now()
         FROM public.bench WHERE at % 20 = 0;
         DROP TABLE public.bench"
    ));
    postgres.psql("VACUUM ANALYZE");
    let took = begun.elapsed();
    if took > Duration::from_mins(10) {
        bail!("a day of usage took {} s to write", took.as_secs());
    }
    Ok(())
}

/// What the manager asks every five minutes. A statement of these may take 3 s.
async fn violations(postgres: &Postgres, uids: &[String]) -> anyhow::Result<()> {
    let tenants = Tenants::open(&postgres.url(), None, None)?;
    let key =
        |(at, uid): (u32, &String)| AgentKey { team: ids::team(TEAM), agent_id: ids::agent(OPERATED, &agent_name(at)), uid: uid.clone() };
    let agents: Vec<AgentKey> = (0_u32..).zip(uids).map(key).collect();
    let before = |hours: i64| Timestamp::from_second(Timestamp::now().as_second() - hours * 3600);
    table::part(&format!(
        "Governance: violations of {AGENTS} agents, each of which breaks a rule in every minute of a day, PostgreSQL on all cores"
    ));
    let begun = Instant::now();
    let day = tenants.readings().violations(&agents, before(24)?).await?;
    table::alone("a day by rule, for statuses", &table::milliseconds(begun.elapsed().as_secs_f64()), "<= 1 s");
    let begun = Instant::now();
    let week = tenants.readings().violations_by_run(&agents, &["gp_default_latency".to_owned()], before(7 * 24)?).await?;
    table::alone("a week by release, for rollbacks", &table::milliseconds(begun.elapsed().as_secs_f64()), "<= 1 s");
    if day.len() < agents.len() || week.len() != agents.len() || day.iter().any(|row| row.partial) {
        bail!("of {} agents {} rules and {} releases are shown", agents.len(), day.len(), week.len());
    }
    Ok(())
}

/// What a day of an agent takes in the database.
fn sizes(postgres: &Postgres) {
    table::part(&format!("Governance: an agent that is asked in every minute of a day; {AGENTS} of them, PostgreSQL, with indexes"));
    for name in ["usage_by_run", "usage_spans", "policy_violations", "violation_hours", "readiness_hours", "alerts"] {
        let said = postgres.psql(&format!("SELECT count(*), pg_total_relation_size('slipway.{name}') FROM slipway.{name}"));
        let numbers: Vec<f64> = said.trim().split('|').filter_map(|number| number.trim().parse().ok()).collect();
        let [rows, bytes] = numbers[..] else { continue };
        let agents = f64::from(AGENTS);
        table::alone(&format!("{name}, rows and KiB"), &format!("{:.1}, {:.1}", rows / agents, bytes / agents / 1024.0), "");
    }
}
