//! Against Moto, which plays Amazon's S3.

use slipway_peers::Server;

use super::scripted::{Scripted, ScriptedAnswer};
use super::*;

const KEYS: [(&str, &str); 2] =
    [("access_key_id", "AKIAIOSFODNN7EXAMPLE"), ("secret_access_key", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")];

/// Whom Moto takes for the bucket's owner; it does not look at the signature unless it is told to.
const OWNER: &str = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x";

/// A bucket, filled by plain requests.
struct Bucket {
    moto: Server,
    client: reqwest::Client,
    mounts: Mounts,
}

impl Bucket {
    async fn new() -> Self {
        // The client of the egress rules installs the provider of cryptography; here none has been made yet.
        let mounts = Mounts::with(&KEYS);
        drop(rustls::crypto::ring::default_provider().install_default());
        let bucket = Self { moto: slipway_peers::moto(), client: reqwest::Client::builder().no_proxy().build().unwrap(), mounts };
        bucket.put("", "").await;
        bucket
    }

    async fn put(&self, key: &str, content: &str) {
        let slash = if key.is_empty() { "" } else { "/" };
        let request = self
            .client
            .put(format!("{}/papers{slash}{key}", self.moto.url()))
            .header("authorization", OWNER)
            .header("content-type", "text/plain");
        assert!(request.body(content.to_owned()).send().await.unwrap().status().is_success(), "{key}");
    }

    async fn delete(&self, key: &str) {
        let request = self.client.delete(format!("{}/papers/{key}", self.moto.url())).header("authorization", OWNER);
        assert!(request.send().await.unwrap().status().is_success(), "{key}");
    }

    fn source(&self, prefix: &str) -> Box<dyn Source> {
        self.source_at(self.moto.url(), prefix)
    }

    fn source_at(&self, url: &str, prefix: &str) -> Box<dyn Source> {
        self.mounts.open(json!({"type": "s3", "bucket": "papers", "prefix": prefix, "endpoint": url, "credentials_secret": "s"}))
    }
}

#[tokio::test]
async fn a_change_a_rename_and_a_deletion_are_seen() {
    let bucket = Bucket::new().await;
    for key in ["docs/a.txt", "docs/b.txt", "docs/c.txt", "docs/folder/", "other/d.txt"] {
        bucket.put(key, key).await;
    }
    let source = bucket.source("docs/");
    let (before, _, complete) = traversed(&*source).await.unwrap();
    assert_eq!(keys(&before), ["docs/a.txt", "docs/b.txt", "docs/c.txt"]);
    assert_eq!((complete.traversal(), complete.items()), ("t1", 3));
    let item = &before["docs/a.txt"];
    assert_eq!((item.filename.as_str(), item.size, item.uri.as_str()), ("a.txt", Some(10), "s3://papers/docs/a.txt"));
    assert_eq!(content(&*source, item).await.unwrap(), b"docs/a.txt");
    assert_eq!(listed(&*source).await, before);

    bucket.put("docs/a.txt", "docs/A.txt").await;
    // S3 has no rename: clients copy and delete.
    bucket.put("docs/e.txt", "docs/b.txt").await;
    bucket.delete("docs/b.txt").await;
    bucket.delete("docs/c.txt").await;
    let after = listed(&*source).await;
    assert_eq!(keys(&after), ["docs/a.txt", "docs/e.txt"]);
    assert_ne!(before["docs/a.txt"].version, after["docs/a.txt"].version);
    assert_eq!(before["docs/b.txt"].version, after["docs/e.txt"].version);
    let error = content(&*source, &before["docs/c.txt"]).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Gone, "{error}");
}

#[tokio::test]
async fn any_key_is_listed_and_fetched() {
    let bucket = Bucket::new().await;
    let names = [
        "a b.txt",
        "a+b.txt",
        "a%20b.txt",
        "ä€😀.txt",
        "a//b.txt",
        "a&b=c?d#e.txt",
        "a'(b)*!~.txt",
        "<x>&amp;.txt",
        "a\"b\\c|d^e`f{g}.txt",
    ];
    for name in names {
        let encoded = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string().replace("%2F", "/");
        bucket.put(&format!("x/{encoded}"), name).await;
    }
    let source = bucket.source("x/");
    let items = listed(&*source).await;
    assert_eq!(items.len(), names.len(), "{:?}", keys(&items));
    for name in names {
        let item = items.get(&format!("x/{name}")).unwrap_or_else(|| panic!("{name} is not among {:?}", keys(&items)));
        assert_eq!(content(&*source, item).await.unwrap(), name.as_bytes(), "{name}");
    }
}

#[tokio::test]
async fn pages_are_followed_and_an_interruption_removes_nothing() {
    let bucket = Bucket::new().await;
    for at in 0..2005 {
        bucket.put(&format!("x/{at:05}"), "").await;
    }
    let items = listed(&*bucket.source("x/")).await;
    assert_eq!((items.len(), bucket.moto.log().matches("list-type=2").count()), (2005, 3));

    // The server fails at the second page, for good; then it is back.
    let target = bucket.moto.url().to_owned();
    let proxy = Scripted::start(move |asked, before| {
        if (1..=5).contains(&before) {
            return ScriptedAnswer::status("500 Internal Server Error\r\nRetry-After: 0");
        }
        let url = format!("{target}{}", asked.target);
        let answer = std::process::Command::new("curl").args(["-s", &url]).output().unwrap();
        ScriptedAnswer("200 OK".into(), answer.stdout)
    })
    .await;
    let source = bucket.source_at(&proxy.url, "x/");
    let TraversalStep::Page { items, rest, .. } = Traversal::begin(&*source, "one").next().await.unwrap() else { panic!("no page") };
    let point = rest.resume_point().clone();
    let error = rest.next().await.err().expect("a page of a server that fails");
    assert!(error.is_transient() && error.to_string().contains("status 500"), "{error}");
    assert_eq!(proxy.asked().len(), 6, "asked five times for the second page");
    let (mut seen, mut traversal) = (items.len(), Traversal::resume(&*source, point));
    let complete = loop {
        match traversal.next().await.unwrap() {
            TraversalStep::Page { items, rest, .. } => {
                seen += items.len();
                traversal = rest;
            }
            TraversalStep::Complete(complete) => break complete,
        }
    };
    assert_eq!((seen, complete.items()), (2005, 2005));
}

/// Moto checks signatures and rights once it has answered as many requests as it was told.
#[tokio::test]
async fn signatures_are_checked_and_faults_name_the_credential() {
    let bucket = Bucket::new().await;
    bucket.put("x/a b+c.txt", "content").await;
    let iam = async |form: &str| {
        let scope = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=x";
        let request = bucket.client.post(format!("{}/", bucket.moto.url())).header("authorization", scope);
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(format!("{form}&Version=2010-05-08"));
        request.send().await.unwrap().text().await.unwrap()
    };
    iam("Action=CreateUser&UserName=reader").await;
    let keys = iam("Action=CreateAccessKey&UserName=reader").await;
    let element = |name: &str| keys.split_once(&format!("<{name}>")).unwrap().1.split('<').next().unwrap().to_owned();
    let (id, secret) = (element("AccessKeyId"), element("SecretAccessKey"));
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:ListBucket"],"Resource":"*"}]}"#;
    let policy: String = url::form_urlencoded::byte_serialize(policy.as_bytes()).collect();
    iam(&format!("Action=PutUserPolicy&UserName=reader&PolicyName=p&PolicyDocument={policy}")).await;
    let armed = bucket.client.post(format!("{}/moto-api/reset-auth", bucket.moto.url())).body("0").send().await.unwrap();
    assert!(armed.status().is_success());

    let source = |id: &str, secret: &str, name: &str| {
        let mounts = Mounts::with(&[("access_key_id", id), ("secret_access_key", secret)]);
        mounts.open(json!({"type": "s3", "bucket": name, "prefix": "x/", "endpoint": bucket.moto.url(), "credentials_secret": "s"}))
    };
    let granted = source(&id, &secret, "papers");
    let items = listed(&*granted).await;
    assert_eq!(super::keys(&items), ["x/a b+c.txt"]);
    for (outcome, says) in [
        (content(&*granted, &items["x/a b+c.txt"]).await.map(drop), "access_key_id may not get this object"),
        (traversed(&*source("AKIAWRONG", &secret, "papers")).await.map(drop), "access_key_id is not known"),
        (traversed(&*source(&id, "wrong-secret", "papers")).await.map(drop), "secret_access_key does not belong"),
    ] {
        let error = outcome.expect_err(says);
        assert!(error.wrong_field() == Some("credentials_secret") && error.to_string().contains(says), "{says}: {error}");
        assert!(!error.to_string().contains("wrong-secret") && !error.to_string().contains(&secret), "{error}");
    }
}

#[tokio::test]
async fn faults_name_the_field() {
    let bucket = Bucket::new().await;
    let config = |bucket: &str, endpoint: &str| json!({"type": "s3", "bucket": bucket, "endpoint": endpoint, "credentials_secret": "s"});
    let absent = bucket.mounts.open(config("absent", bucket.moto.url()));
    let error = traversed(&*absent).await.unwrap_err();
    assert_eq!((error.wrong_field(), error.kind()), (Some("bucket"), SourceErrorKind::Misconfigured), "{error}");

    let metadata = bucket.mounts.open(config("papers", "http://169.254.169.254"));
    let error = traversed(&*metadata).await.unwrap_err();
    assert!(error.wrong_field() == Some("endpoint") && error.to_string().contains("link-local"), "{error}");

    let page = Scripted::start(|_, _| ScriptedAnswer("200 OK".into(), b"<html><body>Welcome</body></html>".to_vec())).await;
    let error = traversed(&*bucket.mounts.open(config("papers", &page.url))).await.unwrap_err();
    assert!(error.wrong_field() == Some("endpoint") && error.to_string().contains("not S3's"), "{error}");

    let moved = Scripted::start(|_, _| ScriptedAnswer::status("301 Moved Permanently\r\nx-amz-bucket-region: eu-west-1")).await;
    let error = traversed(&*bucket.mounts.open(config("papers", &moved.url))).await.unwrap_err();
    assert_eq!(error.to_string(), "region: is not the bucket's, which is eu-west-1");

    let empty = Mounts::with(&[("access_key_id", "x")]);
    let error = open(&serde_json::from_value(config("papers", bucket.moto.url())).unwrap(), &empty.surroundings()).err().unwrap();
    assert_eq!(error.to_string(), "credentials_secret: the Secret has no key secret_access_key");
}
