//! Git over ssh: OpenSSH's server, on loopback, for one user with one key.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::git::{bare, succeed};
use crate::process::{folder, is_root};
use crate::{Server, free_port, unpacked};

/// A root's server insists on a user and a folder of its own, which it gets where nobody else sees them.
const APART: &str = r#"
mount --bind "$1" /etc/passwd && mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd || exit
shift
exec "$@"
"#;

/// A server that runs until this is dropped. A client with the key becomes the user who runs the tests.
pub struct Sshd {
    server: Server,
    port: u16,
    user: String,
}

impl Sshd {
    pub fn start() -> Sshd {
        let folder = folder();
        let at = |name: &str| folder.path().join(name).display().to_string();
        for key in ["host", "client"] {
            succeed(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", key, "-f", &at(key)]));
        }
        fs::create_dir(at("git")).expect("a folder in a folder of ours");
        let port = free_port();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nUsePAM no\n\
             PermitUserEnvironment no\nAcceptEnv GIT_PROTOCOL\nPrintMotd no\nPrintLastLog no\n",
            at("host"),
            at("client.pub"),
        );
        fs::write(at("sshd_config"), config).expect("a file in a folder of ours");
        let program = unpacked::program("usr/sbin/sshd");
        let user = succeed(Command::new("id").arg("-un")).trim().to_owned();
        let mut command = if is_root() {
            let passwd = format!("root:x:0:0::{}:/bin/sh\nsshd:x:65534:65534::/:/usr/sbin/nologin\n", folder.path().display());
            fs::write(at("passwd"), passwd).expect("a file in a folder of ours");
            let mut command = Command::new("unshare");
            command.args(["--mount", "/bin/sh", "-c", APART, "sh", &at("passwd")]).arg(program.get_program());
            command
        } else {
            Command::new(program.get_program())
        };
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.args(["-D", "-e", "-f", &at("sshd_config")]);
        let server = Server::start_in(folder, &command, &format!("127.0.0.1:{port}"));
        Sshd { server, port, user }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The private key that opens it.
    pub fn key(&self) -> String {
        self.file("client")
    }

    /// The host's public key: type and key.
    pub fn host_key(&self) -> String {
        self.file("host.pub").split(' ').take(2).collect::<Vec<_>>().join(" ")
    }

    /// Makes an empty repository. Hooks are shell scripts by name.
    pub fn repository(&self, name: &str, hooks: &[(&str, &str)]) -> PathBuf {
        bare(&self.server.folder().join("git").join(name), hooks)
    }

    pub fn url(&self, repository: &str) -> String {
        format!("ssh://{}@127.0.0.1:{}{}/git/{repository}", self.user, self.port, self.server.folder().display())
    }

    pub fn log(&self) -> String {
        self.server.log()
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.server.folder().join(name)).expect("it was made at the start")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_itself_can_push_there_with_the_key() {
        let remote = Sshd::start();
        remote.repository("r.git", &[]);
        let folder = folder();
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::write(at("known_hosts"), format!("[127.0.0.1]:{} {}\n", remote.port(), remote.host_key())).expect("a file");
        succeed(Command::new("sh").args(["-c", "umask 077; cat >\"$1\" <<E\n$2\nE", "sh", &at("key"), &remote.key()]));
        let ssh = format!("ssh -F none -i {} -o UserKnownHostsFile={} -o StrictHostKeyChecking=yes", at("key"), at("known_hosts"));
        let script = "git init -q -b main w && cd w && git commit -q --allow-empty -m first && git push -q \"$1\" main";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", &remote.url("r.git")]).current_dir(folder.path());
        let output = command.env("GIT_SSH_COMMAND", ssh).envs(crate::git::ALONE).output().expect("git can be run");
        assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), remote.log());
    }
}
