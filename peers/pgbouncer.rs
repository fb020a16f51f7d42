//! PgBouncer before a PostgreSQL, in transaction mode: each transaction may run on another connection.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, os::unix::fs::chown};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{NOBODY, Process, folder, is_root};
use crate::{Postgres, free_port};

/// A pooler that runs until this is dropped. It asks the server for its users' passwords, so any user's URL works.
pub struct PgBouncer {
    // Before the folder: it is removed once nobody writes to it.
    _process: Process,
    _folder: TempDir,
    port: u16,
}

impl PgBouncer {
    pub fn start(postgres: &Postgres) -> PgBouncer {
        let folder = folder();
        let port = free_port();
        let config = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={}\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             pool_mode = transaction\n\
             default_pool_size = 4\n\
             auth_type = scram-sha-256\n\
             auth_file = users.txt\n\
             auth_user = postgres\n\
             auth_query = select usename, passwd from pg_shadow where usename = $1\n\
             ignore_startup_parameters = extra_float_digits\n",
            postgres.port()
        );
        for (name, text) in [("pgbouncer.ini", config.as_str()), ("users.txt", "\"postgres\" \"postgres\"\n")] {
            fs::write(folder.path().join(name), text).expect("a file in a folder of ours");
        }
        let user = is_root().then_some(NOBODY);
        chown(folder.path(), user, user).expect("the folder is ours to give away");
        let program = if Path::new("/usr/sbin/pgbouncer").exists() { "/usr/sbin/pgbouncer" } else { "pgbouncer" };
        let mut command = Command::new(program);
        command.arg("pgbouncer.ini");
        let mut process = Process::start(&command, folder.path(), user, Signal::QUIT);
        process.wait(Duration::from_secs(30), "taking a connection", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        PgBouncer { _process: process, _folder: folder, port }
    }

    pub fn url(&self, user: &str, password: &str, database: &str) -> String {
        format!("postgres://{user}:{password}@127.0.0.1:{}/{database}", self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::psql;

    #[test]
    fn a_session_does_not_outlive_its_transaction() {
        let postgres = Postgres::start();
        postgres.psql("create role reader login password 'secret'");
        let pooler = PgBouncer::start(&postgres);
        let url = pooler.url("reader", "secret", "postgres");
        assert_eq!(psql(&url, "select current_user").as_deref(), Ok("reader"));
        psql(&pooler.url("reader", "wrong", "postgres"), "select 1").expect_err("the password is wrong");

        // Six clients share four connections, which they could not if each kept one.
        let clients: Vec<_> =
            (0..6).map(|_| url.clone()).map(|url| std::thread::spawn(move || psql(&url, "select pg_backend_pid()"))).collect();
        let backends: std::collections::HashSet<_> =
            clients.into_iter().map(|client| client.join().expect("no panic").expect("an answer")).collect();
        assert!(backends.len() <= 4, "{backends:?}");
    }
}
