//! Listening sockets.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;

/// The connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens at `address`. `[::]` means every IPv6 and IPv4 address, or every IPv4 address if the kernel has no IPv6.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let everywhere = address.ip() == Ipv6Addr::UNSPECIFIED;
    match Socket::new(Domain::for_address(address), Type::STREAM, None) {
        Ok(socket) => {
            if everywhere {
                socket.set_only_v6(false)?;
            }
            listening(&socket, address)?;
            TcpListener::from_std(socket.into())
        }
        Err(_) if everywhere => listen((Ipv4Addr::UNSPECIFIED, address.port()).into()),
        Err(error) => Err(error),
    }
}

fn listening(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // Binds despite connections of an earlier process in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)
}
