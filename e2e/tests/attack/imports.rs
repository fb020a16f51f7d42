//! What an import from Git finds out: about REST, from within its process, and about the network, from its answers.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::json;
use slipway_e2e::attack::Installation;
use slipway_e2e::poll;
use slipway_peers::free_port;

/// What REST is told, and nobody else.
const PLANTED: [(&str, &str); 2] =
    [("SLIPWAY_DATABASE_URL", "postgres://rest:hunter2@127.0.0.1:1/slipway"), ("SLIPWAY_PLANTED", "hunter2")];

/// Says this to every client, and keeps the connection.
fn server(says: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut held: Vec<TcpStream> = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(says.as_bytes());
            held.push(stream);
        }
    });
    port
}

/// The processes of this one that are importing.
fn children(process: u32) -> Vec<u32> {
    let is_child = |id: &u32| {
        let read = |file: &str| fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default();
        read("status").lines().any(|line| line == format!("PPid:\t{process}")) && read("cmdline").split('\0').any(|word| word == "skill")
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

/// A developer makes REST talk to a server of theirs; a fault in what reads its answer would let them into that process.
#[test]
fn an_imports_process_knows_no_secret_of_rest() {
    let slipway = Installation::shared();
    let namespace = slipway.team("imports");
    let developer = slipway.member("imports-developer", "slipway-developer", &namespace);
    let port = server("");
    let allow = format!("127.0.0.1:{port}");
    let mut environment: Vec<(&str, &str)> = PLANTED.to_vec();
    environment.push(("SLIPWAY_IMPORT_ALLOW", &allow));
    let rest = slipway.rest(&environment);
    let source = json!({"source": format!("http://127.0.0.1:{port}/r")}).to_string();
    let mut asking = TcpStream::connect(rest.address()).unwrap();
    let head = format!(
        "POST /api/v1/skills/import HTTP/1.1\r\nHost: x\r\nX-Team: imports\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{source}",
        developer.token,
        source.len()
    );
    asking.write_all(head.as_bytes()).unwrap();
    let child = poll(15, || children(rest.id()).first().copied().ok_or_else(|| format!("no process imports: {}", rest.log())));
    let read = |file: &str| fs::read_to_string(format!("/proc/{child}/{file}")).unwrap();
    let (environment, line) = (read("environ"), read("cmdline"));
    assert!(!line.contains("hunter2") && line.contains(&allow), "{line}");
    let names: Vec<&str> = environment.split('\0').filter_map(|pair| Some(pair.split_once('=')?.0)).collect();
    let is_needed = |name: &&str| {
        let name = name.to_uppercase();
        matches!(&*name, "TMPDIR" | "SSL_CERT_FILE" | "SSL_CERT_DIR") || name.ends_with("_PROXY")
    };
    assert!(names.contains(&"TMPDIR") && names.iter().all(is_needed), "{names:?}");
}

/// The operator has allowed a network. Who imports from it names one address after the other, to learn which ports are open.
#[test]
fn an_imports_answer_does_not_tell_which_ports_are_open() {
    let slipway = Installation::shared();
    let namespace = slipway.team("imports-ports");
    let developer = slipway.member("imports-ports-developer", "slipway-developer", &namespace);
    let rest = slipway.rest(&[("SLIPWAY_IMPORT_ALLOW", "127.0.0.0/8")]);
    let ask = |url: &str| {
        let call = rest.call("POST", "/skills/import").header("X-Team", "imports-ports").token(&developer.token);
        let reply = call.json(&json!({"source": format!("{url}/r")})).send();
        (reply.status, reply.json()["message"].as_str().unwrap_or_default().replace(url, ""))
    };
    let closed = ask(&format!("http://127.0.0.1:{}", free_port()));
    assert_eq!(closed.0, 502, "{closed:?}");
    for says in
        ["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", "-ERR unknown command\r\n"]
    {
        assert_eq!(ask(&format!("http://127.0.0.1:{}", server(says))), closed, "{says}");
    }
    assert_eq!(ask("https://nobody-has-this-name.invalid"), closed, "nor which names there are");
    assert!(rest.log().contains("Connection refused"), "the log says what went wrong: {}", rest.log());
    assert_eq!(slipway.kubectl(format!("get skills -n {namespace} -o name")).ok(), "");
}
