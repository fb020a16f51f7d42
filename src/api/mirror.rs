//! The mirror of the state repositories, as an administrator configures it: a URL and a branch, in which `{team}` may
//! stand, and the credentials for it. All checks that need no network are here, so that REST refuses a setting by the
//! same rules by which the state role uses it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

/// Stands for the slug of the team.
const TEAM: &str = "{team}";
/// The user of a token if the URL names none. Most Git hosts ignore it.
const DEFAULT_USER: &str = "git";
const URL_LEN_MAX: usize = 2048;
const BRANCH_LEN_MAX: usize = 200;
const KEY_TYPES: [&str; 3] = ["ssh-", "ecdsa-sha2-", "sk-"];

/// A token or a private key. Its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(String);

impl Credential {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The settings as they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteSettings {
    /// `https://host/path`, `ssh://user@host/path`, `user@host:path` or `file:///folder`.
    pub url: String,
    /// Default: the namespace, or `main` if the URL names the team.
    pub branch: Option<String>,
    /// For https.
    pub token: Option<Credential>,
    /// A private key without a passphrase, for ssh.
    pub key: Option<Credential>,
    /// For ssh: the host's keys, as `ssh-keyscan` prints them, with or without the name.
    pub known_hosts: Option<String>,
    /// For https: certificates of the authorities of the host, in place of the usual ones.
    pub authority: Option<String>,
}

/// Settings that passed all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    url: String,
    branch: Option<String>,
    transport: Transport,
}

/// How the remote is reached, and with which credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    Https { authorization: Option<Credential>, hidden: Vec<Credential>, authority: Option<String> },
    Ssh { key: Credential, known_hosts: String, user: String },
    File,
}

/// The repository and branch of one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    pub url: String,
    pub branch: String,
}

impl Remote {
    /// The error never quotes a credential.
    pub fn new(settings: RemoteSettings) -> Result<Self, String> {
        let RemoteSettings { url, branch, token, key, known_hosts, authority } = settings;
        if url.is_empty() || url.len() > URL_LEN_MAX || url.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
            return Err(format!("the URL must have 1 to {URL_LEN_MAX} characters, none of them a space or a control character"));
        }
        // Some URL parsers take a backslash for a slash, others for a letter: they would see different hosts.
        if url.contains('\\') {
            return Err("the URL must hold no backslash".to_owned());
        }
        let parsed = parse_url(&url.replace(TEAM, "team"))?;
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
        let transport = match parsed.scheme() {
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
                Transport::File
            }
        };
        Ok(Self { url: without_user(url, &transport), branch, transport })
    }

    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The destination of a namespace's repository.
    pub fn destination(&self, namespace: &str) -> Destination {
        let team = namespace.strip_prefix("team-").unwrap_or(namespace);
        let branch = match &self.branch {
            Some(branch) => branch.replace(TEAM, team),
            None if self.url.contains(TEAM) => "main".to_owned(),
            None => namespace.to_owned(),
        };
        Destination { url: self.url.replace(TEAM, team), branch }
    }

    /// Every form in which a credential could be echoed.
    pub fn secrets(&self) -> Vec<String> {
        match &self.transport {
            Transport::Https { authorization, hidden, .. } => {
                let raw = hidden.iter().map(|secret| secret.reveal().to_owned());
                let encoded = hidden.iter().map(|secret| utf8_percent_encode(secret.reveal(), NON_ALPHANUMERIC).to_string());
                raw.chain(encoded).chain(authorization.iter().map(|secret| secret.reveal().to_owned())).collect()
            }
            Transport::Ssh { key, .. } => {
                key.reveal().lines().filter(|line| line.len() > 8 && !line.starts_with("---")).map(str::to_owned).collect()
            }
            Transport::File => Vec::new(),
        }
    }
}

impl Transport {
    /// The value of `Authorization: Basic`.
    pub fn authorization(&self) -> Option<&str> {
        match self {
            Self::Https { authorization, .. } => authorization.as_ref().map(Credential::reveal),
            _ => None,
        }
    }

    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Ssh { key, .. } => Some(key.reveal()),
            _ => None,
        }
    }
}

/// Parses a URL; `user@host:path` is ssh.
pub fn parse_url(url: &str) -> Result<Url, String> {
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

/// The receiver of a credential: scheme, host and port, or the whole URL without a host. A credential goes to no other one than
/// that for which it was given.
pub fn receiver(url: &str) -> String {
    // `user@host:path` is ssh.
    let spelt = if url.contains("://") { url.to_owned() } else { format!("ssh://{}", url.replacen(':', "/", 1)) };
    match Url::parse(&spelt.replace(TEAM, "team")) {
        Ok(parsed) if parsed.has_host() => {
            let port = parsed.port_or_known_default().or((parsed.scheme() == "ssh").then_some(22));
            format!("{}://{}:{}", parsed.scheme(), parsed.host_str().unwrap_or_default().to_lowercase(), port.unwrap_or_default())
        }
        _ => url.to_owned(),
    }
}

/// The offset at which the path begins.
fn authority_end(url: &str) -> usize {
    match url.split_once("://") {
        Some((scheme, rest)) => scheme.len() + 3 + rest.find('/').unwrap_or(rest.len()),
        None => url.find(':').unwrap_or(url.len()),
    }
}

/// Removes the user from an https URL: it goes into the header, so that it is in no command line.
fn without_user(url: String, transport: &Transport) -> String {
    match (transport, url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?)))) {
        (Transport::Https { .. }, Some((scheme, (user, rest)))) if !user.contains('/') => format!("{scheme}://{rest}"),
        _ => url,
    }
}

fn https(url: &Url, token: Option<Credential>, authority: Option<String>) -> Result<Transport, String> {
    if token.as_ref().is_some_and(|token| token.0.is_empty() || !token.0.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err("the token must not be empty, nor hold spaces, line breaks or letters beyond ASCII".to_owned());
    }
    if authority.as_ref().is_some_and(|text| !text.contains("-----BEGIN CERTIFICATE-----")) {
        return Err("the certificates must be PEM, beginning with -----BEGIN CERTIFICATE-----".to_owned());
    }
    let user = if url.username().is_empty() { DEFAULT_USER } else { url.username() };
    let authorization = token.as_ref().map(|token| Credential::new(STANDARD.encode(format!("{user}:{}", token.0))));
    Ok(Transport::Https { authorization, hidden: token.into_iter().collect(), authority })
}

fn ssh(url: &Url, key: Option<Credential>, known_hosts: Option<String>) -> Result<Transport, String> {
    let user = url.username().to_owned();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if user.is_empty() || user.starts_with('-') || !user.bytes().all(plain) {
        return Err("the URL must say as whom to come, for example ssh://git@host/path".to_owned());
    }
    let key = key.filter(|key| key.0.contains("PRIVATE KEY-----")).ok_or("ssh takes a private key, as ssh-keygen makes it")?;
    let known_hosts = known_hosts.unwrap_or_default();
    let alias = host_key_alias(url);
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
    Ok(Transport::Ssh { key, known_hosts: lines.join("\n") + "\n", user })
}

/// The name under which ssh looks up the host's keys.
pub fn host_key_alias(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    match url.port() {
        Some(port) if port != 22 => format!("[{host}]:{port}"),
        _ => host,
    }
}

/// Whether git takes the branch, with or without {team} in it.
fn check_branch(branch: &str) -> Result<(), String> {
    let name = branch.replace(TEAM, "team");
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    let part =
        |part: &str| !part.is_empty() && !part.starts_with('.') && part.rsplit('.').next().is_some_and(|end| !matches!(end, "" | "lock"));
    let good = name.len() <= BRANCH_LEN_MAX
        && name.bytes().all(plain)
        && name.split('/').all(part)
        && !name.starts_with('-')
        && !name.contains("..");
    if good { Ok(()) } else { Err(format!("'{}' is no name of a branch; one is, for example, agents/{{team}}", one_line(branch))) }
}

/// A text of a caller, fit for an error message.
fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(BRANCH_LEN_MAX).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
