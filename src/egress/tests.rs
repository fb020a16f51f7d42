mod spelling;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use url::Url;

use super::*;

/// A resolver that returns its answers in order, and repeats the last.
struct ScriptedResolver {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl ScriptedResolver {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let answers = answers.iter().map(|answer| answer.iter().map(|address| address.parse().unwrap()).collect()).collect();
        Arc::new(Self { answers: Mutex::new(answers), asked: AtomicUsize::new(0) })
    }
}

impl Resolver for ScriptedResolver {
    fn addresses(&self, _: String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0].clone() };
        Box::pin(async move { Ok(answer) })
    }
}

/// Answers every request with `head` and closes. Returns the port and the count of connections.
async fn server(address: &str, head: &'static str) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes()).await;
            });
        }
    });
    (port, connections)
}

fn egress(allow: &[&str], resolver: Arc<dyn Resolver>) -> Egress {
    let profile = EgressProfile { name: "tools", setting: "RUNTIME_EGRESS_ALLOW", user_agent: "slipway-tests" };
    let allow: Vec<Allowed> = allow.iter().map(|item| item.parse().unwrap()).collect();
    Egress::with_resolver(profile, &allow, None, resolver)
}

async fn get(egress: &Egress, url: &str) -> Result<u16, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let client = egress.client(&url).map_err(|blocked| blocked.to_string())?;
    client.get(url.clone()).send().await.map(|answer| answer.status().as_u16()).map_err(|error| explain(&error, &redacted(&url)))
}

#[tokio::test]
async fn no_spelling_of_a_local_address_is_reached() {
    let (port, connections) = server("127.0.0.1:0", "200 OK").await;
    let egress = egress(&[], Arc::new(SystemResolver));
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "017700000001",
        "127.1",
        "127.0.1",
        "0",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "%6c%6fcalhost",
        "127。0。0。1",
        "①②⑦.0.0.1",
        "169.254.169.254",
        "0xa9fea9fe",
        "[::ffff:169.254.169.254]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "metadata.google.internal",
        "10.0.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "user@127.0.0.1",
        "example.com@127.0.0.1",
    ] {
        let outcome = get(&egress, &format!("http://{host}:{port}/")).await;
        let message = outcome.expect_err(host);
        assert!(message.contains("not reachable for tools") || message.contains("without credentials"), "{host}: {message}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn other_schemes_are_refused() {
    let egress = egress(&["0.0.0.0/0"], Arc::new(SystemResolver));
    for url in ["file:///etc/passwd", "ftp://example.com/", "gopher://127.0.0.1/", "data:text/plain,x"] {
        assert!(matches!(egress.client(&Url::parse(url).unwrap()), Err(Blocked::Url(_))), "{url}");
    }
}

#[tokio::test]
async fn one_refused_address_refuses_the_name() {
    let (port, connections) = server("127.0.0.1:0", "200 OK").await;
    for answer in [&["93.184.216.34", "127.0.0.1"][..], &["127.0.0.1", "93.184.216.34"], &["8.8.8.8", "::ffff:10.0.0.1"]] {
        let egress = egress(&[], ScriptedResolver::new(&[answer]));
        let message = get(&egress, &format!("http://example.com:{port}/")).await.unwrap_err();
        assert!(message.contains("example.com is not reachable for tools"), "{message}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_connected_to_the_checked_one() {
    let (port, allowed) = server("127.0.0.2:0", "200 OK").await;
    let (_, forbidden) = server(&format!("127.0.0.1:{port}"), "200 OK").await;
    let resolver = ScriptedResolver::new(&[&["127.0.0.2"], &["127.0.0.1"]]);
    let egress = egress(&["127.0.0.2/32"], resolver.clone());
    let url = format!("http://rebind.example.com:{port}/");

    assert_eq!(get(&egress, &url).await, Ok(200));
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 1, "check and connection have to share one resolution");
    let message = get(&egress, &url).await.unwrap_err();
    assert!(message.contains("127.0.0.1 is loopback"), "{message}");
    assert_eq!((allowed.load(Ordering::SeqCst), forbidden.load(Ordering::SeqCst)), (1, 0));
}

#[tokio::test]
async fn the_operator_can_allow_networks_and_hosts() {
    let (port, _) = server("127.0.0.1:0", "200 OK").await;
    let resolver = || ScriptedResolver::new(&[&["127.0.0.1"]]);
    let host = |host: &str| format!("{host}:{port}");
    for (allow, url, expected) in [
        ("127.0.0.0/8".to_owned(), host("127.0.0.1"), true),
        ("127.0.0.0/8".to_owned(), host("[::ffff:127.0.0.1]"), true),
        ("127.0.0.0/8".to_owned(), host("wiki.internal"), true),
        ("10.0.0.0/8".to_owned(), host("wiki.internal"), false),
        (host("wiki.internal"), host("wiki.internal"), true),
        (host("wiki.internal"), host("WIKI.internal"), true),
        (host("wiki.internal"), host("other.internal"), false),
        (host("wiki.internal"), host("127.0.0.1"), false),
        (host("127.0.0.1"), host("127.0.0.1"), true),
        (host("127.0.0.1"), host("2130706433"), true),
        (host("localhost"), host("localhost"), true),
        ("wiki.internal:1".to_owned(), host("wiki.internal"), false),
    ] {
        let outcome = get(&egress(&[&allow], resolver()), &format!("http://{url}/")).await;
        assert_eq!(outcome.is_ok(), expected, "{allow} {url}: {outcome:?}");
    }
}

#[tokio::test]
async fn an_allowed_name_does_not_lead_to_the_metadata_service() {
    let egress = egress(&["wiki.internal:80"], ScriptedResolver::new(&[&["169.254.169.254"]]));
    let message = get(&egress, "http://wiki.internal/").await.unwrap_err();
    assert!(message.contains("169.254.169.254 is link-local"), "{message}");
    // Nor does the address itself, which is not resolved: this takes a network in the list.
    let system = || Arc::new(SystemResolver);
    let message = get(&super::tests::egress(&["169.254.169.254:80"], system()), "http://169.254.169.254/").await.unwrap_err();
    assert!(message.contains("169.254.169.254 is link-local"), "{message}");
    let url = Url::parse("http://169.254.169.254/").unwrap();
    assert!(super::tests::egress(&["169.254.169.254/32"], system()).check(&url).is_ok());
}

#[tokio::test]
async fn errors_of_non_public_hosts_are_not_disclosed() {
    let (port, _) = server("127.0.0.1:0", "200 OK").await;
    for (allow, host, addresses, expected) in [
        ("10.0.0.0/8", "example.com", &["93.184.216.34"][..], true),
        ("127.0.0.0/8", "wiki.internal", &["127.0.0.1"], false),
        ("10.0.0.0/8", "wiki.internal", &["127.0.0.1"], false),
        ("10.0.0.0/8", "wiki.internal", &["93.184.216.34", "127.0.0.1"], false),
        ("10.0.0.0/8", "wiki.internal", &[], false),
        ("wiki.internal:*", "wiki.internal", &["127.0.0.1"], true),
        ("127.0.0.0/8", "127.0.0.1", &[], false),
        ("10.0.0.0/8", "[::ffff:127.0.0.1]", &[], false),
        ("127.0.0.1:*", "127.0.0.1", &[], true),
    ] {
        let egress = egress(&[&allow.replace('*', &port.to_string())], ScriptedResolver::new(&[addresses]));
        let url = Url::parse(&format!("http://{host}:{port}/")).unwrap();
        if expected && host == "example.com" {
            // Tests send nothing to a real host.
            let EgressState { profile, allow, resolver, saw_non_public, .. } = &*egress.0;
            let checked = CheckedResolver {
                profile: *profile,
                allow: allow.clone(),
                host_allowed: false,
                resolver: resolver.clone(),
                saw_non_public: saw_non_public.clone(),
            };
            assert!(reqwest::dns::Resolve::resolve(&checked, host.parse().unwrap()).await.is_ok());
        } else {
            let _ = get(&egress, url.as_str()).await;
        }
        assert_eq!(egress.may_disclose(&url), expected, "{allow} {host} {addresses:?}");
    }
}

#[tokio::test]
async fn redirects_stay_on_the_same_origin_and_are_limited() {
    let (elsewhere, connections) = server("127.0.0.1:0", "200 OK").await;
    let away = Box::leak(format!("302 Found\r\nLocation: http://127.0.0.1:{elsewhere}/").into_boxed_str());
    for (head, expected) in [
        (&*away, "redirects to another place"),
        ("302 Found\r\nLocation: http://example.com/", "redirects to another place, http://example.com,"),
        ("301 Moved\r\nLocation: //169.254.169.254/latest", "redirects to another place, http://169.254.169.254,"),
        ("307 Temporary\r\nLocation: https://127.0.0.1/", "redirects to another place, https://127.0.0.1,"),
        ("302 Found\r\nLocation: file:///etc/passwd", ""),
        ("302 Found\r\nLocation: /again", "redirects more than 3 times"),
    ] {
        let (port, own) = server("127.0.0.1:0", head).await;
        let outcome = get(&egress(&["127.0.0.0/8"], Arc::new(SystemResolver)), &format!("http://127.0.0.1:{port}/")).await;
        let connections = own.load(Ordering::SeqCst);
        if expected.is_empty() {
            assert!(outcome.is_err() || outcome == Ok(302), "{head}: {outcome:?}");
        } else {
            let message = outcome.expect_err(head);
            assert!(message.contains(expected), "{head}: {message}");
        }
        assert_eq!(connections, if head.contains("/again") { 4 } else { 1 }, "{head}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[test]
fn exceptions_are_known_before_a_name_is_resolved() {
    let egress = egress(&["127.0.0.0/8", "git.internal:80"], Arc::new(SystemResolver));
    for (url, expected) in [
        ("http://127.0.0.1:3000/x", true),
        ("http://[::ffff:127.0.0.1]/x", true),
        ("http://git.internal/x", true),
        ("http://git.internal:8080/x", false),
        ("http://example.com/x", false),
        ("http://8.8.8.8/x", false),
        ("http://10.0.0.1/x", false),
    ] {
        assert_eq!(egress.is_allowed(&Url::parse(url).unwrap()), expected, "{url}");
    }
}

#[tokio::test]
async fn redirects_are_handed_back_to_who_asks_for_them() {
    let (port, connections) = server("127.0.0.1:0", "302 Found\r\nLocation: /again").await;
    let profile = EgressProfile { name: "tools", setting: "RUNTIME_EGRESS_ALLOW", user_agent: "slipway-tests" };
    let egress = Egress::without_redirects(profile, &["127.0.0.0/8".parse().unwrap()], None);
    assert_eq!(get(&egress, &format!("http://127.0.0.1:{port}/")).await, Ok(302));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    let private = Egress::without_redirects(profile, &[], None);
    assert!(get(&private, &format!("http://127.0.0.1:{port}/")).await.is_err());
}
