//! Configuration of the mirror: a URL and a branch, which may contain `{team}`, and credentials. Everything that needs no
//! network is validated here.

use std::fmt;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use slipway_egress::Allowed;
use url::Url;

const TEAM: &str = "{team}";
/// User of a token if the URL has none; most hosts ignore it.
const DEFAULT_USER: &str = "git";
const MAX_URL_BYTES: usize = 2048;
const KEY_TYPES: [&str; 3] = ["ssh-", "ecdsa-sha2-", "sk-"];

/// A secret that is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The configuration as an administrator writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// `https://host/path`, `ssh://user@host/path`, `user@host:path` or `file:///folder`.
    pub url: String,
    /// Default: the namespace, or `main` if the URL contains `{team}`.
    pub branch: Option<String>,
    /// For https.
    pub token: Option<Secret>,
    /// A private key without a passphrase, for ssh.
    pub key: Option<Secret>,
    /// For ssh: keys of the host, as `ssh-keyscan` prints them or without the name.
    pub known_hosts: Option<String>,
    /// For https: certificate authorities of the host, in place of the public ones.
    pub authority: Option<String>,
}

/// Restrictions set by the platform operator.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Hosts and networks in addition to public and private ones.
    pub allow: Vec<Allowed>,
    /// The folder for `file:` remotes. None: they are refused.
    pub files: Option<PathBuf>,
}

/// Validated settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    pub(super) url: String,
    pub(super) branch: Option<String>,
    pub(super) way: Way,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    Https { authorization: Option<Secret>, hidden: Vec<Secret>, authority: Option<String> },
    Ssh { key: Secret, known_hosts: String, user: String },
    File,
}

/// The remote of one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) url: String,
    pub(super) branch: String,
}

impl Remote {
    /// Errors contain nothing that could be a secret.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let Settings { url, branch, token, key, known_hosts, authority } = settings;
        if url.is_empty() || url.len() > MAX_URL_BYTES || url.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
            return Err(format!("the URL must have 1 to {MAX_URL_BYTES} characters, none of them a space or a control character"));
        }
        // URL parsers disagree on the backslash, so that they would see different hosts.
        if url.contains('\\') {
            return Err("the URL must hold no backslash".to_owned());
        }
        let parsed = parsed(&url.replace(TEAM, "team"))?;
        if url.replace(TEAM, "").contains(['{', '}']) {
            return Err("the URL may hold {team}, and no other braces".to_owned());
        }
        if url.find(TEAM).is_some_and(|at| at <= authority_end(&url)) {
            return Err("{team} may stand in the URL's path, not before it".to_owned());
        }
        if let Some(branch) = &branch {
            check_branch(branch)?;
            if !branch.contains(TEAM) && !url.contains(TEAM) {
                return Err(format!(
                    "all teams would be pushed to branch '{branch}': write {{team}} into the URL or the branch, or leave the branch away"
                ));
            }
        }
        let unused = |what: &str, given: bool| {
            let scheme = parsed.scheme();
            if given { Err(format!("a {what} is of no use with {scheme}: take it away, or give another URL")) } else { Ok(()) }
        };
        let way = match parsed.scheme() {
            "https" => {
                unused("key", key.is_some())?;
                unused("known_hosts", known_hosts.is_some())?;
                https(&parsed, token, authority)?
            }
            "ssh" => {
                unused("token", token.is_some())?;
                unused("certificate", authority.is_some())?;
                ssh(&parsed, key, known_hosts)?
            }
            _ => {
                unused("token", token.is_some())?;
                unused("key", key.is_some())?;
                Way::File
            }
        };
        Ok(Self { url: without_user(url, &way), branch, way })
    }

    /// The remote of a namespace. The namespace of a team contains its slug.
    pub(super) fn place(&self, namespace: &str) -> Place {
        let team = namespace.strip_prefix("team-").unwrap_or(namespace);
        let branch = match &self.branch {
            Some(branch) => branch.replace(TEAM, team),
            None if self.url.contains(TEAM) => "main".to_owned(),
            None => namespace.to_owned(),
        };
        Place { url: self.url.replace(TEAM, team), branch }
    }

    /// Every form in which a secret could appear in output.
    pub(super) fn secrets(&self) -> Vec<String> {
        match &self.way {
            Way::Https { authorization, hidden, .. } => {
                let raw = hidden.iter().map(|secret| secret.reveal().to_owned());
                let encoded = hidden.iter().map(|secret| utf8_percent_encode(secret.reveal(), NON_ALPHANUMERIC).to_string());
                raw.chain(encoded).chain(authorization.iter().map(|secret| secret.reveal().to_owned())).collect()
            }
            Way::Ssh { key, .. } => {
                key.reveal().lines().filter(|line| line.len() > 8 && !line.starts_with("---")).map(str::to_owned).collect()
            }
            Way::File => Vec::new(),
        }
    }
}

impl Way {
    /// The value of the header, for a file that only git reads.
    pub(super) fn authorization(&self) -> Option<&str> {
        match self {
            Self::Https { authorization, .. } => authorization.as_ref().map(Secret::reveal),
            _ => None,
        }
    }

    pub(super) fn key(&self) -> Option<&str> {
        match self {
            Self::Ssh { key, .. } => Some(key.reveal()),
            _ => None,
        }
    }
}

/// Parses a URL or `user@host:path`.
pub(super) fn parsed(url: &str) -> Result<Url, String> {
    let wrong = || "the URL must be https://host/path, ssh://user@host/path, user@host:path or file:///folder".to_owned();
    let spelt = match url.split_once(':') {
        Some((before, path)) if !path.starts_with("//") && before.contains('@') && !before.contains('/') => {
            format!("ssh://{before}/{path}")
        }
        _ => url.to_owned(),
    };
    let url = Url::parse(&spelt).map_err(|_| wrong())?;
    if url.password().is_some() {
        return Err("the URL must hold no password: a token is given by itself, and kept in a Secret".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the URL must have neither ? nor #".to_owned());
    }
    match url.scheme() {
        "https" | "ssh" if url.host_str().is_some_and(|host| !host.is_empty() && !host.starts_with('-')) && url.path().len() > 1 => Ok(url),
        "file" if url.host_str().is_none() && url.path().len() > 1 && !spelt.contains("/..") => Ok(url),
        "http" => Err("the URL must be https: over http everybody on the way could read the token and change the history".to_owned()),
        _ => Err(wrong()),
    }
}

/// The index of the path.
fn authority_end(url: &str) -> usize {
    match url.split_once("://") {
        Some((scheme, rest)) => scheme.len() + 3 + rest.find('/').unwrap_or(rest.len()),
        None => url.find(':').unwrap_or(url.len()),
    }
}

/// Moves the user of an https URL into the header, so that it is not in an argument.
fn without_user(url: String, way: &Way) -> String {
    match (way, url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?)))) {
        (Way::Https { .. }, Some((scheme, (user, rest)))) if !user.contains('/') => format!("{scheme}://{rest}"),
        _ => url,
    }
}

fn https(url: &Url, token: Option<Secret>, authority: Option<String>) -> Result<Way, String> {
    if token.as_ref().is_some_and(|token| token.0.is_empty() || !token.0.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err("the token must not be empty, nor hold spaces, line breaks or letters beyond ASCII".to_owned());
    }
    if authority.as_ref().is_some_and(|text| !text.contains("-----BEGIN CERTIFICATE-----")) {
        return Err("the certificates must be PEM, beginning with -----BEGIN CERTIFICATE-----".to_owned());
    }
    let user = if url.username().is_empty() { DEFAULT_USER } else { url.username() };
    let authorization = token.as_ref().map(|token| Secret::new(STANDARD.encode(format!("{user}:{}", token.0))));
    Ok(Way::Https { authorization, hidden: token.into_iter().collect(), authority })
}

fn ssh(url: &Url, key: Option<Secret>, known_hosts: Option<String>) -> Result<Way, String> {
    let user = url.username().to_owned();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if user.is_empty() || user.starts_with('-') || !user.bytes().all(plain) {
        return Err("the URL must say as whom to come, for example ssh://git@host/path".to_owned());
    }
    let key = key.filter(|key| key.0.contains("PRIVATE KEY-----")).ok_or("ssh takes a private key, as ssh-keygen makes it")?;
    let known_hosts = known_hosts.unwrap_or_default();
    let alias = alias(url);
    let mut lines = Vec::new();
    for line in known_hosts.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_type = |word: &&str| KEY_TYPES.iter().any(|kind| word.starts_with(kind));
        match words.as_slice() {
            [kind, _, ..] if is_type(kind) => lines.push(format!("{alias} {line}")),
            [_, kind, _, ..] if is_type(kind) => lines.push(line.to_owned()),
            [marker, _, kind, _, ..] if marker.starts_with('@') && is_type(kind) => lines.push(line.to_owned()),
            _ => return Err("a line of known_hosts is not as ssh-keyscan prints it: host, type, key".to_owned()),
        }
    }
    if lines.is_empty() {
        return Err(format!(
            "ssh takes the host's keys in known_hosts, or anybody could pose as {alias}: take them from the host's own page, \
             or from ssh-keyscan and compare the fingerprints"
        ));
    }
    let mut key = key;
    if !key.0.ends_with('\n') {
        key.0.push('\n');
    }
    Ok(Way::Ssh { key, known_hosts: lines.join("\n") + "\n", user })
}

/// The name by which ssh looks up keys of the host.
pub(super) fn alias(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    match url.port() {
        Some(port) if port != 22 => format!("[{host}]:{port}"),
        _ => host,
    }
}

/// Whether a branch, with or without {team}, is a valid name for git.
fn check_branch(branch: &str) -> Result<(), String> {
    let name = branch.replace(TEAM, "team");
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    let part =
        |part: &str| !part.is_empty() && !part.starts_with('.') && part.rsplit('.').next().is_some_and(|end| !matches!(end, "" | "lock"));
    let good = name.len() <= 200 && name.bytes().all(plain) && name.split('/').all(part) && !name.starts_with('-') && !name.contains("..");
    if good { Ok(()) } else { Err(format!("'{}' is no name of a branch; one is, for example, agents/{{team}}", crate::git::line(branch))) }
}

#[cfg(test)]
mod tests;
