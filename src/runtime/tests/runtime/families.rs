//! Networks with IPv4, with IPv6, and with both.

use std::net::{TcpListener, TcpStream};
use std::process::Command;

use slipway_peers::skip;

use crate::support::{Runtime, binary, exchange};

/// A kernel without IPv6, to the program that is run: `socket` says that there is no such family of addresses.
const WITHOUT_IPV6: &str = r#"
import ctypes, os, platform, struct, sys
SOCKET = {"x86_64": 41, "aarch64": 198}[platform.machine()]
LOAD, JUMP_IF, RETURN, ALLOW, ERROR = 0x20, 0x15, 0x06, 0x7FFF0000, 0x50000
AF_INET6, EAFNOSUPPORT, NO_NEW_PRIVILEGES, SECCOMP, FILTER = 10, 97, 38, 22, 2
rules = [(LOAD, 0, 0, 0), (JUMP_IF, 0, 3, SOCKET), (LOAD, 0, 0, 16), (JUMP_IF, 0, 1, AF_INET6),
         (RETURN, 0, 0, ERROR | EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(rules), ctypes.addressof(code))
prctl = ctypes.CDLL(None, use_errno=True).prctl
for arguments in [(NO_NEW_PRIVILEGES, 1, 0, 0, 0), (SECCOMP, FILTER, ctypes.byref(program))]:
    if prctl(*arguments) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
os.execve(sys.argv[1], sys.argv[1:], {name: value for name, value in os.environ.items() if name.startswith("RUNTIME_")})
"#;

fn assert_answers(runtime: &Runtime, address: &str) {
    let stream = TcpStream::connect((address, runtime.port())).unwrap_or_else(|error| panic!("{address}: {error}"));
    let (head, _) = exchange(stream, "GET /healthz", "", "");
    assert!(head.starts_with("http/1.1 200"), "{address}: {head}");
}

#[test]
fn both_families_come_in() {
    let runtime = Runtime::start();
    assert_answers(&runtime, "127.0.0.1");
    if TcpListener::bind("[::1]:0").is_err() {
        return skip("this machine has no IPv6");
    }
    assert_answers(&runtime, "::1");
}

#[test]
fn a_kernel_without_ipv6_is_enough() {
    let mut command = Command::new("python3");
    command.args(["-c", WITHOUT_IPV6]).arg(binary().get_program());
    let runtime = Runtime::from(command, &[]);
    assert_answers(&runtime, "127.0.0.1");
    assert!(TcpStream::connect(("::1", runtime.port())).is_err(), "the kernel should have refused IPv6");
}
