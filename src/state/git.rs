//! The `git` program as a confined child process. It runs without hooks, helpers and prompts, with the protocols that a
//! call names, and with an environment that has only the paths of programs, certificates and proxies. Secrets are passed in
//! files of a private folder that is removed with the child: other processes can read arguments and environments.

mod child;
mod words;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use thiserror::Error;
use tokio::process::Command;

pub(crate) use child::{Child, Finished};
pub(crate) use words::{Scrubbed, line};

const SCRATCH: &str = "slipway-git";
/// Environment variables that a child inherits.
const INHERITED: [&str; 7] = ["PATH", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"];
/// Git ignores these variables; they are passed as settings.
const CERTIFICATES: [(&str, &str); 2] = [("SSL_CERT_FILE", "http.sslCAInfo"), ("SSL_CERT_DIR", "http.sslCAPath")];

const ENVIRONMENT: [(&str, &str); 13] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GIT_PROTOCOL_FROM_USER", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_FLUSH", "1"),
    ("LANG", "C"),
    ("LC_ALL", "C"),
];

/// Settings that override the configuration of a repository.
const SETTINGS: [(&str, &str); 12] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.askPass", ""),
    ("credential.helper", ""),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("protocol.allow", "never"),
    ("http.followRedirects", "false"),
    ("push.followTags", "false"),
    ("push.gpgSign", "false"),
    ("push.recurseSubmodules", "no"),
    ("submodule.recurse", "false"),
];

/// Why git did not run to its end.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GitFault {
    #[error("the program {program} could not be started: {cause}")]
    Start { program: String, cause: String },
    #[error("it was not done after {} s, and was ended", .0.as_secs_f64())]
    Time(Duration),
    #[error("it wrote more than {0} bytes, and was ended")]
    Output(usize),
    #[error("its output could not be read: {0}")]
    Read(String),
}

/// A child that exceeds these is killed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GitLimits {
    pub(crate) time: Duration,
    pub(crate) bytes: usize,
}

/// The program, and the folder for private folders of its children.
#[derive(Debug, Clone)]
pub struct Git(Arc<Program>);

#[derive(Debug)]
struct Program {
    binary: PathBuf,
    scratch: PathBuf,
    inherited: Vec<(OsString, OsString)>,
    settings: Vec<(String, String)>,
}

impl Git {
    /// `binary` is `git` or a path. The private folders lie in a folder below `temporary`, which is emptied first: an earlier
    /// process that was killed may have left secrets there. Few variables of `environment` are passed on.
    pub fn new(
        binary: impl Into<PathBuf>,
        temporary: impl AsRef<Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> io::Result<Self> {
        let scratch = temporary.as_ref().join(SCRATCH);
        match fs::remove_dir_all(&scratch) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::DirBuilder::new().recursive(true).mode(0o700).create(&scratch)?,
        }
        let scratch = scratch.canonicalize()?;
        let (mut inherited, mut settings) = (Vec::new(), Vec::new());
        for (name, value) in environment {
            if INHERITED.iter().any(|known| name == *known) {
                inherited.push((name, value));
            } else if let Some((_, setting)) = CERTIFICATES.iter().find(|(known, _)| name == *known) {
                settings.push(((*setting).to_owned(), value.to_string_lossy().into_owned()));
            }
        }
        Ok(Self(Arc::new(Program { binary: binary.into(), scratch, inherited, settings })))
    }

    /// Whether requests may go through a proxy, which may resolve names that this process cannot.
    pub(crate) fn has_proxy(&self) -> bool {
        let proxies = ["HTTPS_PROXY", "ALL_PROXY"];
        self.0.inherited.iter().any(|(name, value)| !value.is_empty() && proxies.iter().any(|proxy| name.eq_ignore_ascii_case(proxy)))
    }

    pub(crate) fn call<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<GitCall, GitFault> {
        let program = &*self.0;
        let mut private = tempfile::Builder::new();
        private.prefix("git-").permissions(fs::Permissions::from_mode(0o700));
        let private = private.tempdir_in(&program.scratch).map_err(|error| self.fault(&error))?;
        let mut command = Command::new(&program.binary);
        command.args(arguments).env_clear().envs(ENVIRONMENT).envs(program.inherited.iter().map(|(name, value)| (name, value)));
        command.env("HOME", private.path()).env("TMPDIR", private.path()).env("GIT_CEILING_DIRECTORIES", &program.scratch);
        command.current_dir(private.path()).process_group(0).kill_on_drop(true);
        let settings = SETTINGS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let settings = settings.chain(program.settings.iter().cloned()).collect();
        Ok(GitCall { git: self.clone(), command, settings, private, secrets: Vec::new() })
    }

    fn fault(&self, error: &io::Error) -> GitFault {
        GitFault::Start { program: self.0.binary.display().to_string(), cause: error.to_string() }
    }
}

/// The path of a namespace's repository. None for an invalid name.
pub(crate) fn repository(folder: &Path, namespace: &str) -> Option<PathBuf> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits =
        (1..=63).contains(&namespace.len()) && namespace.bytes().all(plain) && !namespace.starts_with('-') && !namespace.ends_with('-');
    fits.then(|| folder.join(format!("{namespace}.git")))
}

/// A child before its start.
pub(crate) struct GitCall {
    git: Git,
    command: Command,
    settings: Vec<(String, String)>,
    private: TempDir,
    secrets: Vec<String>,
}

impl GitCall {
    /// A setting. Other processes can read it: not for secrets.
    pub(crate) fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((key.into(), value.into()));
        self
    }

    pub(crate) fn environment(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Works on this bare repository, whichever user owns its files.
    pub(crate) fn within(self, repository: &Path) -> Self {
        self.trusting(repository).environment("GIT_DIR", repository)
    }

    pub(crate) fn trusting(self, repository: &Path) -> Self {
        self.set("safe.directory", repository.to_string_lossy())
    }

    /// A file of mode 0600 in the private folder.
    pub(crate) fn file(&self, name: &str, content: &str) -> Result<PathBuf, GitFault> {
        let path = self.private.path().join(name);
        let write = || -> io::Result<()> {
            let mut file: File = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(content.as_bytes())
        };
        write().map_err(|error| self.git.fault(&error))?;
        Ok(path)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.private.path()
    }

    /// Settings with secrets, in the format of a configuration file.
    pub(crate) fn secret_settings(self, content: &str) -> Result<Self, GitFault> {
        let path = self.file("settings", content)?;
        Ok(self.environment("GIT_CONFIG_GLOBAL", path))
    }

    /// Secrets to remove from the output.
    pub(crate) fn hiding(mut self, secrets: impl IntoIterator<Item = String>) -> Self {
        self.secrets.extend(secrets);
        self
    }

    /// Starts the child with pipes for its three streams.
    pub(crate) fn start(mut self) -> Result<Child, GitFault> {
        self.command.env("GIT_CONFIG_COUNT", self.settings.len().to_string());
        for (number, (key, value)) in self.settings.iter().enumerate() {
            self.command.env(format!("GIT_CONFIG_KEY_{number}"), key).env(format!("GIT_CONFIG_VALUE_{number}"), value);
        }
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.command.spawn().map_err(|error| self.git.fault(&error))?;
        Ok(Child::new(child, self.private))
    }

    /// Runs the child to its end, without input.
    pub(crate) async fn run(mut self, limits: GitLimits) -> Result<Finished, GitFault> {
        let secrets = std::mem::take(&mut self.secrets);
        self.start()?.finish(limits, &secrets).await
    }
}

#[cfg(test)]
mod tests;
