//! The release history: releases per second on the disk, lists and differences by length, and what it weighs. Beside
//! it `git commit` and `git fast-import` write the same files to the same disk.

mod peer;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use slipway_release::{API_VERSION, AgentBlock, Artifact, Deployment, Governance, KIND, Metadata, Resolved, Runtime, Status, diff};
use slipway_state::git::Git;
use slipway_state::history::{Author, Draft, History};

use crate::numbers::median;
use crate::table;

const NAMESPACE: &str = "team-bench";
/// How long an agent's history is when it is looked at.
const SIZES: [u32; 2] = [100, 10_000];
const WRITERS: u32 = 8;
const AGENTS: u32 = 10;
/// How many releases are made in one measurement.
const RELEASES: u32 = 1000;
/// How many commits `git commit` makes.
const COMMITS: u32 = 100;
const READS: u32 = 50;
/// How many agents there are when they are many, in how many teams, with how many releases each.
const CROWDS: [u32; 2] = [1000, 10_000];
const TEAMS: u32 = 10;
const EACH: u32 = 3;
const SECOND: i64 = 1_800_000_000;

pub(crate) fn measure(runs: u32) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    rates(folder.path(), runs)?;
    lengths(folder.path(), runs)?;
    crowds(folder.path())
}

fn open(root: &Path) -> anyhow::Result<History> {
    std::fs::create_dir_all(root)?;
    Ok(History::open(root, Git::new("git", root, std::env::vars_os())?)?)
}

/// Short histories of some agents.
fn rates(folder: &Path, runs: u32) -> anyhow::Result<()> {
    table::part(&format!("Release history: releases per second, each on the disk when it is reported; {AGENTS} agents"));
    let (mut alone, mut together, mut commits, mut fast, mut usual) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for run in 0..runs.max(1) {
        for (writers, rates) in [(1, &mut alone), (WRITERS, &mut together)] {
            let history = open(&folder.join(format!("rates-{run}-{writers}")))?;
            rates.push(record(&history, writers, RELEASES, AGENTS, 0)?);
            drop(history);
            peer::check(&folder.join(format!("rates-{run}-{writers}/{NAMESPACE}.git")))?;
        }
        commits.push(peer::commits(&folder.join(format!("commit-{run}")), COMMITS, true)?);
        usual.push(peer::commits(&folder.join(format!("usual-{run}")), COMMITS, false)?);
        fast.push(peer::fast_import(&folder.join(format!("fast-{run}")), RELEASES, AGENTS)?);
    }
    let floor = median(&commits);
    let fast = median(&fast);
    for (what, rates, goal) in [("one writer", &alone, "none"), ("eight writers", &together, ">= 500/s")] {
        let rate = median(rates);
        let shown = table::per_second(rate);
        table::beside(what, (&shown, rate), (&table::per_second(floor), floor), goal);
        table::beside(&format!("{what}, fast-import"), (&shown, rate), (&table::per_second(fast), fast), "none");
    }
    table::remark("the first floor is `git commit` with core.fsync=all, one after the other; it has one writer only");
    table::remark(&format!(
        "as Git is set by default, where a loss of power may take commits, it makes {}",
        table::per_second(median(&usual))
    ));
    table::remark("the second floor is `git fast-import`, which is on the disk only at its end");
    Ok(())
}

/// One agent with a long history.
fn lengths(folder: &Path, runs: u32) -> anyhow::Result<()> {
    table::part("Release history of one agent, by number of versions");
    let root = folder.join("lengths");
    let mut growth: [Vec<(u32, f64)>; 6] = Default::default();
    let (mut commit_rates, mut fast_rates) = (Vec::new(), Vec::new());
    let mut before = 0;
    for size in SIZES {
        let timed = (size / 10).max(10);
        let mut history = open(&root)?;
        record(&history, WRITERS, size - timed * 2 - before, 1, before)?;
        let together = record(&history, WRITERS, timed, 1, size - timed * 2)?;
        let alone = record(&history, 1, timed, 1, size - timed)?;
        before = size;
        let begun = Instant::now();
        history.wait_for_repacks();
        let waited = begun.elapsed().as_secs_f64();
        let (mut cold, mut warm, mut difference) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..runs.max(1) {
            drop(history);
            history = open(&root)?;
            let list = |history: &History| -> anyhow::Result<f64> {
                let begun = Instant::now();
                let rows = history.list(NAMESPACE, "agent-0", None, size as usize)?.rows;
                let took = begun.elapsed().as_secs_f64();
                ensure!(
                    rows.len() == size as usize && rows.iter().all(|row| row.summary.is_ok()),
                    "not all of {size} versions were listed"
                );
                Ok(took)
            };
            cold.push(list(&history)?);
            for _ in 0..5 {
                warm.push(list(&history)?);
            }
            for at in 1..=READS {
                let version = u64::from(1 + at * 7 % size.min(997));
                let begun = Instant::now();
                let (from, to) = (history.release(NAMESPACE, "agent-0", version)?, history.release(NAMESPACE, "agent-0", u64::from(size))?);
                ensure!(!diff(&from, &to).is_empty() || version == u64::from(size), "v{version} and v{size} do not differ");
                difference.push(begun.elapsed().as_secs_f64());
            }
        }
        drop(history);
        let repository = root.join(format!("{NAMESPACE}.git"));
        peer::check(&repository)?;
        let (bytes, packs) = peer::weight(&repository)?;
        let (floor, _) = peer::collected(&repository, &folder.join(format!("collected-{size}")))?;
        // Git goes on from a copy of the same history.
        let (commits, fast) = peer::further(&repository, folder, size, timed.min(COMMITS))?;
        commit_rates.push((size, commits));
        fast_rates.push((size, fast));
        let what = |what: &str| format!("{size} versions, {what}");
        for (writers, rate, goal) in [("eight writers", together, ">= 500/s"), ("one writer", alone, "none")] {
            let shown = table::per_second(rate);
            table::beside(&what(writers), (&shown, rate), (&table::per_second(commits), commits), goal);
            table::beside(&what(&format!("{writers}, fast-import")), (&shown, rate), (&table::per_second(fast), fast), "none");
        }
        table::alone(&what("all listed"), &table::milliseconds(median(&warm)), if size == SIZES[1] { "< 50 ms" } else { "" });
        table::alone(&what("all listed after a start"), &table::milliseconds(median(&cold)), "");
        table::alone(&what("difference of two"), &table::milliseconds(median(&difference)), "");
        table::beside(
            &what("size on disk"),
            (&table::mebibytes(bytes / 1024.0), bytes),
            (&table::mebibytes(floor / 1024.0), floor),
            "none",
        );
        table::remark(&format!(
            "{:.0} bytes a release, in {packs} packs; {waited:.2} s until packs were repacked; the floor is a copy after `git gc`",
            bytes / f64::from(size)
        ));
        for (points, value) in growth.iter_mut().zip([together, alone, median(&warm), median(&cold), median(&difference), bytes]) {
            points.push((size, value));
        }
    }
    let names = ["releases/s, eight writers", "releases/s, one writer", "listing", "listing after a start", "difference", "size on disk"];
    for (name, points) in names.iter().zip(&growth) {
        table::growth(&format!("growth of {name}"), points);
    }
    table::growth("growth of git commit, releases/s", &commit_rates);
    table::growth("growth of fast-import, releases/s", &fast_rates);
    Ok(())
}

/// Many agents of few releases each: what it takes to open it all and to list each once, and what stays in memory.
fn crowds(folder: &Path) -> anyhow::Result<()> {
    table::part(&format!("Release history of many agents, {EACH} releases each, {TEAMS} teams, in a process of its own"));
    let root = folder.join("crowds");
    let mut growth: [Vec<(u32, f64)>; 4] = Default::default();
    let mut before = 0;
    for agents in CROWDS {
        let history = open(&root)?;
        let per_team = agents / TEAMS;
        for team in 0..TEAMS {
            let (namespace, known) = (format!("{NAMESPACE}-{team}"), before / TEAMS);
            record_all(&history, WRITERS, (per_team - known) * EACH, |at| draft(&namespace, known + at / EACH, known * EACH + at))?;
        }
        history.wait_for_repacks();
        drop(history);
        before = agents;
        let held = std::process::Command::new(std::env::current_exe()?).arg("--held").arg(&root).output()?;
        ensure!(held.status.success(), "{}", String::from_utf8_lossy(&held.stderr));
        let said = String::from_utf8(held.stdout)?;
        let numbers: Vec<f64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [count, first, all, again, memory] = numbers.as_slice() else { anyhow::bail!("{said:?} is not what was asked for") };
        ensure!((count - f64::from(agents * EACH)).abs() < 0.5, "{count} releases were listed of {agents} times {EACH}");
        let what = |what: &str| format!("{agents} agents, {what}");
        table::alone(&what("opened, first list"), &table::milliseconds(*first), "< 50 ms");
        table::alone(&what("each listed once"), &table::seconds(*all), "");
        table::alone(&what("each listed again"), &table::seconds(*again), "");
        table::alone(&what("memory"), &table::mebibytes(*memory), "");
        for (points, value) in growth.iter_mut().zip([first, all, again, memory]) {
            points.push((agents, *value));
        }
    }
    for (name, points) in ["first list", "each listed once", "each listed again", "memory"].iter().zip(&growth) {
        table::growth(&format!("growth of {name}"), points);
    }
    Ok(())
}

/// Opens a history, lists all there is, twice, and prints how many releases there were, the seconds until the first list,
/// until each was listed once, and again, and the memory of this process in KiB.
pub(crate) fn held(root: &Path) -> anyhow::Result<()> {
    let begun = Instant::now();
    let history = open(root)?;
    let list = |namespace: &str, agent: &str| -> anyhow::Result<usize> {
        let rows = history.list(namespace, agent, None, 100)?.rows;
        ensure!(rows.iter().all(|row| row.summary.is_ok() && row.recorded.is_some()), "{namespace} {agent}");
        Ok(rows.len())
    };
    list(&format!("{NAMESPACE}-0"), "agent-0")?;
    let first = begun.elapsed().as_secs_f64();
    let mut rounds = Vec::new();
    for _ in 0..2 {
        let (begun, mut count) = (Instant::now(), 0);
        for namespace in history.namespaces()? {
            for agent in history.agents(&namespace)? {
                count += list(&namespace, &agent)?;
            }
        }
        rounds.push((count, begun.elapsed().as_secs_f64()));
    }
    println!("{} {first} {} {} {}", rounds[0].0, rounds[0].1, rounds[1].1, table::resident()?);
    Ok(())
}

/// Records releases, and answers how many a second. `begun` were recorded before.
fn record(history: &History, writers: u32, releases: u32, agents: u32, begun: u32) -> anyhow::Result<f64> {
    record_all(history, writers, releases, |at| draft(NAMESPACE, (begun + at) % agents, begun + at))
}

fn record_all(history: &History, writers: u32, releases: u32, draft: impl Fn(u32) -> Draft + Sync) -> anyhow::Result<f64> {
    let next = AtomicU32::new(0);
    let clock = Instant::now();
    std::thread::scope(|scope| {
        let work = || -> anyhow::Result<()> {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= releases {
                    return Ok(());
                }
                let draft = draft(at);
                history.record(&draft.artifact.deployment.namespace.clone(), draft)?;
            }
        };
        let threads: Vec<_> = (0..writers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().ok().context("a writer panicked")?)
    })?;
    Ok(f64::from(releases) / clock.elapsed().as_secs_f64())
}

fn draft(namespace: &str, agent: u32, at: u32) -> Draft {
    let agent = format!("agent-{agent}");
    let mut artifact = artifact(&agent, at);
    namespace.clone_into(&mut artifact.deployment.namespace);
    let manifest = Some(peer::manifest(&agent, at));
    let author = Author { name: "Bench".to_owned(), email: "bench@example.com".to_owned() };
    Draft { name: format!("{agent}-{at}"), artifact, author, manifest }
}

/// An artifact such as agents have: a prompt of a page, of which little changes.
fn artifact(agent: &str, at: u32) -> Artifact {
    let prompt = format!("This is handbook {at}.\n");
    let prompt: String = std::iter::once(prompt)
        .chain((0..24).map(|line| format!("{line}. Answer what is asked about part {} of the handbook.\n", (at + line) % 31)))
        .collect();
    Artifact {
        api_version: API_VERSION.to_owned(),
        kind: KIND.to_owned(),
        metadata: Metadata {
            name: agent.to_owned(),
            version: 0,
            previous: 0,
            author: "bench@example.com".to_owned(),
            timestamp: jiff::Timestamp::from_second(SECOND + i64::from(at)).unwrap_or_default(),
            changelog: format!("Change {at}: the prompt is clearer"),
            checksum: String::new(),
            status: Status::Active,
            deleted_at: None,
        },
        runtime: Runtime { channel: "rest".to_owned(), strategy: "agent-react".to_owned(), replicas: Some(2), ..Runtime::default() },
        agent: AgentBlock { system_prompt: Some(prompt), tools: vec!["search".to_owned(), "weather".to_owned()], ..AgentBlock::default() },
        governance: Governance { risk_profile: "standard".to_owned(), ..Governance::default() },
        deployment: Deployment { namespace: NAMESPACE.to_owned(), ..Deployment::default() },
        resolved: Resolved::default(),
    }
}
