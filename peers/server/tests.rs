use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::*;
use crate::free_port;

fn web(port: u16) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()]);
    command
}

#[test]
fn a_server_answers_until_it_is_dropped_with_all_that_it_started() {
    let port = free_port();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("python3 -m http.server --bind 127.0.0.1 {port} & python3 -m http.server --bind 127.0.0.1 {port}; wait")]);
    let server = Server::start(command, &format!("http://127.0.0.1:{port}/nothing"));
    let folder = server.folder().to_owned();
    assert!(server.log().contains("/nothing"), "{}", server.log());
    drop(server);
    // What the server had started is nobody's child by then, so its end is not waited for.
    let free = || TcpListener::bind(("127.0.0.1", port)).is_ok();
    assert!(
        (0..50).any(|_| free() || {
            std::thread::sleep(Duration::from_millis(100));
            false
        }),
        "the port is free again"
    );
    assert!(!folder.exists());
}

#[test]
fn a_server_that_ends_is_told_with_its_last_words() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo there is no such port >&2; exit 3"]);
    let ready = format!("127.0.0.1:{}", free_port());
    let began = Instant::now();
    let panic = catch_unwind(AssertUnwindSafe(|| drop(Server::start(command, &ready)))).expect_err("nothing listens");
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.contains("exit status: 3") && message.contains("there is no such port"), "{message}");
    assert!(began.elapsed() < LIMIT, "it is told at once");
}

#[test]
fn a_killed_test_leaves_no_server() {
    // The test's own binary plays the test that is killed: it starts a server and waits for its end.
    let name = "server::tests::a_killed_test_leaves_no_server";
    if let Ok(port) = std::env::var("KILLED_TEST_PORT") {
        let port: u16 = port.parse().expect("a port");
        let _server = Server::start(web(port), &format!("127.0.0.1:{port}"));
        std::thread::sleep(LIMIT);
        return;
    }
    let port = free_port();
    let test = std::env::current_exe().expect("this binary");
    let mut victim = Command::new(test).args([name, "--exact"]).env("KILLED_TEST_PORT", port.to_string()).spawn().expect("a second one");
    let deadline = Instant::now() + LIMIT;
    let listens = || answers(&format!("127.0.0.1:{port}"));
    while !listens() {
        assert!(Instant::now() < deadline, "the victim's server never came up");
        std::thread::sleep(Duration::from_millis(20));
    }
    victim.kill().expect("it can be killed");
    victim.wait().expect("it ends");
    let deadline = Instant::now() + Duration::from_secs(10);
    while listens() {
        assert!(Instant::now() < deadline, "the server still listens");
        std::thread::sleep(Duration::from_millis(20));
    }
}
