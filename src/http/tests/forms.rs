//! Bodies that are read piece by piece, and forms in them, from clients that are slow, break off or send too much.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::fmt::Write as _;

use std::net::SocketAddr;
use std::time::Duration;

use slipway_http::multipart::{Form, FormPiece};
use slipway_http::{BodyLimits, Error, Reply, Request, ServerLimits, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const LIMITS: BodyLimits = BodyLimits { bytes: 100_000, pause: Duration::from_millis(400), total: Duration::from_millis(1500) };

async fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, ServerLimits::default(), answer, std::future::pending()));
    address
}

/// The number of bytes of the body, or name and number of bytes of each part of the form.
async fn answer(request: Request) -> Result<Reply, Error> {
    let headers = request.headers().clone();
    let is_form = request.path() == "/form";
    let mut body = request.into_body(LIMITS);
    if is_form {
        let mut form = Form::new(&headers, body)?;
        let told = parts(&mut form).await;
        if told.is_err() {
            form.discard().await;
        }
        return Ok(Reply::text(told?));
    }
    let mut length = 0;
    loop {
        match body.next().await {
            Ok(Some(piece)) => length += piece.len(),
            Ok(None) => return Ok(Reply::text(length.to_string())),
            Err(error) => {
                body.discard().await;
                return Err(error);
            }
        }
    }
}

async fn parts(form: &mut Form) -> Result<String, Error> {
    let (mut told, mut length) = (String::new(), 0);
    loop {
        match form.next().await? {
            FormPiece::Head(head) => {
                told += &head.name;
                length = 0;
            }
            FormPiece::Data(data) => length += data.len(),
            FormPiece::End => write!(told, "={length};").unwrap(),
            FormPiece::Finished => return Ok(told),
        }
    }
}

async fn begin(address: SocketAddr, path: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes)).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_body_is_read_piece_by_piece() {
    let address = start().await;
    let mut stream = begin(address, "/", "content-length: 30000").await;
    for _ in 0..3 {
        stream.write_all(&[b'x'; 10_000]).await.unwrap();
        sleep(Duration::from_millis(200)).await;
    }
    assert!(rest(stream).await.ends_with("\r\n\r\n30000"));
}

#[tokio::test]
async fn a_client_that_pauses_or_dawdles_is_refused() {
    let address = start().await;
    let mut paused = begin(address, "/", "content-length: 10").await;
    paused.write_all(b"x").await.unwrap();
    assert!(rest(paused).await.starts_with("HTTP/1.1 408"), "it paused");
    let mut dawdling = begin(address, "/", "content-length: 1000").await;
    let answer = loop {
        // Written to a connection that is answered already, a byte may be refused.
        if dawdling.write_all(b"x").await.is_err() {
            break rest(dawdling).await;
        }
        let mut head = [0; 12];
        if let Ok(Ok(12)) = timeout(Duration::from_millis(100), dawdling.read_exact(&mut head)).await {
            break String::from_utf8_lossy(&head).into_owned();
        }
    };
    assert!(answer.starts_with("HTTP/1.1 408"), "it took longer than in all it may: {answer}");
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_before_it_is_sent() {
    let address = start().await;
    let declared = begin(address, "/", "content-length: 100001\r\nexpect: 100-continue").await;
    assert!(rest(declared).await.starts_with("HTTP/1.1 413"));
    let mut chunked = begin(address, "/", "transfer-encoding: chunked").await;
    for _ in 0..11 {
        chunked.write_all(format!("2710\r\n{}\r\n", "x".repeat(10_000)).as_bytes()).await.unwrap();
    }
    chunked.write_all(b"0\r\n\r\n").await.unwrap();
    assert!(rest(chunked).await.starts_with("HTTP/1.1 413"));
}

#[tokio::test]
async fn a_form_is_read_whole_or_refused() {
    let address = start().await;
    let head = "content-disposition: form-data; name=file; filename=a";
    let whole = format!("--b\r\n{head}\r\n\r\n{}\r\n--b--\r\n", "y".repeat(50_000));
    let form = "content-type: multipart/form-data; boundary=b";
    for (body, expected) in [
        (whole.clone(), "file=50000;"),
        (whole.replace("--b--", "--c--"), "HTTP/1.1 400"),
        (whole[..20_000].to_owned(), "HTTP/1.1 400"),
        (whole.replacen("--b", "--x", 1), "HTTP/1.1 400"),
        (format!("--b\r\nx: {}", "z".repeat(60_000)), "HTTP/1.1 400"),
    ] {
        let mut stream = begin(address, "/form", &format!("{form}\r\ncontent-length: {}", body.len())).await;
        // What is refused early may not be read to its end.
        let _ = stream.write_all(body.as_bytes()).await;
        let answer = rest(stream).await;
        assert!(answer.contains(expected), "{body:.60}…: {answer}");
    }
    let other = begin(address, "/form", "content-type: text/plain\r\ncontent-length: 0").await;
    assert!(rest(other).await.starts_with("HTTP/1.1 415"));
}
