//! A way from the node's address to a server that listens on the loopback of this machine, as most of other people's do.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::tools::on_the_node;

/// It stays until the test's process ends.
pub(super) struct Bridge(SocketAddr);

impl Bridge {
    /// To the server at this URL, `http://` with address and port. None where pods do not reach this machine.
    #[track_caller]
    pub(super) fn to(url: &str) -> Option<Self> {
        let behind: SocketAddr = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        let listener = TcpListener::bind(on_the_node()?).unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Nobody there any more: it is closed before it has begun.
                drop(join(client, behind));
            }
        });
        Some(Self(at))
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.0)
    }
}

fn join(client: TcpStream, behind: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect(behind)?;
    for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        thread::spawn(move || {
            drop(io::copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Write));
        });
    }
    Ok(())
}
