//! Servers that stop, hang, or never were.

use std::sync::Arc;
use std::time::{Duration, Instant};

use slipway_database::{Fault, Options, Store, Turn, migrate};
use slipway_peers::{Postgres, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::{Database, Raw, assistant, options, talk, user};

/// A question ends after 3.8 s, the 3 s included in which it waits for a connection. One whose waits were added up would take 6.8 s.
const PROMPT: Duration = Duration::from_millis(6_500);

async fn unavailable<T: std::fmt::Debug>(question: impl Future<Output = Result<T, Fault>>) -> String {
    let start = Instant::now();
    let outcome = question.await;
    assert!(start.elapsed() < PROMPT, "it took {:?} to say {outcome:?}", start.elapsed());
    match outcome {
        Err(Fault::Unavailable(words)) => words,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_stopped_server_is_told_of_soon_and_a_started_one_is_found_by_itself() {
    let postgres = Postgres::start();
    migrate(&postgres.url(), None, None).await.unwrap();
    let store = Store::open(&options(&postgres.url(), "a", "ag_1")).unwrap();
    let turn = Turn::new("conv_1");
    store.begin_turn(&turn, "t", user("q"), 0).await.unwrap();
    postgres.stop();
    let answer = assistant("a");
    for _ in 0..3 {
        unavailable(store.finish_turn(&turn, vec![answer.clone()])).await;
    }
    unavailable(store.history("conv_1", 10)).await;
    postgres.restart();
    store.finish_turn(&turn, vec![answer]).await.unwrap();
    assert_eq!(store.history("conv_1", 10).await.unwrap().len(), 2);
    // One that was away between two questions is not noticed at all.
    postgres.restart();
    assert_eq!(store.history("conv_1", 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_server_that_stops_in_the_middle_of_a_question_is_told_of_soon() {
    let postgres = Postgres::start();
    migrate(&postgres.url(), None, None).await.unwrap();
    let store = Arc::new(Store::open(&options(&postgres.url(), "a", "ag_1")).unwrap());
    talk(&store, "conv_1", "q", "a").await.unwrap();
    let mut busy = Raw::connect(&postgres.url()).await;
    busy.ask("begin; lock table slipway.messages in access exclusive mode").await.unwrap();
    let asking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.history("conv_1", 10).await }
    });
    let began = Instant::now();
    while busy.one("select count(*)::text from pg_locks where not granted").await == "0" {
        assert!(began.elapsed() < PROMPT && !asking.is_finished(), "the question should wait for the lock");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    postgres.stop();
    // Stopping is the server's own affair, and blocks this thread.
    unavailable(async { asking.await.unwrap() }).await;
    postgres.restart();
    assert_eq!(store.history("conv_1", 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_question_behind_a_lock_gives_up_and_its_connection_works_on() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    talk(&store, "conv_1", "q", "a").await.unwrap();
    let mut busy = database.raw(&database.url).await;
    busy.ask("begin; lock table slipway.messages in access exclusive mode").await.unwrap();
    let words = unavailable(store.history("conv_1", 10)).await;
    assert!(words.contains("lock"), "{words}");
    busy.ask("commit").await.unwrap();
    assert_eq!(store.history("conv_1", 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn questions_that_nobody_waits_for_any_more_cost_no_connection() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    talk(&store, "conv_1", "q", "a").await.unwrap();
    let mut busy = database.raw(&database.url).await;
    for _ in 0..10 {
        busy.ask("begin; lock table slipway.messages in access exclusive mode").await.unwrap();
        let given_up = tokio::time::timeout(Duration::from_millis(50), store.history("conv_1", 10)).await;
        assert!(given_up.is_err());
        busy.ask("commit").await.unwrap();
    }
    assert_eq!(store.history("conv_1", 10).await.unwrap().len(), 2);
    let login = database.login("a").await;
    let open: u32 =
        busy.one(&format!("select count(*)::text from pg_stat_activity where usename = '{}'", login.user)).await.parse().unwrap();
    assert!(open <= 2, "{open}");
}

/// Between a store and its server; while it hangs, connections are taken and nothing is passed on.
async fn link(server: u16) -> (u16, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (hang, hangs) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(pass(from_client, to_server, hangs.clone()));
            tokio::spawn(pass(from_server, to_client, hangs.clone()));
        }
    });
    (port, hang)
}

async fn pass(mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf, mut hangs: watch::Receiver<bool>) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        // What came while it hung is lost, as on a broken path.
        if *hangs.borrow_and_update() {
            std::future::pending::<()>().await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up_and_found_again() {
    let database = Database::migrated().await;
    let (port, hang) = link(crate::SERVER.port()).await;
    let url = format!("postgres://postgres:postgres@127.0.0.1:{port}/{}", database.name);
    let store = Store::open(&options(&url, "a", "ag_1")).unwrap();
    talk(&store, "conv_1", "q", "a").await.unwrap();
    hang.send(true).unwrap();
    let questions = futures::future::join_all((0..4).map(|_| unavailable(store.history("conv_1", 10)))).await;
    assert_eq!(questions.len(), 4);
    hang.send(false).unwrap();
    let start = Instant::now();
    while let Err(fault) = store.history("conv_1", 10).await {
        assert!(matches!(fault, Fault::Unavailable(_)), "{fault:?}");
        assert!(start.elapsed() < Duration::from_mins(2), "not found again: {fault:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_said_without_the_password() {
    let database = Database::migrated().await;
    let closed = format!("postgres://u:hunter2@127.0.0.1:{}/d", free_port());
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_url = format!("postgres://u:hunter2@{}/d", silent.local_addr().unwrap());
    for (url, sslmode, says) in [
        (closed, None, "no connection within 3 s"),
        (silent_url, None, "no connection within 3 s"),
        (database.url.replace("postgres:postgres@", "postgres:hunter2@"), None, "refused the login"),
        (database.url.replace(&database.name, "nowhere"), None, "no database of that name"),
        (database.url.clone(), Some("require"), "TLS"),
    ] {
        let options = Options { sslmode: sslmode.map(str::to_owned), ..options(&url, "a", "ag_1") };
        let words = unavailable(Store::open(&options).unwrap().ping()).await;
        assert!(words.contains(says) && !words.contains("hunter2"), "{says}: {words}");
    }
}
