//! Files that arrive whole, in pieces, or not at all.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use slipway_api::worker::UPLOAD_BYTES_MAX;
use slipway_peers::peak_memory;

use crate::support::{BASE, Platform, answer};

const PDF: &str = "x-filename: Gr%C3%B6%C3%9Fe.pdf\r\ncontent-type: application/pdf\r\n";

fn file(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

#[tokio::test]
async fn a_file_is_stored_in_parts_and_read_back() {
    let team = Platform::new().await.team("tk_a").await;
    let worker = team.worker();
    let sent = file(2 * 1024 * 1024 + 12_345);
    let (status, stored) = worker.upload(PDF, &sent);
    assert_eq!(status, 201, "{stored}");
    let (base, id) = (team.base(), stored["upload"].as_str().unwrap());
    let upload = base.upload(id).await.unwrap().unwrap();
    assert_eq!(
        (&*upload.filename, &*upload.content_type, upload.bytes, upload.complete),
        ("Größe.pdf", "application/pdf", sent.len() as u64, true)
    );
    let (mut read, mut lengths) = (Vec::new(), Vec::new());
    while let Some(part) = base.read_part(id, u32::try_from(lengths.len()).unwrap()).await.unwrap() {
        lengths.push(part.len());
        read.extend(part);
    }
    assert_eq!(lengths, [1 << 20, 1 << 20, 12_345]);
    assert!(read == sent, "the bytes are others");
    let (_, metrics) = worker.send("GET /metrics", "", b"");
    assert!(metrics.contains(&format!("slipway_worker_uploaded_bytes_total {}", sent.len())), "{metrics}");
}

#[tokio::test]
async fn a_file_that_breaks_off_leaves_nothing() {
    let platform = Platform::new().await;
    let team = platform.team("tk_a").await;
    let worker = team.worker();
    let mut stream = worker.connect();
    let head = format!("POST /knowledge-bases/{BASE}/uploads HTTP/1.1\r\nhost: w\r\ncontent-length: 9000000\r\n{PDF}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&file(3_000_000)).unwrap();
    let uploads = || platform.value("select count(*) from slipway.uploads");
    until("the upload has begun", || uploads() == "1");
    drop(stream);
    until("the upload is removed", || uploads() == "0");
    assert_eq!(platform.value("select count(*) from slipway.upload_parts"), "0");
}

#[tokio::test]
async fn what_is_no_file_is_refused() {
    let team = Platform::new().await.team("tk_a").await;
    let worker = team.worker();
    for (headers, body, status, word) in
        [("", &b"x"[..], 400, "x-filename"), ("x-filename: %2F\r\n", b"x", 400, "no name"), ("x-filename: a.pdf\r\n", b"", 400, "empty")]
    {
        let (found, refused) = worker.upload(headers, body);
        assert!(found == status && refused["message"].as_str().unwrap().contains(word), "{headers}: {found} {refused}");
    }
    let mut stream = worker.connect();
    let length = UPLOAD_BYTES_MAX + 1;
    let head =
        format!("POST /knowledge-bases/{BASE}/uploads HTTP/1.1\r\nhost: w\r\nconnection: close\r\ncontent-length: {length}\r\n{PDF}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(answer(stream).0, 413);
}

#[tokio::test]
async fn more_uploads_than_there_are_turns_are_all_stored() {
    let team = Platform::new().await.team("tk_a").await;
    let worker = team.worker();
    let sent = file(1_500_000);
    let stored: Vec<u16> = thread::scope(|scope| {
        let uploads: Vec<_> = (0..20).map(|_| scope.spawn(|| worker.upload(PDF, &sent).0)).collect();
        uploads.into_iter().map(|upload| upload.join().unwrap()).collect()
    });
    assert_eq!(stored, [201; 20]);
}

/// As many at once as may be, two of them as long as a file may be: what all hold together is what `uploads.rs` allows them.
#[tokio::test]
async fn files_of_any_length_pass_through_a_bounded_memory() {
    let platform = Platform::new().await;
    let team = platform.team("tk_a").await;
    let worker = team.worker();
    assert_eq!(worker.upload(PDF, b"first").0, 201);
    let before = peak_memory(worker.id());
    let largest = file(usize::try_from(UPLOAD_BYTES_MAX).unwrap());
    let lengths = [largest.len(), largest.len(), 20_000_000, 20_000_000, 20_000_000, 20_000_000, 20_000_000, 20_000_000];
    let stored = thread::scope(|scope| {
        let send = |length| worker.upload(PDF, &largest[..length]).0;
        let uploads = lengths.map(|length| scope.spawn(move || send(length)));
        uploads.map(|upload| upload.join().unwrap())
    });
    assert_eq!(stored, [201; 8]);
    assert_eq!(platform.value("select max(bytes) from slipway.uploads"), UPLOAD_BYTES_MAX.to_string());
    let grown = peak_memory(worker.id()) - before;
    assert!(grown <= 32 * 1024 * 1024, "{grown} bytes more");
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}: not within 20 s");
        thread::sleep(Duration::from_millis(50));
    }
}
