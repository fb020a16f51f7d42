//! What the real git makes of the same files.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use super::{SECOND, artifact};

fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for name in ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"] {
        command.env(name, "bench");
    }
    command
}

fn run(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = git(folder).args(arguments).output().context("git")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {arguments:?}: {said}");
    Ok(said)
}

/// The manifest that goes with a release.
pub(super) fn manifest(agent: &str, at: u32) -> String {
    format!("apiVersion: agents.slipway.dev/v1\nkind: Agent\nmetadata:\n  name: {agent}\nspec:\n  note: {at}\n")
}

/// The files of a release: path and text. `status` is what `status.yaml` held, and holds then.
fn files(agent: &str, at: u32, version: u32, status: &mut String) -> [(String, String); 4] {
    let mut artifact = artifact(agent, at);
    artifact.metadata.version = u64::from(version);
    let text = artifact.to_yaml();
    // Writing to a String cannot fail.
    let _ = writeln!(status, "{version}: {{status: active, when: \"2027-01-15T08:00:00Z\"}}");
    [
        (format!("agents/{agent}/releases/v{version}.yaml"), text.clone()),
        (format!("agents/{agent}/current.yaml"), text),
        (format!("agents/{agent}/status.yaml"), status.clone()),
        (format!("deploy/{agent}.yaml"), manifest(agent, at)),
    ]
}

/// `git commit` by command line. Commits per second.
pub(super) fn commits(folder: &Path, commits: u32, durable: bool) -> anyhow::Result<f64> {
    fs::create_dir_all(folder)?;
    run(folder, &["init", "--quiet"])?;
    committed(folder, commits, durable, (0, String::new()))
}

/// Goes on in a folder that has this number of versions of an agent, and this list of them.
fn committed(folder: &Path, commits: u32, durable: bool, (begun, mut status): (u32, String)) -> anyhow::Result<f64> {
    run(folder, &["config", "gc.auto", "0"])?;
    if durable {
        run(folder, &["config", "core.fsync", "all"])?;
    }
    let clock = Instant::now();
    for at in begun..begun + commits {
        let files = files("agent-0", at, at + 1, &mut status);
        for (path, text) in &files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().context("no folder")?)?;
            fs::write(path, text)?;
        }
        run(folder, &["add", "--all"])?;
        run(folder, &["commit", "--quiet", "--message", "Change"])?;
    }
    Ok(f64::from(commits) / clock.elapsed().as_secs_f64())
}

/// `git fast-import` of the same files. Commits per second.
pub(super) fn fast_import(folder: &Path, commits: u32, agents: u32) -> anyhow::Result<f64> {
    fs::create_dir_all(folder)?;
    run(folder, &["init", "--quiet", "--bare"])?;
    imported(folder, commits, 0, vec![String::new(); agents as usize])
}

/// Goes on in a repository that has this number of commits, and these lists of versions by agent.
fn imported(folder: &Path, commits: u32, begun: u32, mut statuses: Vec<String>) -> anyhow::Result<f64> {
    let agents = u32::try_from(statuses.len())?;
    let mut stream = Vec::new();
    for at in begun..begun + commits {
        let agent = format!("agent-{}", at % agents);
        writeln!(stream, "commit refs/heads/main\ncommitter bench <bench> {} +0000\ndata 6\nChange", SECOND + i64::from(at))?;
        if at == begun && begun > 0 {
            writeln!(stream, "from refs/heads/main^0")?;
        }
        for (path, text) in files(&agent, at, at / agents + 1, &mut statuses[(at % agents) as usize]) {
            writeln!(stream, "M 100644 inline {path}\ndata {}\n{text}", text.len())?;
        }
    }
    let clock = Instant::now();
    let mut child = git(folder).args(["-c", "core.fsync=all", "fast-import", "--quiet"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().context("no input")?.write_all(&stream)?;
    ensure!(child.wait()?.success(), "git fast-import failed");
    Ok(f64::from(commits) / clock.elapsed().as_secs_f64())
}

/// What `git commit` and `git fast-import` make of further releases of a history of one agent: commits per second of each.
pub(super) fn further(repository: &Path, beside: &Path, size: u32, commits: u32) -> anyhow::Result<(f64, f64)> {
    let from = repository.to_string_lossy();
    let (tree, bare) = (beside.join(format!("further-{size}")), beside.join(format!("further-{size}.git")));
    run(beside, &["clone", "--quiet", "--no-local", "--branch", "main", &from, &tree.to_string_lossy()])?;
    run(beside, &["clone", "--quiet", "--no-local", "--bare", &from, &bare.to_string_lossy()])?;
    let status = fs::read_to_string(tree.join("agents/agent-0/status.yaml"))?;
    let committed = committed(&tree, commits, true, (size, status.clone()))?;
    let imported = imported(&bare, commits, size, vec![status])?;
    fs::remove_dir_all(tree)?;
    fs::remove_dir_all(bare)?;
    Ok((committed, imported))
}

/// Fails if the repository is not as Git wants it.
pub(super) fn check(repository: &Path) -> anyhow::Result<()> {
    let said = run(repository, &["fsck", "--strict", "--full", "--no-dangling"])?;
    ensure!(!said.contains("error") && !said.contains("missing"), "git fsck: {said}");
    Ok(())
}

/// The bytes of all objects on the disk, and the number of packs.
pub(super) fn weight(repository: &Path) -> anyhow::Result<(f64, usize)> {
    let said = run(repository, &["count-objects", "-v"])?;
    let value = |key: &str| said.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u32>().ok()).unwrap_or(0);
    Ok((f64::from(value("size:") + value("size-pack:")) * 1024.0, value("packs:") as usize))
}

/// The same of a copy that `git gc` has packed.
pub(super) fn collected(repository: &Path, copy: &Path) -> anyhow::Result<(f64, usize)> {
    let parent = copy.parent().context("no folder")?;
    run(parent, &["clone", "--quiet", "--mirror", &repository.to_string_lossy(), &copy.to_string_lossy()])?;
    run(copy, &["gc", "--quiet", "--prune=now"])?;
    weight(copy)
}
