//! Where the repositories are mirrored to: ConfigMap and Secret `slipway-platform`, which REST writes. A setting that
//! cannot be used is as good as none, and is told to whoever asks how the mirror is.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::Api;
use slipway_api::mirror::{Credential, Remote, RemoteSettings};
use slipway_api::platform;
use slipway_cluster::Tasks;
use slipway_cluster::watch::{Heard, follow_fields};
use tokio::sync::watch;

/// The settings as they are, and what is wrong with them.
#[derive(Clone)]
pub(super) struct Configuration(Arc<Shared>);

struct Shared {
    given: Mutex<(Public, Hidden)>,
    sender: watch::Sender<Option<Remote>>,
    fault: Mutex<Option<String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Public {
    url: Option<String>,
    branch: Option<String>,
    known_hosts: Option<String>,
    authority: Option<String>,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Hidden {
    token: Option<Credential>,
    key: Option<Credential>,
}

impl Configuration {
    fn new() -> (Self, watch::Receiver<Option<Remote>>) {
        let (sender, remote) = watch::channel(None);
        (Self(Arc::new(Shared { given: Mutex::default(), sender, fault: Mutex::default() })), remote)
    }

    pub(super) fn remote(&self) -> Option<Remote> {
        self.0.sender.borrow().clone()
    }

    pub(super) fn fault(&self) -> Option<String> {
        self.0.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Public, &mut Hidden)) {
        let mut given = self.0.given.lock().unwrap_or_else(PoisonError::into_inner);
        let before = given.clone();
        let (public, hidden) = &mut *given;
        change(public, hidden);
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
            tracing::info!(configured = remote.is_some(), "where releases are mirrored to has changed");
        }
        *self.0.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
        self.0.sender.send_replace(remote);
    }
}

fn remote(public: &Public, hidden: &Hidden) -> Result<Option<Remote>, String> {
    let Some(url) = public.url.clone() else { return Ok(None) };
    // What is left over of another kind of remote is not sent anywhere, and no fault.
    let scheme = url.split_once("://").map_or("ssh", |(scheme, _)| scheme);
    let (https, ssh) = (scheme.eq_ignore_ascii_case("https"), scheme.eq_ignore_ascii_case("ssh"));
    let settings = RemoteSettings {
        branch: public.branch.clone(),
        token: hidden.token.clone().filter(|_| https),
        key: hidden.key.clone().filter(|_| ssh),
        known_hosts: public.known_hosts.clone().filter(|_| ssh),
        authority: public.authority.clone().filter(|_| https),
        url,
    };
    Remote::new(settings).map(Some)
}

/// Heeds both from now on, by tasks without which the process is of no use.
pub(super) fn watch(client: &Client, namespace: &str, tasks: &Tasks) -> (Configuration, watch::Receiver<Option<Remote>>) {
    let (configuration, remote) = Configuration::new();
    let fields = format!("metadata.name={}", platform::NAME);
    let (first, second) = (configuration.clone(), configuration.clone());
    let (api, selected) = (Api::<ConfigMap>::namespaced(client.clone(), namespace), fields.clone());
    tasks.spawn("watch of the mirror's ConfigMap", async move {
        let hear = |heard: Heard<ConfigMap>| match heard {
            Heard::Seen(_, config) => first.change(|public, _| *public = Public::of(&config)),
            Heard::Gone(..) => first.change(|public, _| *public = Public::default()),
            Heard::Listed(keys) if keys.is_empty() => first.change(|public, _| *public = Public::default()),
            Heard::Listing | Heard::Listed(_) => {}
        };
        follow_fields(api, &selected, None, hear).await;
    });
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    tasks.spawn("watch of the mirror's Secret", async move {
        let hear = |heard: Heard<Secret>| match heard {
            Heard::Seen(_, secret) => second.change(|_, hidden| *hidden = Hidden::of(&secret)),
            Heard::Gone(..) => second.change(|_, hidden| *hidden = Hidden::default()),
            Heard::Listed(keys) if keys.is_empty() => second.change(|_, hidden| *hidden = Hidden::default()),
            Heard::Listing | Heard::Listed(_) => {}
        };
        follow_fields(api, &fields, None, hear).await;
    });
    (configuration, remote)
}

impl Public {
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

impl Hidden {
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

    fn public(url: &str) -> Public {
        told(&[(platform::STATE_REPO, url)])
    }

    fn told(fields: &[(&str, &str)]) -> Public {
        let data = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Public::of(&ConfigMap { data: Some(data), ..ConfigMap::default() })
    }

    #[tokio::test]
    async fn a_host_whose_certificate_a_private_authority_signed_takes_its_certificates() {
        let server = GitHttp::start();
        server.repository("agents.git", &[]);
        let folder = std::env::temp_dir();
        let git = Git::new("git", folder, std::env::vars_os()).unwrap();
        let rules = Rules { allow: vec!["127.0.0.0/8".parse().unwrap()], files: None };
        let token = [(platform::STATE_TOKEN.to_owned(), k8s_openapi::ByteString(server.token().as_bytes().to_vec()))].into();
        let hidden = Hidden::of(&Secret { data: Some(token), ..Secret::default() });
        let (url, authority) = (server.url("agents.git"), server.authority());
        let (configuration, _) = Configuration::new();
        configuration.change(|public, given| (*public, *given) = (told(&[(platform::STATE_REPO, &url)]), hidden));
        let stranger = probe(&git, &rules, &configuration.remote().unwrap(), "team-a").await.unwrap_err();
        assert!(matches!(stranger, Trouble::Certificate(_)), "{stranger}");
        configuration.change(|public, _| *public = told(&[(platform::STATE_REPO, &url), (platform::STATE_CA, &authority)]));
        let seen = probe(&git, &rules, &configuration.remote().unwrap(), "team-a").await;
        assert_eq!(seen.map(|seen| seen.branches), Ok(0));
        // Left over from before, it is of no use to ssh, and no fault.
        configuration
            .change(|public, _| *public = told(&[(platform::STATE_REPO, "file:///mirror/a.git"), (platform::STATE_CA, &authority)]));
        assert_eq!((configuration.fault(), configuration.remote().is_some()), (None, true));
        configuration.change(|public, _| *public = told(&[(platform::STATE_REPO, &url), (platform::STATE_CA, "/etc/ca.pem")]));
        let fault = configuration.fault().unwrap();
        assert!(fault.contains("PEM"), "{fault}");
    }

    #[test]
    fn a_remote_is_made_of_what_both_say_and_a_fault_is_kept() {
        let (configuration, mut remote) = Configuration::new();
        configuration.change(|given, _| *given = public("https://git.example.com/slipway.git"));
        assert!(remote.has_changed().unwrap() && remote.borrow_and_update().is_some());
        configuration.change(|given, _| *given = public("https://git.example.com/slipway.git"));
        assert!(!remote.has_changed().unwrap(), "the same again is no change");
        configuration.change(|_, hidden| hidden.key = Some(Credential::new("hunter2")));
        assert!(remote.borrow_and_update().is_some(), "a key that is of no use to https is left alone");
        configuration.change(|given, _| *given = public("nonsense://x"));
        let fault = configuration.fault().unwrap();
        assert!(remote.borrow_and_update().is_none() && !fault.contains("hunter2"), "{fault}");
        configuration.change(|given, _| *given = public(" "));
        assert_eq!((configuration.fault(), configuration.remote().is_none()), (None, true));
    }
}
