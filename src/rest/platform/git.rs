//! The mirror's settings in the ConfigMap and the Secret of the platform, and its state. Credentials are never shown, and
//! never sent to another host than the one that they were given for.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use slipway_api::mirror::{Credential, Remote, RemoteSettings, receiver};
use slipway_api::platform::{NAME, STATE_BRANCH, STATE_CA, STATE_KNOWN_HOSTS, STATE_REPO, STATE_SSH_KEY, STATE_TOKEN};
use slipway_http::{Error, StatusCode, header};
use slipway_release::wire::{MirrorStatus, MirrorTest, Mirrors, TestStatus};

use super::connections::{Finding, Status};
use super::{given, missing};
use crate::call::Call;
use crate::permission::Right;
use crate::{cluster_error, write};

/// Stands for a hidden value. Sent back, it means no change.
const MASK: &str = "********";
const SUBJECT: &str = "Secret of the platform";
const CHANGE_SECRET: Right = Right::on("patch", "secrets").of_group("");

/// What the configuration says of the mirror.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Config {
    /// Where the state repositories are mirrored to.
    pub state_repo: Option<String>,
    /// The branch there. Without one it is the namespace, or `main` where the URL names the team.
    pub state_branch: Option<String>,
    /// The host's keys, for ssh.
    pub state_known_hosts: Option<String>,
    /// The certificates that sign for the host, for https. Without them those that everybody trusts do.
    pub state_ca: Option<String>,
    /// The token for https, masked.
    pub state_token: Option<String>,
    /// The private key for ssh, masked.
    pub state_ssh_key: Option<String>,
    pub git_status: GitStatus,
    /// More about it, where there is more to say.
    pub git_message: Option<String>,
}

/// How the mirror is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GitStatus {
    #[default]
    NotConfigured,
    Ok,
    /// Something is still to be pushed.
    Behind,
    /// It is tried again.
    Error,
    /// The remote holds commits of somebody else; nothing is forced.
    Diverged,
    /// The state role does not say.
    Unknown,
}

/// What of it is to be another from now on.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "they are called what callers call them")]
#[expect(clippy::option_option, reason = "nothing and null are two things here")]
pub(crate) struct Changes {
    /// Where the state repositories are mirrored to: `https://host/path`, `ssh://user@host/path`, `user@host:path` or
    /// `file:///folder`, without a password. `{team}` stands for the team's slug.
    #[serde(default, deserialize_with = "given")]
    state_repo: Option<Option<String>>,
    /// The branch there, in which `{team}` may stand.
    #[serde(default, deserialize_with = "given")]
    state_branch: Option<Option<String>>,
    /// The host's keys, as `ssh-keyscan` prints them, for ssh.
    #[serde(default, deserialize_with = "given")]
    state_known_hosts: Option<Option<String>>,
    /// The certificates that sign for the host, as PEM, in place of those that everybody trusts, for https.
    #[serde(default, deserialize_with = "given")]
    state_ca: Option<Option<String>>,
    /// The token for https.
    #[serde(default, deserialize_with = "given")]
    state_token: Option<Option<String>>,
    /// A private key without a passphrase, for ssh.
    #[serde(default, deserialize_with = "given")]
    state_ssh_key: Option<Option<String>>,
}

/// The writes of a change.
#[derive(Debug, Default)]
pub(super) struct Writes {
    pub data: BTreeMap<&'static str, Option<String>>,
    secrets: BTreeMap<&'static str, Option<String>>,
    /// The remote moves to another host.
    moves: bool,
    /// The remote as it would be.
    pub wanted: TestedRemote,
}

/// The remote that a test is about.
#[derive(Debug, Default)]
pub(super) enum TestedRemote {
    /// The one that is configured, if any.
    #[default]
    InForce,
    /// None.
    Nothing,
    Other(Box<MirrorTest>),
}

/// The stored settings.
#[derive(Debug, Default)]
struct Stored {
    repo: Option<String>,
    branch: Option<String>,
    known_hosts: Option<String>,
    authority: Option<String>,
    token: Option<String>,
    key: Option<String>,
}

impl Stored {
    fn of(map: Option<&ConfigMap>, secret: Option<&Secret>) -> Self {
        let data = map.and_then(|map| map.data.as_ref());
        let said = |name: &str| data.and_then(|data| data.get(name)).filter(|text| !text.is_empty()).cloned();
        let secrets = secret.and_then(|secret| secret.data.as_ref());
        let hidden = |name: &str| {
            let ByteString(bytes) = secrets.and_then(|secrets| secrets.get(name))?;
            String::from_utf8(bytes.clone()).ok().filter(|text| !text.is_empty())
        };
        Self {
            repo: said(STATE_REPO),
            branch: said(STATE_BRANCH),
            known_hosts: said(STATE_KNOWN_HOSTS),
            authority: said(STATE_CA),
            token: hidden(STATE_TOKEN),
            key: hidden(STATE_SSH_KEY),
        }
    }
}

impl Changes {
    /// The writes of a change, or why it is invalid.
    fn writes(self, stored: &Stored) -> Result<Writes, String> {
        // An empty value clears; the mask means no change.
        let clean = |value: Option<Option<String>>| value.map(|value| value.filter(|text| !text.is_empty()));
        let hidden = |value| clean(value).filter(|value| value.as_deref() != Some(MASK));
        let (repo, branch, known_hosts) = (clean(self.state_repo), clean(self.state_branch), clean(self.state_known_hosts));
        let authority = clean(self.state_ca);
        let (token, key) = (hidden(self.state_token), hidden(self.state_ssh_key));
        let then = |change: &Option<Option<String>>, before: &Option<String>| change.clone().unwrap_or_else(|| before.clone());
        let url = then(&repo, &stored.repo);
        let settings = RemoteSettings {
            url: url.clone().unwrap_or_default(),
            branch: then(&branch, &stored.branch),
            token: then(&token, &stored.token).map(Credential::new),
            key: then(&key, &stored.key).map(Credential::new),
            known_hosts: then(&known_hosts, &stored.known_hosts),
            authority: then(&authority, &stored.authority),
        };
        let touched = [&repo, &branch, &known_hosts, &authority, &token, &key].into_iter().any(Option::is_some);
        let wanted = match &url {
            _ if !touched => TestedRemote::InForce,
            None => TestedRemote::Nothing,
            Some(url) => TestedRemote::Other(Box::new(MirrorTest {
                url: url.clone(),
                branch: settings.branch.clone(),
                known_hosts: settings.known_hosts.clone(),
                authority: settings.authority.clone(),
                token: token.clone().flatten().map(Credential::new),
                key: key.clone().flatten().map(Credential::new),
                keeps_token: token.is_none(),
                keeps_key: key.is_none(),
            })),
        };
        if touched && url.is_some() {
            Remote::new(settings).map_err(|fault| format!("state_repo: {fault}"))?;
        }
        let moves = url.as_deref().map(receiver) != stored.repo.as_deref().map(receiver);
        for (name, change, kept) in [(STATE_TOKEN, &token, &stored.token), (STATE_SSH_KEY, &key, &stored.key)] {
            if moves && url.is_some() && kept.is_some() && change.is_none() {
                return Err(format!(
                    "{name}: must be given anew, or null, as state_repo goes to another host, which the present one is not for"
                ));
            }
        }
        let changed =
            |all: Vec<(&'static str, Option<Option<String>>)>| all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Ok(Writes {
            data: changed(vec![(STATE_REPO, repo), (STATE_BRANCH, branch), (STATE_KNOWN_HOSTS, known_hosts), (STATE_CA, authority)]),
            secrets: changed(vec![(STATE_TOKEN, token), (STATE_SSH_KEY, key)]),
            moves,
            wanted,
        })
    }
}

impl Writes {
    /// The writes of a change, if the caller may make them.
    pub(super) async fn of(call: &Call, changes: Changes, map: Option<&ConfigMap>) -> Result<Self, Error> {
        let secret = secret(call).await?;
        let writes = changes.writes(&Stored::of(map, secret.as_ref())).map_err(Error::bad_request)?;
        let namespace = &call.context.settings.platform_namespace;
        // The certificate authority decides which host gets the token.
        let opens = !writes.secrets.is_empty() || writes.data.contains_key(STATE_CA);
        if opens && !call.context.access.allows(&call.caller, CHANGE_SECRET, namespace, Some(NAME)).await? {
            let message =
                format!("{} may not {CHANGE_SECRET} {NAME} in the platform's namespace, where tokens and keys are kept", call.caller.name);
            return Err(Error::new(StatusCode::FORBIDDEN, message));
        }
        Ok(writes)
    }

    /// Whether the remote must be removed before new credentials are stored.
    pub(super) fn must_pause(&self) -> bool {
        self.moves && !self.secrets.is_empty()
    }

    /// Writes the Secret.
    pub(super) async fn hide(&self, call: &mut Call) -> Result<(), Error> {
        if self.secrets.is_empty() {
            return Ok(());
        }
        // If-Match is about the ConfigMap.
        let expected = call.headers.remove(header::IF_MATCH);
        let stored = self.stored(call).await;
        if let Some(expected) = expected {
            call.headers.insert(header::IF_MATCH, expected);
        }
        stored
    }

    async fn stored(&self, call: &Call) -> Result<(), Error> {
        let encoded: BTreeMap<&str, Option<ByteString>> =
            self.secrets.iter().map(|(name, value)| (*name, value.clone().map(|text| ByteString(text.into_bytes())))).collect();
        if secret(call).await?.is_none() {
            return Err(missing("Secret"));
        }
        write::change(call, &api(call), NAME, SUBJECT, |_: &Secret| Ok(json!({"data": encoded}))).await.map(drop)
    }
}

fn api(call: &Call) -> Api<Secret> {
    Api::namespaced(call.context.client.clone(), &call.context.settings.platform_namespace)
}

async fn secret(call: &Call) -> Result<Option<Secret>, Error> {
    api(call).get_opt(NAME).await.map_err(|error| cluster_error::from_kube(error, SUBJECT))
}

/// The mirror's configuration and state.
pub(super) async fn config(call: &Call, map: Option<&ConfigMap>) -> Result<Config, Error> {
    let stored = Stored::of(map, secret(call).await?.as_ref());
    let (git_status, git_message) =
        if stored.repo.is_some() { status(call.context.state.mirrors().await) } else { (GitStatus::NotConfigured, None) };
    let masked = |value: Option<String>| value.map(|_| MASK.to_owned());
    Ok(Config {
        state_repo: stored.repo,
        state_branch: stored.branch,
        state_known_hosts: stored.known_hosts,
        state_ca: stored.authority,
        state_token: masked(stored.token),
        state_ssh_key: masked(stored.key),
        git_status,
        git_message,
    })
}

/// The worst state of all mirrors.
fn status(told: Result<Mirrors, Error>) -> (GitStatus, Option<String>) {
    let mirrors = match told {
        Ok(mirrors) => mirrors,
        Err(error) => return (GitStatus::Unknown, Some(error.message().to_owned())),
    };
    if let Some(fault) = mirrors.fault {
        return (GitStatus::Error, Some(fault));
    }
    if !mirrors.configured {
        return (GitStatus::Behind, Some("the state role has not heard of it yet".to_owned()));
    }
    let Some(worst) = mirrors.data.into_iter().max_by_key(|mirror| mirror.status) else { return (GitStatus::Ok, None) };
    let status = match worst.status {
        MirrorStatus::Ok => return (GitStatus::Ok, None),
        MirrorStatus::Behind => GitStatus::Behind,
        MirrorStatus::Error => GitStatus::Error,
        MirrorStatus::Diverged => GitStatus::Diverged,
    };
    (status, Some(worst.message.map_or_else(|| worst.namespace.clone(), |message| format!("{}: {message}", worst.namespace))))
}

/// Tests the connection to a remote: that of the configuration, or one that would be.
pub(super) async fn test(call: &Call, wanted: TestedRemote, map: &ConfigMap) -> Finding {
    let other = match wanted {
        TestedRemote::Other(other) => Some(other),
        TestedRemote::InForce if Stored::of(Some(map), None).repo.is_some() => None,
        TestedRemote::InForce | TestedRemote::Nothing => {
            return Finding::new(Status::NotConfigured, "the state repositories are not mirrored");
        }
    };
    match call.context.state.test_mirror(other.as_deref()).await {
        Ok(tested) => {
            let status = match tested.status {
                TestStatus::Ok => Status::Ok,
                TestStatus::Error => Status::Error,
                TestStatus::NotConfigured => Status::NotConfigured,
            };
            Finding::new(status, tested.message)
        }
        Err(error) => Finding::new(Status::Error, error.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(repo: &str) -> Stored {
        Stored { repo: Some(repo.to_owned()), token: Some("hunter2".to_owned()), ..Stored::default() }
    }

    #[test]
    fn a_mirror_is_changed_in_part_and_its_token_goes_to_no_other_host() {
        let at = "https://git.example.com/agents.git";
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nYQ==\n-----END OPENSSH PRIVATE KEY-----\n";
        for (before, body, expected) in [
            (Stored::default(), json!({}), Ok(vec![])),
            (Stored::default(), json!({"state_repo": at, "state_token": "t"}), Ok(vec!["state_repo", "state_token"])),
            (stored(at), json!({"state_token": MASK, "state_repo": at}), Ok(vec!["state_repo"])),
            (stored(at), json!({"state_token": MASK, "state_branch": "agents/{team}"}), Ok(vec!["state_branch"])),
            (stored(at), json!({"state_repo": "https://git.example.com:443/{team}.git"}), Ok(vec!["state_repo"])),
            (stored(at), json!({"state_repo": null, "state_token": null}), Ok(vec!["state_repo", "state_token"])),
            (stored(at), json!({"state_repo": "https://evil.example.com/x.git"}), Err("state_token: must be given anew")),
            (
                stored(at),
                json!({"state_repo": "https://evil.example.com/x.git", "state_token": MASK}),
                Err("state_token: must be given anew"),
            ),
            (stored(at), json!({"state_repo": "https://git.example.com:8443/x.git"}), Err("state_token: must be given anew")),
            (stored(at), json!({"state_repo": "https://new.example.com/x.git", "state_token": "t"}), Ok(vec!["state_repo", "state_token"])),
            (stored(at), json!({"state_branch": "one"}), Err("state_repo: all teams would be pushed")),
            (stored(at), json!({"state_repo": "ssh://git@git.example.com/x"}), Err("state_repo: ")),
            (Stored::default(), json!({"state_repo": "git@h:o.git", "state_ssh_key": key}), Err("could pose as h")),
            (
                Stored::default(),
                json!({"state_repo": "git@h:o.git", "state_ssh_key": key, "state_known_hosts": "h ssh-ed25519 AAAA"}),
                Ok(vec!["state_repo", "state_known_hosts", "state_ssh_key"]),
            ),
            (stored(at), json!({"state_ca": "-----BEGIN CERTIFICATE-----\nYQ==\n"}), Ok(vec!["state_ca"])),
            (stored(at), json!({"state_ca": "/etc/ssl/ca.pem"}), Err("must be PEM")),
            (
                Stored { authority: Some("-----BEGIN CERTIFICATE-----".to_owned()), ..Stored::default() },
                json!({"state_repo": "git@h:o.git", "state_ssh_key": key, "state_known_hosts": "h ssh-ed25519 AAAA"}),
                Err("a certificate is of no use with ssh"),
            ),
            (Stored::default(), json!({"state_repo": "https://me:hunter2@h/x"}), Err("no password")),
            (Stored::default(), json!({"state_repo": "http://h/x"}), Err("https")),
        ] {
            let changes: Changes = serde_json::from_value(body.clone()).unwrap();
            match (changes.writes(&before), expected) {
                (Ok(writes), Ok(expected)) => {
                    let mut names: Vec<_> = writes.data.keys().chain(writes.secrets.keys()).copied().collect();
                    let mut expected = expected;
                    names.sort_unstable();
                    expected.sort_unstable();
                    assert_eq!(names, expected, "{body}");
                }
                (Err(fault), Err(says)) => assert!(fault.contains(says) && !fault.contains("hunter2"), "{body}: {fault}"),
                (outcome, expected) => panic!("{body}: {outcome:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn a_test_is_of_what_would_be_and_sends_what_is_given_anew() {
        let at = "https://git.example.com/agents.git";
        let of = |body: serde_json::Value| {
            let changes: Changes = serde_json::from_value(body).unwrap();
            changes.writes(&stored(at)).unwrap().wanted
        };
        for untouched in [json!({}), json!({"state_token": MASK})] {
            assert!(matches!(of(untouched.clone()), TestedRemote::InForce), "{untouched}");
        }
        assert!(matches!(of(json!({"state_repo": null})), TestedRemote::Nothing));
        let TestedRemote::Other(kept) = of(json!({"state_repo": "https://git.example.com/{team}.git", "state_token": MASK})) else {
            panic!()
        };
        assert_eq!((&*kept.url, kept.token, kept.keeps_token, kept.keeps_key), ("https://git.example.com/{team}.git", None, true, true));
        let TestedRemote::Other(given) = of(json!({"state_repo": "https://other.example.com/x", "state_token": "new"})) else { panic!() };
        assert_eq!((given.token, given.keeps_token), (Some(Credential::new("new")), false));
        let TestedRemote::Other(without) = of(json!({"state_token": null})) else { panic!() };
        assert_eq!((&*without.url, without.token, without.keeps_token), (at, None, false));
    }

    #[test]
    fn of_many_repositories_the_worst_is_told() {
        let mirrors = |text: serde_json::Value| status(Ok(serde_json::from_value(text).unwrap()));
        let one = |namespace: &str, status: &str| json!({"namespace": namespace, "status": status, "message": "why"});
        for (told, expected) in [
            (json!({"configured": false}), (GitStatus::Behind, Some("the state role has not heard of it yet"))),
            (json!({"configured": true}), (GitStatus::Ok, None)),
            (json!({"configured": true, "data": [one("team-a", "ok")]}), (GitStatus::Ok, None)),
            (json!({"configured": true, "fault": "no key"}), (GitStatus::Error, Some("no key"))),
            (
                json!({"configured": true, "data": [one("team-a", "diverged"), one("team-b", "error"), one("team-c", "ok")]}),
                (GitStatus::Diverged, Some("team-a: why")),
            ),
        ] {
            let (status, message) = mirrors(told.clone());
            assert_eq!((status, message.as_deref()), expected, "{told}");
        }
        assert_eq!(status(Err(Error::unavailable("away"))), (GitStatus::Unknown, Some("away".to_owned())));
    }
}
