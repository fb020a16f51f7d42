//! Git requests to the state role, which has few slots for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use slipway_http::{Reply, Request, ServerLimits, serve};
use slipway_rest::{Authentication, StateSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::{Api, settings};

const FETCH: &str = "POST /state/a.git/git-upload-pack HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 4\r\n\r\n";

#[tokio::test]
async fn unfinished_requests_take_no_place_of_the_state_role() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let handler = move |request: Request| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { Ok(Reply::text(format!("{} bytes", request.bytes(100).await?.len()))) }
    };
    tokio::spawn(serve(listener, ServerLimits::default(), handler, std::future::pending()));
    let state = StateSettings { url: Some(url), token_file: None };
    let api = Api::start(slipway_rest::RestSettings { state, ..settings() }, Authentication::Off).await;
    let mut halves = Vec::new();
    for _ in 0..12 {
        let mut half = TcpStream::connect(api.address).await.unwrap();
        half.write_all(format!("{FETCH}000").as_bytes()).await.unwrap();
        halves.push(half);
    }
    sleep(Duration::from_millis(300)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 0, "the state role is not asked before a request is whole");
    let mut whole = halves.pop().unwrap();
    whole.write_all(b"0").await.unwrap();
    let mut answer = String::new();
    timeout(Duration::from_secs(10), whole.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("4 bytes"), "{answer}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
