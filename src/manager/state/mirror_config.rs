//! The configuration of the mirror: ConfigMap and Secret `slipway-platform`, which REST writes. An invalid configuration
//! counts as none, and its fault is part of the state of the mirror.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::Api;
use slipway_api::mirror::{Credential, Remote, RemoteSettings, receiver};
use slipway_api::platform;
use slipway_cluster::Tasks;
use slipway_cluster::watch::{WatchEvent, follow_fields};
use slipway_release::wire::MirrorTest;
use tokio::sync::watch;

/// The current configuration, and its fault if it is invalid.
#[derive(Clone)]
pub(super) struct MirrorConfig(Arc<ConfigState>);

struct ConfigState {
    given: Mutex<(RemoteFields, RemoteSecrets)>,
    sender: watch::Sender<Option<Remote>>,
    fault: Mutex<Option<String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RemoteFields {
    url: Option<String>,
    branch: Option<String>,
    known_hosts: Option<String>,
    authority: Option<String>,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct RemoteSecrets {
    token: Option<Credential>,
    key: Option<Credential>,
}

impl MirrorConfig {
    fn new() -> (Self, watch::Receiver<Option<Remote>>) {
        let (sender, remote) = watch::channel(None);
        (Self(Arc::new(ConfigState { given: Mutex::default(), sender, fault: Mutex::default() })), remote)
    }

    pub(super) fn remote(&self) -> Option<Remote> {
        self.0.sender.borrow().clone()
    }

    pub(super) fn fault(&self) -> Option<String> {
        self.0.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A remote that is to be tested. What is stored goes to no other host than the one that it was given for, as far as this
    /// process has heard of that.
    pub(super) fn wanted(&self, test: MirrorTest) -> Result<Remote, String> {
        let (public, secrets) = self.0.given.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let MirrorTest { url, branch, known_hosts, authority, token, key, keeps_token, keeps_key } = test;
        let (stored_token, stored_key) = (secrets.token.filter(|_| keeps_token), secrets.key.filter(|_| keeps_key));
        let is_for = public.url.as_deref().map(receiver) == Some(receiver(&url));
        if !is_for && (stored_token.is_some() || stored_key.is_some()) {
            return Err("what is stored to open the remote is for another host, as far as the state role has heard; test again".to_owned());
        }
        Remote::new(RemoteSettings { url, branch, token: token.or(stored_token), key: key.or(stored_key), known_hosts, authority })
    }

    fn change(&self, change: impl FnOnce(&mut RemoteFields, &mut RemoteSecrets)) {
        let mut given = self.0.given.lock().unwrap_or_else(PoisonError::into_inner);
        let before = given.clone();
        let (public, secrets) = &mut *given;
        change(public, secrets);
        if *given == before {
            return;
        }
        let (remote, fault) = match remote(&given.0, &given.1) {
            Ok(remote) => (remote, None),
            Err(fault) => (None, Some(fault)),
        };
        if let Some(fault) = &fault {
            tracing::warn!(fault, "nothing is mirrored: {}", platform::STATE_REPO);
        } else {
            tracing::info!(configured = remote.is_some(), "the configuration of the mirror has changed");
        }
        *self.0.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
        self.0.sender.send_replace(remote);
    }
}

fn remote(public: &RemoteFields, secrets: &RemoteSecrets) -> Result<Option<Remote>, String> {
    let Some(url) = public.url.clone() else { return Ok(None) };
    // Fields left over from a remote of another scheme are ignored.
    let scheme = url.split_once("://").map_or("ssh", |(scheme, _)| scheme);
    let (https, ssh) = (scheme.eq_ignore_ascii_case("https"), scheme.eq_ignore_ascii_case("ssh"));
    let settings = RemoteSettings {
        branch: public.branch.clone(),
        token: secrets.token.clone().filter(|_| https),
        key: secrets.key.clone().filter(|_| ssh),
        known_hosts: public.known_hosts.clone().filter(|_| ssh),
        authority: public.authority.clone().filter(|_| https),
        url,
    };
    Remote::new(settings).map(Some)
}

/// Watches the ConfigMap and the Secret, by tasks without which the process ends.
pub(super) fn watch(client: &Client, namespace: &str, tasks: &Tasks) -> (MirrorConfig, watch::Receiver<Option<Remote>>) {
    let (configuration, remote) = MirrorConfig::new();
    let fields = format!("metadata.name={}", platform::NAME);
    let (first, second) = (configuration.clone(), configuration.clone());
    let (api, selected) = (Api::<ConfigMap>::namespaced(client.clone(), namespace), fields.clone());
    tasks.spawn("watch of the mirror's ConfigMap", async move {
        let hear = |heard: WatchEvent<ConfigMap>| match heard {
            WatchEvent::Seen(_, config) => first.change(|public, _| *public = RemoteFields::of(&config)),
            WatchEvent::Gone(..) => first.change(|public, _| *public = RemoteFields::default()),
            WatchEvent::Listed(keys) if keys.is_empty() => first.change(|public, _| *public = RemoteFields::default()),
            WatchEvent::Listing | WatchEvent::Listed(_) => {}
        };
        follow_fields(api, &selected, None, hear).await;
    });
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    tasks.spawn("watch of the mirror's Secret", async move {
        let hear = |heard: WatchEvent<Secret>| match heard {
            WatchEvent::Seen(_, secret) => second.change(|_, secrets| *secrets = RemoteSecrets::of(&secret)),
            WatchEvent::Gone(..) => second.change(|_, secrets| *secrets = RemoteSecrets::default()),
            WatchEvent::Listed(keys) if keys.is_empty() => second.change(|_, secrets| *secrets = RemoteSecrets::default()),
            WatchEvent::Listing | WatchEvent::Listed(_) => {}
        };
        follow_fields(api, &fields, None, hear).await;
    });
    (configuration, remote)
}

impl RemoteFields {
    fn of(config: &ConfigMap) -> Self {
        let value = |name: &str| config.data.as_ref()?.get(name).filter(|value| !value.trim().is_empty()).cloned();
        Self {
            url: value(platform::STATE_REPO),
            branch: value(platform::STATE_BRANCH),
            known_hosts: value(platform::STATE_KNOWN_HOSTS),
            authority: value(platform::STATE_CA),
        }
    }
}

impl RemoteSecrets {
    fn of(secret: &Secret) -> Self {
        let value = |name: &str| {
            let bytes = &secret.data.as_ref()?.get(name)?.0;
            let text = String::from_utf8(bytes.clone()).ok().filter(|text| !text.trim().is_empty())?;
            Some(Credential::new(text))
        };
        Self { token: value(platform::STATE_TOKEN), key: value(platform::STATE_SSH_KEY) }
    }
}

#[cfg(test)]
mod tests {
    use slipway_peers::GitHttp;
    use slipway_state::git::Git;
    use slipway_state::mirror::{Rules, Trouble, probe};

    use super::*;

    fn public(url: &str) -> RemoteFields {
        fields(&[(platform::STATE_REPO, url)])
    }

    fn fields(fields: &[(&str, &str)]) -> RemoteFields {
        let data = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        RemoteFields::of(&ConfigMap { data: Some(data), ..ConfigMap::default() })
    }

    #[tokio::test]
    async fn a_private_certificate_authority_can_be_configured() {
        let server = GitHttp::start();
        server.repository("agents.git", &[]);
        // Of its own: a Git begins with an empty folder there.
        let folder = tempfile::tempdir().unwrap();
        let git = Git::new("git", folder.path(), std::env::vars_os()).unwrap();
        let rules = Rules { allow: vec!["127.0.0.0/8".parse().unwrap()], files: None };
        let token = [(platform::STATE_TOKEN.to_owned(), k8s_openapi::ByteString(server.token().as_bytes().to_vec()))].into();
        let secrets = RemoteSecrets::of(&Secret { data: Some(token), ..Secret::default() });
        let (url, authority) = (server.url("agents.git"), server.authority());
        let (configuration, _) = MirrorConfig::new();
        configuration.change(|public, given| (*public, *given) = (fields(&[(platform::STATE_REPO, &url)]), secrets));
        let stranger = probe(&git, &rules, &configuration.remote().unwrap(), "team-a").await.unwrap_err();
        assert!(matches!(stranger, Trouble::Certificate(_)), "{stranger}");
        configuration.change(|public, _| *public = fields(&[(platform::STATE_REPO, &url), (platform::STATE_CA, &authority)]));
        let seen = probe(&git, &rules, &configuration.remote().unwrap(), "team-a").await;
        assert_eq!(seen.map(|seen| seen.branches), Ok(0));
        // An authority that is left over is ignored for other schemes.
        configuration
            .change(|public, _| *public = fields(&[(platform::STATE_REPO, "file:///mirror/a.git"), (platform::STATE_CA, &authority)]));
        assert_eq!((configuration.fault(), configuration.remote().is_some()), (None, true));
        configuration.change(|public, _| *public = fields(&[(platform::STATE_REPO, &url), (platform::STATE_CA, "/etc/ca.pem")]));
        let fault = configuration.fault().unwrap();
        assert!(fault.contains("PEM"), "{fault}");
    }

    #[tokio::test]
    async fn what_would_be_is_tested_with_the_stored_token_at_its_host_alone() {
        let (server, other) = (GitHttp::start(), GitHttp::start());
        for repositories in [&server, &other] {
            repositories.repository("agents.git", &[]);
        }
        let folder = tempfile::tempdir().unwrap();
        let git = Git::new("git", folder.path(), std::env::vars_os()).unwrap();
        let rules = Rules { allow: vec!["127.0.0.0/8".parse().unwrap()], files: None };
        let (configuration, _) = MirrorConfig::new();
        configuration.change(|public, secrets| {
            *public = fields(&[(platform::STATE_REPO, &server.url("nothing.git"))]);
            secrets.token = Some(Credential::new(server.token()));
        });
        let before = configuration.remote();
        let test = |url: String| MirrorTest { url, authority: Some(server.authority()), keeps_token: true, ..MirrorTest::default() };
        let seen = probe(&git, &rules, &configuration.wanted(test(server.url("agents.git"))).unwrap(), "team-a").await;
        assert_eq!(seen.map(|seen| seen.branches), Ok(0));
        let elsewhere = configuration.wanted(test(other.url("agents.git"))).unwrap_err();
        assert!(elsewhere.contains("another host") && !elsewhere.contains(server.token()), "{elsewhere}");
        let wrong = MirrorTest { token: Some(Credential::new("hunter2")), keeps_token: false, ..test(other.url("agents.git")) };
        let refused = probe(&git, &rules, &configuration.wanted(wrong).unwrap(), "team-a").await.unwrap_err();
        assert!(matches!(refused, Trouble::Credentials(_)) && !refused.to_string().contains("hunter2"), "{refused}");
        assert_eq!(configuration.remote(), before, "nothing of it is kept");
    }

    #[test]
    fn the_remote_follows_both_objects_and_a_fault_is_kept() {
        let (configuration, mut remote) = MirrorConfig::new();
        configuration.change(|given, _| *given = public("https://git.example.com/slipway.git"));
        assert!(remote.has_changed().unwrap() && remote.borrow_and_update().is_some());
        configuration.change(|given, _| *given = public("https://git.example.com/slipway.git"));
        assert!(!remote.has_changed().unwrap(), "the same again is no change");
        configuration.change(|_, secrets| secrets.key = Some(Credential::new("hunter2")));
        assert!(remote.borrow_and_update().is_some(), "a key that is of no use to https is left alone");
        configuration.change(|given, _| *given = public("nonsense://x"));
        let fault = configuration.fault().unwrap();
        assert!(remote.borrow_and_update().is_none() && !fault.contains("hunter2"), "{fault}");
        configuration.change(|given, _| *given = public(" "));
        assert_eq!((configuration.fault(), configuration.remote().is_none()), (None, true));
    }
}
