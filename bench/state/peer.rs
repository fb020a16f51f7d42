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
    run(folder, &["config", "gc.auto", "0"])?;
    if durable {
        run(folder, &["config", "core.fsync", "all"])?;
    }
    let mut status = String::new();
    let begun = Instant::now();
    for at in 0..commits {
        let files = files("agent-0", at, at + 1, &mut status);
        for (path, text) in &files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().context("no folder")?)?;
            fs::write(path, text)?;
        }
        run(folder, &["add", "--all"])?;
        run(folder, &["commit", "--quiet", "--message", "Change"])?;
    }
    Ok(f64::from(commits) / begun.elapsed().as_secs_f64())
}

/// `git fast-import` of the same files. Commits per second.
pub(super) fn fast_import(folder: &Path, commits: u32, agents: u32) -> anyhow::Result<f64> {
    fs::create_dir_all(folder)?;
    run(folder, &["init", "--quiet", "--bare"])?;
    let mut statuses = vec![String::new(); agents as usize];
    let mut stream = String::new();
    for at in 0..commits {
        let agent = format!("agent-{}", at % agents);
        writeln!(stream, "commit refs/heads/main\ncommitter bench <bench> {} +0000\ndata 6\nChange", SECOND + i64::from(at))?;
        for (path, text) in files(&agent, at, at / agents + 1, &mut statuses[(at % agents) as usize]) {
            writeln!(stream, "M 100644 inline {path}\ndata {}\n{text}", text.len())?;
        }
    }
    let begun = Instant::now();
    let mut child = git(folder).args(["-c", "core.fsync=all", "fast-import", "--quiet"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().context("no input")?.write_all(stream.as_bytes())?;
    ensure!(child.wait()?.success(), "git fast-import failed");
    Ok(f64::from(commits) / begun.elapsed().as_secs_f64())
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
