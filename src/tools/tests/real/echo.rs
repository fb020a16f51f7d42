//! A server that records its requests and always answers with the same bytes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub(crate) struct Echo {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    hung_up: Arc<Notify>,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy)]
enum Manner {
    Once,
    Endless,
    Silent,
}

impl Echo {
    pub(crate) async fn start(head: &'static str, body: &'static [u8]) -> Self {
        Self::listen(head, body, Manner::Once).await
    }

    pub(crate) async fn endless(head: &'static str, body: &'static [u8]) -> Self {
        Self::listen(head, body, Manner::Endless).await
    }

    pub(crate) async fn silent() -> Self {
        Self::listen("", b"", Manner::Silent).await
    }

    async fn listen(head: &'static str, body: &'static [u8], manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let hung_up = Arc::new(Notify::new());
        let (kept, hung) = (requests.clone(), hung_up.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, hung) = (kept.clone(), hung.clone());
                tokio::spawn(async move {
                    if serve(stream, head, body, manner, &kept).await.is_err() {
                        hung.notify_one();
                    }
                });
            }
        });
        Self { port, requests, hung_up, task }
    }

    pub(crate) fn last(&self) -> String {
        self.requests.lock().unwrap().last().cloned().expect("nobody asked anything")
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Resolves once a client has closed its connection during an answer.
    pub(crate) async fn hung_up(&self) {
        tokio::time::timeout(Duration::from_secs(10), self.hung_up.notified()).await.expect("the connection stayed open");
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, head: &str, body: &[u8], manner: Manner, kept: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = stream.read(&mut chunk).await?;
        request.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, sent)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(|length| length.parse::<usize>().unwrap()));
            if sent.len() >= length.unwrap_or_default() {
                kept.lock().unwrap().push(text);
                break;
            }
        }
        if count == 0 {
            return Ok(());
        }
    }
    match manner {
        Manner::Once => {
            let length = if head.starts_with("204") { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
            stream.write_all(format!("HTTP/1.1 {head}\r\n{length}Connection: close\r\n\r\n").as_bytes()).await?;
            stream.write_all(body).await
        }
        Manner::Endless => {
            stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
            loop {
                stream.write_all(&body.repeat(1000)).await?;
            }
        }
        Manner::Silent => {
            tokio::time::sleep(Duration::from_mins(1)).await;
            Ok(())
        }
    }
}
