use std::fs;

use slipway_peers::{GitHttp, Sshd};
use tempfile::TempDir;

use super::*;
use slipway_api::mirror::{Credential, RemoteSettings};

fn git(folder: &TempDir) -> Git {
    Git::new("git", folder.path(), std::env::vars_os()).unwrap()
}

/// `git.invalid` has no address, so that what gets there was told the one that was checked.
#[tokio::test]
async fn https_connects_to_the_address_that_was_checked() {
    let (folder, server) = (TempDir::new().unwrap(), GitHttp::start());
    server.repository("r.git", &[]);
    let url = server.url("r.git").replace("127.0.0.1", "git.invalid");
    let token = Some(Credential::new(server.token()));
    let remote = Remote::new(RemoteSettings { url: url.clone(), token, ..RemoteSettings::default() }).unwrap();
    let authority = server.authority();
    for (addresses, expected) in [(&["127.0.0.1"][..], true), (&[], false), (&["127.0.0.3"], false)] {
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let call = git(&folder).call(["ls-remote", "--", &url]).unwrap().set("protocol.https.allow", "always");
        let call = https(call, &parse_url(&url).unwrap(), &addresses, remote.transport(), Some(&authority)).unwrap();
        let finished = call.run(PROBE_LIMITS).await.unwrap();
        assert_eq!(finished.status.success(), expected, "{addresses:?}: {finished:?}");
    }
}

#[tokio::test]
async fn ssh_connects_to_the_address_that_was_checked() {
    let (folder, server) = (TempDir::new().unwrap(), Sshd::start());
    server.repository("r.git", &[]);
    let url = server.url("r.git").replace("127.0.0.1", "git.invalid");
    let (key, known_hosts) = (Some(Credential::new(server.key())), Some(server.host_key()));
    let remote = Remote::new(RemoteSettings { url: url.clone(), key, known_hosts, ..RemoteSettings::default() }).unwrap();
    let Transport::Ssh { known_hosts, user, .. } = remote.transport() else { panic!("{remote:?}") };
    for (address, expected) in [("127.0.0.1", true), ("127.0.0.3", false)] {
        let call = git(&folder).call(["ls-remote", "--", &url]).unwrap().set("protocol.ssh.allow", "always");
        let call = ssh(call, &parse_url(&url).unwrap(), address, remote.transport(), known_hosts, user).unwrap();
        let finished = call.run(PROBE_LIMITS).await.unwrap();
        assert_eq!(finished.status.success(), expected, "{address}: {finished:?}");
    }
}

#[tokio::test]
async fn no_protocol_but_the_urls_own_is_spoken() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("remotes")).unwrap();
    let rules = Rules { files: Some(folder.path().join("remotes")), ..Rules::default() };
    let path = folder.path().join("remotes/r.git");
    git(&folder).call(["init", "--quiet", "--bare"]).unwrap().environment("GIT_DIR", &path).run(LOCAL_LIMITS).await.unwrap();
    let url = format!("file://{}", path.display());
    let remote = Remote::new(RemoteSettings { url: url.clone(), ..RemoteSettings::default() }).unwrap();
    let git = git(&folder);
    for (asked, expected) in
        [(url.as_str(), true), ("ext::sh -c true", false), ("git://127.0.0.1/r.git", false), ("https://127.0.0.1:1/r", false)]
    {
        let call = reach(&git, &rules, &remote, &remote.destination("team-a"), &["ls-remote", "--", asked]).await.unwrap();
        let finished = call.run(PROBE_LIMITS).await.unwrap();
        assert_eq!(finished.status.success(), expected, "{asked}: {finished:?}");
        assert!(expected || finished.stderr.as_str().contains("not allowed"), "{asked}: {finished:?}");
    }
}
