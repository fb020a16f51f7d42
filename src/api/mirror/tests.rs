use percent_encoding::percent_decode_str;
use proptest::prelude::*;

use super::*;

const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n-----END OPENSSH PRIVATE KEY-----";
const HOST_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB";

fn ssh_settings(url: &str, known_hosts: &str) -> RemoteSettings {
    RemoteSettings { url: url.into(), key: Some(Credential::new(KEY)), known_hosts: Some(known_hosts.into()), ..RemoteSettings::default() }
}

fn https_settings(url: &str, branch: Option<&str>) -> RemoteSettings {
    RemoteSettings {
        url: url.into(),
        branch: branch.map(Into::into),
        token: Some(Credential::new("hunter2/+")),
        ..RemoteSettings::default()
    }
}

#[test]
fn a_team_is_named_by_the_url_or_by_the_branch() {
    for (url, branch, expected) in [
        ("https://h/o/agents.git", None, Ok(("https://h/o/agents.git", "team-a"))),
        ("https://h/o/{team}.git", None, Ok(("https://h/o/a.git", "main"))),
        ("https://h/o/{team}.git", Some("live"), Ok(("https://h/o/a.git", "live"))),
        ("https://h/o/agents.git", Some("agents/{team}"), Ok(("https://h/o/agents.git", "agents/a"))),
        ("https://me@h:8443/o/agents.git", None, Ok(("https://h:8443/o/agents.git", "team-a"))),
        ("https://h/o/agents.git", Some("live"), Err("all teams would be pushed to branch 'live'")),
        ("https://{team}.example.com/o.git", None, Err("in the URL's path")),
        ("https://h/{tea}.git", None, Err("no other braces")),
        ("https://h/o", Some("a..{team}"), Err("no name of a branch")),
        ("https://h/o", Some("-{team}"), Err("no name of a branch")),
        ("https://h/o", Some("{team}.lock"), Err("no name of a branch")),
        ("https://h/o", Some("{team}:refs/heads/main"), Err("no name of a branch")),
        ("https://h/o", Some("+{team}"), Err("no name of a branch")),
        ("https://me:hunter2@h/o", None, Err("no password")),
        ("http://h/o", None, Err("must be https")),
        ("https://h", None, Err("the URL must be https://host/path")),
        ("https://h\\@evil/o", None, Err("no backslash")),
        ("https://h/o?x=1", None, Err("neither ? nor #")),
        ("ext::sh -c x", None, Err("none of them a space")),
        ("ext::x", None, Err("the URL must be https://host/path")),
        ("git://h/o", None, Err("the URL must be")),
        ("/some/folder", None, Err("the URL must be")),
        ("--upload-pack=x", None, Err("the URL must be")),
        ("", None, Err("1 to 2048")),
    ] {
        let outcome = Remote::new(https_settings(url, branch)).map(|remote| remote.destination("team-a"));
        match (expected, outcome) {
            (Ok((url, branch)), Ok(place)) => assert_eq!((place.url.as_str(), place.branch.as_str()), (url, branch)),
            (Err(says), Err(fault)) => assert!(fault.contains(says) && !fault.contains("hunter2"), "{url}: {fault}"),
            (expected, outcome) => panic!("{url} {branch:?}: expected {expected:?}, got {outcome:?}"),
        }
    }
    let other = Remote::new(https_settings("https://h/{team}", None)).unwrap().destination("default");
    assert_eq!(other.url, "https://h/default");
}

#[test]
fn ssh_takes_a_key_and_the_hosts_own_keys() {
    for (url, known_hosts, expected) in [
        ("ssh://git@h/o.git", HOST_KEY, Ok("h ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB\n")),
        ("git@H.example.com:o.git", HOST_KEY, Ok("h.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB\n")),
        ("ssh://git@h:2222/o.git", HOST_KEY, Ok("[h]:2222 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB\n")),
        (
            "ssh://git@h/o.git",
            "# h:22 SSH-2.0\nh ssh-rsa AAAA\n|1|a=|b= ecdsa-sha2-nistp256 AAAA c\n",
            Ok("h ssh-rsa AAAA\n|1|a=|b= ecdsa-sha2-nistp256 AAAA c\n"),
        ),
        ("ssh://git@h/o.git", "@cert-authority *.h ssh-ed25519 AAAA", Ok("@cert-authority *.h ssh-ed25519 AAAA\n")),
        ("ssh://git@h/o.git", "", Err("anybody could pose as h")),
        ("ssh://git@h/o.git", "# nothing\n", Err("anybody could pose as h")),
        ("ssh://git@h/o.git", "h\n", Err("not as ssh-keyscan prints it")),
        ("ssh://h/o.git", HOST_KEY, Err("as whom to come")),
        ("ssh://git%20x@h/o.git", HOST_KEY, Err("as whom to come")),
        ("ssh://-oProxyCommand=x@h/o.git", HOST_KEY, Err("as whom to come")),
        ("ssh://git@-oProxyCommand=x/o.git", HOST_KEY, Err("the URL must be")),
        ("https://h/o.git", HOST_KEY, Err("of no use with https")),
    ] {
        match (expected, Remote::new(ssh_settings(url, known_hosts)).map(|remote| remote.transport)) {
            (Ok(lines), Ok(Transport::Ssh { known_hosts, .. })) => assert_eq!(known_hosts, lines, "{url}"),
            (Err(says), Err(fault)) => assert!(fault.contains(says), "{url}: {fault}"),
            (expected, outcome) => panic!("{url} {known_hosts:?}: expected {expected:?}, got {outcome:?}"),
        }
    }
    let keyless = RemoteSettings { key: None, ..ssh_settings("ssh://git@h/o", HOST_KEY) };
    assert!(Remote::new(keyless).unwrap_err().contains("takes a private key"));
}

#[test]
fn what_opens_the_remote_is_never_shown() {
    let https = Remote::new(https_settings("https://me@h/o", None)).unwrap();
    let ssh = Remote::new(ssh_settings("git@h:o", HOST_KEY)).unwrap();
    let shown = format!("{https:?} {ssh:?} {:?}", https_settings("https://h/o", None));
    for secret in https.secrets().iter().chain(&ssh.secrets()) {
        assert!(!shown.contains(secret.as_str()), "{secret}: {shown}");
    }
    // As it is, as a URL has it, and as a header has it.
    for form in ["hunter2/+", "hunter2%2F%2B", "bWU6aHVudGVyMi8r"] {
        assert!(https.secrets().iter().any(|secret| secret == form), "{form}");
    }
    assert_eq!(ssh.secrets(), ["b3BlbnNzaC1rZXktdjEA"]);
}

#[test]
fn who_sees_a_token_is_told_by_scheme_host_and_port() {
    for (one, other, same) in [
        ("https://h/a", "https://H/{team}", true),
        ("https://h/a", "https://h:443/a", true),
        ("https://h/a", "https://h:444/a", false),
        ("git@h:a", "ssh://me@h/b", true),
        ("git@h:a", "git@i:a", false),
        ("https://h/a", "ssh://git@h/a", false),
        ("file:///a", "file:///a", true),
    ] {
        assert_eq!(receiver(one) == receiver(other), same, "{one} {other}");
    }
}

/// The host as RFC 3986 has it, by which git and curl go, in plain letters.
fn host_by_the_rfc(url: &str) -> Option<String> {
    let authority = match url.split_once("://") {
        Some((_, rest)) => rest.split(['/', '?', '#']).next()?,
        None => url.split_once(':')?.0,
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let host = percent_decode_str(host).decode_utf8().ok()?.to_lowercase();
    // As for the C library, one to four numbers are an address.
    let is_address = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_address { Some(url::Host::parse(&host).ok()?.to_string()) } else { Some(host) }
}

proptest! {
    #[test]
    fn the_host_that_is_checked_is_the_one_that_git_goes_to(
        url in "(https|ssh|http|file|git|ext)?(://)?((me|git|h|evil|x)|[@:/\\\\?#%.]|%2f|%40|%5c|\\{team\\}|22|\\[::1\\]|example\\.com){1,10}", team in "[a-z]{1,4}",
    ) {
        for settings in [https_settings(&url, None), ssh_settings(&url, HOST_KEY)] {
            let Ok(remote) = Remote::new(settings) else { continue };
            let place = remote.destination(&format!("team-{team}"));
            let checked = parse_url(&place.url).unwrap();
            if checked.scheme() != "file" {
                prop_assert_eq!(checked.host_str().map(str::to_owned), host_by_the_rfc(&place.url), "{}", place.url);
            }
            prop_assert!(checked.password().is_none() && !place.url.starts_with('-') && !place.url.contains(['{', '}']), "{}", place.url);
            prop_assert_eq!(place.branch.contains("..") || place.branch.starts_with('-'), false);
            prop_assert!(checked.scheme() != "https" || !place.url.split_once("://").unwrap().1.split('/').next().unwrap().contains('@'), "{}", place.url);
        }
    }

    #[test]
    fn what_is_wrong_is_told_without_the_token(url in "https://\\PC{0,20}|\\PC{0,20}", token in "hunter2\\PC{0,4}", branch in prop::option::of("\\PC{0,10}|[a-z./{}-]{0,10}")) {
        let settings = RemoteSettings { url, branch, token: Some(Credential::new(&*token)), ..RemoteSettings::default() };
        match Remote::new(settings) {
            Ok(remote) => {
                let shown = format!("{remote:?}");
                prop_assert!(!shown.contains("hunter2"), "{}", shown);
                prop_assert!(remote.secrets().contains(&token));
            }
            Err(fault) => prop_assert!(!fault.contains("hunter2"), "{}", fault),
        }
    }
}
