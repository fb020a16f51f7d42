//! A foothold in a pod: the network as somebody sees it who has taken that pod over. Nothing runs in the pod, whose image
//! may have nothing to run: a thread of the test's enters its network namespace, so that what it sends leaves by the
//! pod's own wire and address. It takes root on the node.

use std::fs::{self, File};
use std::io::{self, Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

/// Where containerd keeps the networks of its pods.
const NETWORKS: &str = "/run/netns";
/// How long an answer may take that comes over no wire but the machine's own.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Foothold {
    pub address: Ipv4Addr,
    network: File,
}

impl Foothold {
    /// In this pod, as kubectl shows it.
    #[track_caller]
    pub fn of(pod: &Value) -> Self {
        let shown = pod["status"]["podIP"].as_str().and_then(|address| address.parse().ok());
        let address: Ipv4Addr = shown.unwrap_or_else(|| panic!("a pod with an IPv4 address is needed, not {pod:#}"));
        let networks =
            fs::read_dir(NETWORKS).unwrap_or_else(|e| panic!("{NETWORKS}, where the pods of this node have their networks: {e}"));
        // One that is on its way out can be opened, and not entered.
        let found = networks.flatten().filter_map(|entry| File::open(entry.path()).ok()).find(|network| {
            let own = within(network, own_address);
            matches!(own, Ok(Ok(own)) if own == address)
        });
        let network = found.unwrap_or_else(|| panic!("no network in {NETWORKS} has the address {address}: is the pod on this machine?"));
        Self { address, network }
    }

    /// Connects to this port, and hangs up.
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.act(|| TcpStream::connect_timeout(&to, ANSWER_TIMEOUT)).map(drop)
    }

    /// Asks this name server for the address of `name`; it must know one.
    pub fn look_up(&self, server: SocketAddr, name: &str) -> io::Result<()> {
        let answer = self.act(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            socket.connect(server)?;
            socket.send(&question(name))?;
            let mut answer = [0; 512];
            socket.recv(&mut answer).map(|length| answer[..length].to_vec())
        })?;
        // Behind the id come the flags, whose last four bits are the verdict, and how many questions and answers there are.
        match answer[..] {
            [_, _, _, flags, _, _, most, least, ..] if flags % 16 == 0 && (most, least) != (0, 0) => Ok(()),
            _ => Err(Error::other(format!("{server} knows no address of {name}: {answer:?}"))),
        }
    }

    /// A port that is open in the pod for as long as this is kept: connections are taken by the kernel.
    #[track_caller]
    pub fn listen(&self, at: impl Into<SocketAddr>) -> TcpListener {
        let at = at.into();
        self.act(|| TcpListener::bind(at)).unwrap_or_else(|e| panic!("{at} cannot be listened at in the pod {}: {e}", self.address))
    }

    /// Makes the pod the one to whom this address belongs.
    #[track_caller]
    pub fn take(&self, address: Ipv4Addr) {
        self.ip(&format!("address replace {address}/32 dev lo"));
    }

    /// Makes this address one that the pod finds on its wire.
    #[track_caller]
    pub fn find(&self, address: Ipv4Addr) {
        self.ip(&format!("route replace {address}/32 dev eth0"));
    }

    #[track_caller]
    fn ip(&self, line: &str) {
        let done = self.act(|| Command::new("ip").args(line.split(' ')).output());
        assert!(matches!(&done, Ok(done) if done.status.success()), "ip {line}, in the pod {}: {done:?}", self.address);
    }

    fn act<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        within(&self.network, act)?
    }
}

/// Done by a thread that is in this network, and ends there.
fn within<T: Send>(network: &File, act: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(act())
        });
        inside.join().unwrap_or_else(|_| Err(Error::from(ErrorKind::Other)))
    })
}

/// From where it would be sent: nothing is.
fn own_address() -> io::Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
    Ok(socket.local_addr()?.ip())
}

/// A question for the IPv4 address of a name, as RFC 1035 has it.
fn question(name: &str) -> Vec<u8> {
    let mut question = vec![0x51, 0x1d, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.extend(u8::try_from(label.len()));
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    question
}
