//! One push to a remote, or one probe of it: allowed addresses, credentials and result. Addresses are resolved and checked
//! here, and git and ssh connect to no others.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use slipway_api::mirror::{Destination, Remote, Transport, host_key_alias, parse_url};
use slipway_egress::{EgressProfile, pinned};
use tokio::time::timeout;
use url::Url;

use super::Rules;
use super::trouble::{Trouble, meant};
use crate::git::{Finished, Git, GitCall, GitFault, GitLimits, repository};

const MAIN: &str = "refs/heads/main";
/// Time limit of name resolution and of connections of ssh.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_SECONDS: &str = "10";
/// Seconds without data after which https fails.
const IDLE_SECONDS: &str = "30";
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
const LOCAL_LIMITS: GitLimits = GitLimits { time: Duration::from_secs(30), bytes: MAX_OUTPUT_BYTES };
const PROBE_LIMITS: GitLimits = GitLimits { time: Duration::from_secs(20), bytes: MAX_OUTPUT_BYTES };

const MIRROR_PROFILE: EgressProfile = EgressProfile { name: "the mirror", setting: "state.mirror.allow", user_agent: "" };

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    pub branches: usize,
}

/// Pushes from one folder of repositories.
#[derive(Debug, Clone)]
pub(super) struct Pusher {
    pub(super) git: Git,
    pub(super) rules: Rules,
    pub(super) folder: PathBuf,
    /// Time limit of one push.
    pub(super) time: Duration,
}

/// Checks that a remote can be read and written as configured, without changing anything there. `namespace` is an example
/// of a repository.
pub async fn probe(git: &Git, rules: &Rules, remote: &Remote, namespace: &str) -> Result<ProbeResult, Trouble> {
    let place = remote.destination(namespace);
    let look = reach(git, rules, remote, &place, &["ls-remote", "--heads", "--quiet", "--", &place.url]).await?;
    let seen = well(look.run(PROBE_LIMITS).await?)?;
    let branches = seen.stdout.as_str().lines().count();
    // The remote checks write access before it finds that the branch to delete does not exist.
    let refspec = ":refs/heads/slipway-probe";
    let attempt =
        reach(git, rules, remote, &place, &["push", "--dry-run", "--porcelain", "--no-verify", "--", &place.url, refspec]).await?;
    let empty = attempt.folder().join("empty.git");
    let init = git.call(["init", "--quiet", "--bare", "--template="])?.environment("GIT_DIR", &empty);
    well(init.run(LOCAL_LIMITS).await?)?;
    let attempted = attempt.within(&empty).run(PROBE_LIMITS).await?;
    if attempted.status.success() || attempted.stderr.as_str().contains("remote ref does not exist") {
        Ok(ProbeResult { branches })
    } else {
        Err(meant(&attempted))
    }
}

impl Pusher {
    /// The newest commit of the repository, if it has any.
    pub(super) async fn ours(&self, namespace: &str) -> Result<Option<String>, Trouble> {
        let Some(repository) = self.repository(namespace) else { return Ok(None) };
        let output = self.local(&repository, &["for-each-ref", "--format=%(objectname)", MAIN]).await?;
        Ok(Some(output.stdout.as_str().trim().to_owned()).filter(|id| !id.is_empty()))
    }

    /// Local commits that the remote lacks, if known.
    pub(super) async fn behind(&self, namespace: &str, ours: &str, theirs: Option<&str>) -> Option<u64> {
        let range = format!("{}..{ours}", theirs?);
        let output = self.local(&self.repository(namespace)?, &["rev-list", "--count", &range, "--"]).await.ok()?;
        output.stdout.as_str().trim().parse().ok()
    }

    /// Pushes a commit to the branch of the remote.
    pub(super) async fn push(&self, remote: &Remote, namespace: &str, ours: &str) -> Result<(), Trouble> {
        let Some(repository) = self.repository(namespace) else { return Ok(()) };
        let place = remote.destination(namespace);
        let refspec = format!("{ours}:refs/heads/{}", place.branch);
        let arguments = ["push", "--porcelain", "--no-verify", "--", &place.url, &refspec];
        let push = reach(&self.git, &self.rules, remote, &place, &arguments).await?.within(&repository);
        let pushed = push.run(GitLimits { time: self.time, bytes: MAX_OUTPUT_BYTES }).await?;
        if pushed.status.success() {
            return Ok(());
        }
        // A line begins with a flag for the result of the branch and ends with the reason.
        let Some(refusal) = pushed.stdout.as_str().lines().find_map(|line| line.strip_prefix("!\t")) else { return Err(meant(&pushed)) };
        if refusal.contains("[rejected]") {
            let theirs = self.theirs(remote, &place).await?;
            return Err(Trouble::Diverged { branch: place.branch, ours: ours.to_owned(), theirs });
        }
        let reason = refusal.rsplit('\t').next().unwrap_or(refusal);
        Err(Trouble::Declined(crate::git::line(&format!("{reason} {}", remote_words(&pushed)))))
    }

    async fn theirs(&self, remote: &Remote, place: &Destination) -> Result<Option<String>, Trouble> {
        let branch = format!("refs/heads/{}", place.branch);
        let look = reach(&self.git, &self.rules, remote, place, &["ls-remote", "--quiet", "--", &place.url, &branch]).await?;
        let seen = well(look.run(PROBE_LIMITS).await?)?;
        Ok(seen.stdout.as_str().split_whitespace().next().map(str::to_owned))
    }

    fn repository(&self, namespace: &str) -> Option<PathBuf> {
        repository(&self.folder, namespace).and_then(|path| path.canonicalize().ok())
    }

    async fn local(&self, repository: &Path, arguments: &[&str]) -> Result<Finished, Trouble> {
        well(self.git.call(arguments)?.within(repository).run(LOCAL_LIMITS).await?)
    }
}

fn well(finished: Finished) -> Result<Finished, Trouble> {
    if finished.status.success() { Ok(finished) } else { Err(meant(&finished)) }
}

/// Output of the hooks of the remote.
fn remote_words(finished: &Finished) -> String {
    finished.stderr.as_str().lines().filter_map(|line| line.strip_prefix("remote:")).collect::<Vec<_>>().join(" ")
}

/// A git call that can connect to this remote only, with its credentials.
async fn reach(git: &Git, rules: &Rules, remote: &Remote, place: &Destination, arguments: &[&str]) -> Result<GitCall, Trouble> {
    let url = parse_url(&place.url).map_err(Trouble::Forbidden)?;
    let call = git.call(arguments)?.hiding(remote.secrets()).set(format!("protocol.{}.allow", url.scheme()), "always");
    match remote.transport() {
        Transport::Https { authority, .. } => {
            let addresses = addresses(&url, rules, git.has_proxy()).await?;
            https(call, &url, &addresses, remote.transport(), authority.as_deref())
        }
        Transport::Ssh { known_hosts, user, .. } => {
            let address = addresses(&url, rules, false).await?.first().map(ToString::to_string).unwrap_or_default();
            ssh(call, &url, &address, remote.transport(), known_hosts, user)
        }
        Transport::File => file(call, &url, rules),
    }
}

/// The addresses of the remote, if they are allowed. A name that cannot be resolved is left to the proxy, if there is one.
async fn addresses(url: &Url, rules: &Rules, proxied: bool) -> Result<Vec<IpAddr>, Trouble> {
    // Only http URLs have their hosts in canonical form.
    let host = url.host_str().unwrap_or_default();
    let port = url.port().unwrap_or(if url.scheme() == "ssh" { 22 } else { 443 });
    let url = Url::parse(&format!("https://{host}:{port}/")).map_err(|error| Trouble::Forbidden(error.to_string()))?;
    let found = timeout(CONNECT_TIMEOUT, pinned(&url, &rules.allow, MIRROR_PROFILE)).await;
    match found.map_err(|_| Trouble::Unreachable(format!("the name {host} was not resolved within {CONNECT_SECONDS} s")))? {
        Ok(addresses) => Ok(addresses),
        Err(slipway_egress::ResolveError::NoAddress { .. }) if proxied => Ok(Vec::new()),
        Err(fault) => Err(fault.into()),
    }
}

fn https(call: GitCall, url: &Url, addresses: &[IpAddr], transport: &Transport, authority: Option<&str>) -> Result<GitCall, Trouble> {
    let mut call = call.set("http.lowSpeedLimit", "1").set("http.lowSpeedTime", IDLE_SECONDS);
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or(443);
    if !addresses.is_empty() && url.domain().is_some() {
        let list: Vec<String> =
            addresses.iter().map(|address| if address.is_ipv6() { format!("[{address}]") } else { address.to_string() }).collect();
        call = call.set("http.curloptResolve", format!("{host}:{port}:{}", list.join(",")));
    }
    if let Some(authority) = authority {
        let path = call.file("authority.pem", authority)?;
        call = call.set("http.sslCAInfo", path.to_string_lossy());
    }
    // For this host alone, and in a file: other processes can read arguments and environments.
    match transport.authorization() {
        Some(authorization) => {
            let settings = format!("[http \"https://{host}:{port}/\"]\n\textraHeader = \"Authorization: Basic {authorization}\"\n");
            Ok(call.secret_settings(&settings)?)
        }
        None => Ok(call),
    }
}

fn ssh(call: GitCall, url: &Url, address: &str, transport: &Transport, known_hosts: &str, user: &str) -> Result<GitCall, Trouble> {
    let key = call.file("key", transport.key().unwrap_or_default())?;
    let known = call.file("known_hosts", known_hosts)?;
    let (key, known, alias) = (quoted(&key), quoted(&known), host_key_alias(url));
    let settings = [
        ("HostName", address),
        ("HostKeyAlias", &alias),
        ("User", user),
        ("IdentityFile", &key),
        ("IdentitiesOnly", "yes"),
        ("IdentityAgent", "none"),
        ("UserKnownHostsFile", &known),
        ("GlobalKnownHostsFile", "/dev/null"),
        ("StrictHostKeyChecking", "yes"),
        ("UpdateHostKeys", "no"),
        ("CheckHostIP", "no"),
        ("BatchMode", "yes"),
        ("PreferredAuthentications", "publickey"),
        ("ConnectTimeout", CONNECT_SECONDS),
        ("ServerAliveInterval", CONNECT_SECONDS),
        ("ServerAliveCountMax", "3"),
        ("ClearAllForwardings", "yes"),
        ("ForwardAgent", "no"),
        ("ControlPath", "none"),
        ("ProxyCommand", "none"),
        ("PermitLocalCommand", "no"),
        ("CanonicalizeHostname", "no"),
        ("LogLevel", "ERROR"),
    ];
    let lines = settings.iter().fold(String::new(), |lines, (name, value)| lines + name + " " + value + "\n");
    let config = call.file("ssh_config", &lines)?;
    // Git passes this line to a shell. It has only fixed words and a path made here.
    let command = format!("ssh -F '{}'", config.display());
    if config.to_string_lossy().contains(['\'', '\n', '"', '%']) {
        return Err(Trouble::Git(GitFault::Read("the folder for private files must not have quotes or % in its name".to_owned())));
    }
    Ok(call.environment("GIT_SSH_COMMAND", command).environment("GIT_SSH_VARIANT", "ssh"))
}

fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display())
}

/// A remote folder is written by a child of ours, with the hooks and settings of that repository. So it is checked.
fn file(call: GitCall, url: &Url, rules: &Rules) -> Result<GitCall, Trouble> {
    let path = url.to_file_path().map_err(|()| Trouble::Forbidden("the URL names no folder".to_owned()))?;
    let Some(folder) = &rules.files else {
        return Err(Trouble::Forbidden(
            "a file: remote takes a folder that the platform's operator has set aside for it; there is none".to_owned(),
        ));
    };
    let refused = || Trouble::Forbidden(format!("a file: remote must lie in {}", folder.display()));
    if !path.starts_with(folder) {
        return Err(refused());
    }
    let real = path.canonicalize().map_err(|error| Trouble::Missing(format!("{}: {error}", path.display())))?;
    if !folder.canonicalize().is_ok_and(|folder| real.starts_with(folder)) {
        return Err(refused());
    }
    // git receive-pack takes settings from the file alone.
    let value = real.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    Ok(call.secret_settings(&format!("[core]\n\thooksPath = /dev/null\n[safe]\n\tdirectory = \"{value}\"\n"))?)
}

#[cfg(test)]
mod tests;
