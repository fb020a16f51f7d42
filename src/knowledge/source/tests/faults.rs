//! What servers do to a client that waits, repeats and gives up within bounds.

use std::time::{Duration, Instant};

use super::super::http::{Http, HttpLimits, SourceCall};
use super::scripted::{Scripted, ScriptedAnswer};
use super::*;

fn http() -> Http {
    let mut http = Http::new(&Mounts::with(&[]).surroundings(), "endpoint");
    http.limits = HttpLimits {
        attempts: 4,
        backoff: Duration::from_millis(10),
        longest_wait: Duration::from_secs(2),
        answer_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(10),
        document_timeout: Duration::from_secs(30),
        ..HttpLimits::default()
    };
    http
}

async fn get(server: &Scripted, http: &Http) -> Result<Vec<u8>, SourceError> {
    http.bytes(&|| Ok(SourceCall::get(server.url.parse().unwrap())), &|refusal| refusal.other("")).await
}

async fn download(server: &Scripted, http: &Http) -> (Result<u64, SourceError>, Vec<u8>) {
    let mut file = tempfile::tempfile().unwrap();
    let make = || Ok(SourceCall::get(server.url.parse().unwrap()));
    let outcome = http.download(&make, &|refusal| refusal.other(""), &mut file).await;
    (outcome.map(|fetched| fetched.bytes), read(&mut file))
}

#[tokio::test]
async fn retry_after_is_honoured_within_its_bound() {
    let server = Scripted::start(|_, before| match before {
        0 => ScriptedAnswer::status("429 Too Many Requests\r\nRetry-After: 1"),
        _ => ScriptedAnswer("200 OK".into(), b"done".to_vec()),
    })
    .await;
    let began = Instant::now();
    assert_eq!(get(&server, &http()).await.unwrap(), b"done");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());

    let server = Scripted::start(|_, _| ScriptedAnswer::status("429 Too Many Requests\r\nRetry-After: 86400")).await;
    let error = get(&server, &http()).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("status 429"), "{error}");
    assert_eq!((error.retry_after(), server.asked().len()), (Some(Duration::from_hours(1)), 1));
}

#[tokio::test]
async fn passing_faults_are_repeated_and_lasting_ones_are_not() {
    for (head, times) in [
        ("500 Internal Server Error", 4),
        ("502 Bad Gateway", 4),
        ("503 Service Unavailable", 4),
        ("504 Gateway Timeout", 4),
        ("429 Too Many Requests", 4),
        ("400 Bad Request", 1),
        ("401 Unauthorized", 1),
        ("404 Not Found", 1),
        ("501 Not Implemented", 1),
    ] {
        let server = Scripted::start(move |_, _| ScriptedAnswer::status(head)).await;
        let error = get(&server, &http()).await.unwrap_err();
        assert_eq!((server.asked().len(), error.is_transient()), (times, times > 1), "{head}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut http = http();
    http.limits.answer_timeout = Duration::from_millis(200);
    let began = Instant::now();
    let error = http.bytes(&|| Ok(SourceCall::get(url.parse().unwrap())), &|refusal| refusal.other("")).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(began.elapsed() >= Duration::from_millis(800), "four attempts: {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_document_cut_off_is_fetched_again_from_its_beginning() {
    let server = Scripted::start(|_, before| match before {
        0 => ScriptedAnswer("200 OK\r\nContent-Length: 10".into(), b"01234".to_vec()),
        _ => ScriptedAnswer("200 OK".into(), b"0123456789".to_vec()),
    })
    .await;
    let (outcome, file) = download(&server, &http()).await;
    assert_eq!((outcome, file.as_slice()), (Ok(10), &b"0123456789"[..]));

    let server = Scripted::start(|_, _| ScriptedAnswer("200 OK\r\nContent-Length: 10".into(), b"01234".to_vec())).await;
    let (outcome, _) = download(&server, &http()).await;
    assert!(outcome.unwrap_err().is_transient());
}

#[tokio::test]
async fn a_document_over_the_limit_is_refused_unread() {
    let server = Scripted::start(|_, _| ScriptedAnswer(format!("200 OK\r\nContent-Length: {}", MAX_DOCUMENT_BYTES + 1), Vec::new())).await;
    let (outcome, _) = download(&server, &http()).await;
    let error = outcome.unwrap_err();
    assert!(error.is_of_one_document() && error.to_string().contains("100 MiB"), "{error}");
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn json_that_would_swell_is_not_parsed() {
    let objects = |count| "{},".repeat(count);
    for (body, is_refused) in [
        (format!("[{}0]", objects(200_000)), true),
        (format!("[{}0]", objects(1_000)), false),
        (format!("[\"{}\"]", objects(200_000)), false),
    ] {
        let server = Scripted::start(move |_, _| ScriptedAnswer("200 OK".into(), body.clone().into_bytes())).await;
        let make = || Ok(SourceCall::get(server.url.parse().unwrap()));
        let outcome = http().json::<Value>(&make, &|refusal| refusal.other("")).await.map(drop);
        assert_eq!(outcome.is_err(), is_refused, "{outcome:?}");
        let told = outcome.map_err(|error| error.to_string()).err().unwrap_or_default();
        assert!(!is_refused || told.contains("64 MiB of memory"), "{told}");
    }
}

#[tokio::test]
async fn redirects_take_no_credentials_along_and_are_limited() {
    let elsewhere = Scripted::start(|_, _| ScriptedAnswer("200 OK".into(), b"file".to_vec())).await;
    let away = format!("302 Found\r\nLocation: {}/file", elsewhere.url);
    let server = Scripted::start(move |_, _| ScriptedAnswer::status(&away)).await;
    let make = || {
        let secret = reqwest::header::HeaderValue::from_static("Bearer abc");
        Ok(SourceCall::get(server.url.parse().unwrap()).header(reqwest::header::AUTHORIZATION, secret))
    };
    assert_eq!(http().bytes(&make, &|refusal| refusal.other("")).await.unwrap(), b"file");
    assert!(server.asked()[0].headers.contains_key("authorization"));
    assert!(!elsewhere.asked()[0].headers.contains_key("authorization"));

    let circle = Scripted::start(|_, _| ScriptedAnswer::status("302 Found\r\nLocation: /again")).await;
    assert!(get(&circle, &http()).await.unwrap_err().to_string().contains("redirects more than 3 times"));
    let inside = Scripted::start(|_, _| ScriptedAnswer::status("302 Found\r\nLocation: http://169.254.169.254/latest")).await;
    assert!(get(&inside, &http()).await.unwrap_err().to_string().contains("link-local"));
}

#[tokio::test]
async fn private_addresses_are_refused_unless_allowed() {
    let server = Scripted::start(|_, _| ScriptedAnswer("200 OK".into(), b"inside".to_vec())).await;
    let surroundings = Surroundings { allow: Vec::new(), ..Mounts::with(&[]).surroundings() };
    let error = get(&server, &Http::new(&surroundings, "endpoint")).await.unwrap_err();
    assert!(error.wrong_field() == Some("endpoint") && error.to_string().contains("127.0.0.1 is loopback"), "{error}");
    assert!(error.to_string().contains("agents.egressAllow"), "{error}");
    assert_eq!(server.asked().len(), 0);
}

#[tokio::test]
async fn the_same_page_twice_is_no_end() {
    struct Stuck;
    impl Source for Stuck {
        fn page<'a>(&'a self, _: Option<&'a PageToken>) -> Pending<'a, SourcePage> {
            Box::pin(async { Ok(SourcePage { next: Some(PageToken("x".into())), ..SourcePage::default() }) })
        }
        fn fetch<'a>(&'a self, _: &'a Item, _: &'a mut File) -> Pending<'a, Fetched> {
            Box::pin(async { Err(SourceError::gone("gone")) })
        }
    }
    let error = traversed(&Stuck).await.unwrap_err();
    assert!(error.to_string().contains("the same page"), "{error}");
}
