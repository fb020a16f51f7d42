//! Git's own server, `git http-backend`, which is a CGI program: what is here only carries its requests and answers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use tempfile::TempDir;

use crate::process::folder;

/// A server of repositories that everybody may read, on loopback. It ends with the test's process.
pub struct Git {
    folder: Arc<TempDir>,
    port: u16,
}

impl Git {
    pub fn start() -> Git {
        let folder = Arc::new(folder());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback");
        let port = listener.local_addr().expect("a listener has an address").port();
        let root = folder.path().to_owned();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let root = root.clone();
                thread::spawn(move || drop(serve(&stream, &root)));
            }
        });
        Git { folder, port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self, repository: &str) -> String {
        format!("http://127.0.0.1:{}/{repository}", self.port)
    }

    /// Makes a repository, in whose work tree a shell script is run, and which is served from then on. The script
    /// makes commits; `commit` adds all there is and makes one.
    pub fn repository(&self, name: &str, script: &str) {
        let path = self.folder.path().join(name);
        let script =
            format!("set -eu\ngit init -q -b main \"$1\"\ncd \"$1\"\ncommit() {{ git add -A; git commit -qm \"$1\"; }}\n{script}\n");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(&path).envs(ALONE).env("HOME", self.folder.path());
        let done = command.output().expect("sh and git can be run");
        assert!(done.status.success(), "{name} could not be made: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// No configuration of this machine counts.
pub(crate) const ALONE: [(&str, &str); 6] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_AUTHOR_NAME", "Ada"),
    ("GIT_AUTHOR_EMAIL", "ada@example.com"),
    ("GIT_COMMITTER_NAME", "Ada"),
    ("GIT_COMMITTER_EMAIL", "ada@example.com"),
];

/// Runs to the end, which must be a good one; what it wrote.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} could not be run: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// An empty bare repository that takes pushes, with hooks.
pub(crate) fn bare(path: &Path, hooks: &[(&str, &str)]) -> PathBuf {
    succeed(Command::new("git").args(["init", "-q", "--bare", "-b", "main", "--template="]).arg(path).envs(ALONE));
    succeed(Command::new("git").arg("-C").arg(path).args(["config", "http.receivepack", "true"]).envs(ALONE));
    for (name, script) in hooks {
        let hook = path.join("hooks").join(name);
        fs::create_dir_all(path.join("hooks")).expect("a folder in a folder of ours");
        fs::write(&hook, format!("#!/bin/sh\n{script}\n")).expect("a file in a folder of ours");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("a file of ours");
    }
    path.to_owned()
}

fn serve(stream: &TcpStream, root: &Path) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut command = Command::new("git");
    command.arg("http-backend").envs(ALONE).env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1");
    // Who runs the tests need not be who owns the folder.
    command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
    command.env("REQUEST_METHOD", method).env("PATH_INFO", path).env("QUERY_STRING", query);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or(0),
            "content-type" => drop(command.env("CONTENT_TYPE", value)),
            "git-protocol" => drop(command.env("GIT_PROTOCOL", value)),
            _ => {}
        }
    }
    command.env("CONTENT_LENGTH", length.to_string());
    let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    if let Some(mut input) = program.stdin.take() {
        input.write_all(&body)?;
    }
    let mut output = BufReader::new(program.stdout.take().ok_or_else(|| std::io::Error::other("no output"))?);
    let (mut status, mut head) = ("200 OK".to_owned(), String::new());
    loop {
        let mut line = String::new();
        if output.read_line(&mut line)? == 0 || line.trim_end().is_empty() {
            break;
        }
        match line.strip_prefix("Status: ") {
            Some(told) => told.trim_end().clone_into(&mut status),
            None => head.push_str(&line),
        }
    }
    let mut client = stream;
    write!(client, "HTTP/1.1 {status}\r\n{head}Connection: close\r\n\r\n")?;
    std::io::copy(&mut output, &mut client)?;
    program.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_itself_can_clone_what_is_served() {
        let git = Git::start();
        git.repository("r", "echo hello > a; commit first; git tag v1");
        let folder = folder();
        let target = folder.path().join("clone");
        let mut command = Command::new("git");
        command.args(["clone", "-q", "--depth=1", "--branch=v1", &git.url("r")]).arg(&target).envs(ALONE);
        assert!(command.status().expect("git can be run").success());
        assert_eq!(fs::read_to_string(target.join("a")).expect("a file"), "hello\n");
    }
}
