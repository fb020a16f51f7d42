//! Free ports of the loopback address. They lie below the ephemeral range, where a client's connection could take one
//! between the look and the server's bind, and below the ports of clusters on the same machine.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{LazyLock, Mutex, PoisonError};

const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;

/// A port that nobody listens on, and that this process is not given twice.
pub fn free_port() -> u16 {
    static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
    for attempt in 0..1000_u16 {
        // Tests of several processes look at the same time, so each begins somewhere else.
        let offset = RandomState::new().hash_one((std::process::id(), attempt)) % u64::from(COUNT);
        let port = FIRST + u16::try_from(offset).expect("the remainder of a u16");
        let fresh = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port);
        if fresh && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST} to {} is free on 127.0.0.1", FIRST + COUNT - 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_can_be_bound() {
        let ports: HashSet<u16> = (0..50).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 50);
        // What a neighbouring test starts has the listener of the look, until it is another program.
        let mut tries = 0..400;
        for port in ports {
            while let Err(e) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                assert!(tries.next().is_some(), "a free port can be bound: {e}");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
}
