//! Git over https as many hosts offer it: `git http-backend` behind lighttpd, with a user and a token.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::git::{bare, succeed};
use crate::process::folder;
use crate::{Server, free_port, unpacked};

const USER: &str = "git";
const TOKEN: &str = "t0ken-of-the-remote";

/// A server of empty repositories that every holder of the token may push to. It redirects `/moved/…` to another host.
pub struct GitHttp {
    server: Server,
    port: u16,
}

impl GitHttp {
    pub fn start() -> GitHttp {
        GitHttp::start_on(free_port())
    }

    /// On a port that one had before it went down.
    pub fn start_on(port: u16) -> GitHttp {
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("git")).expect("a folder in a folder of ours");
        fs::write(at("server.pem"), &certificates()[1]).expect("a file in a folder of ours");
        fs::write(at("users"), format!("{USER}:{TOKEN}\n")).expect("a file in a folder of ours");
        let modules = unpacked::servers().join("usr/lib/lighttpd");
        let backend = succeed(Command::new("git").arg("--exec-path")).trim().to_owned() + "/git-http-backend";
        let config = format!(
            r#"server.document-root = "{root}"
server.bind = "127.0.0.1"
server.port = {port}
server.errorlog = "/dev/stderr"
server.modules = ( "mod_openssl", "mod_auth", "mod_authn_file", "mod_alias", "mod_setenv", "mod_redirect", "mod_cgi" )
ssl.engine = "enable"
ssl.pemfile = "{root}/server.pem"
auth.backend = "plain"
auth.backend.plain.userfile = "{root}/users"
url.redirect = ( "^/moved/(.*)" => "https://127.0.0.2:{port}/git/$1" )
alias.url = ( "/git" => "{backend}" )
$HTTP["url"] =~ "^/git/" {{
    auth.require = ( "" => ( "method" => "basic", "realm" => "git", "require" => "valid-user" ) )
    cgi.assign = ( "" => "" )
    setenv.add-environment = ( "GIT_PROJECT_ROOT" => "{root}/git", "GIT_HTTP_EXPORT_ALL" => "1", "GIT_CONFIG_NOSYSTEM" => "1",
        "GIT_CONFIG_GLOBAL" => "{root}/settings" )
}}
"#,
            root = folder.path().display(),
        );
        fs::write(at("settings"), "[safe]\n\tdirectory = *\n").expect("a file in a folder of ours");
        fs::write(at("lighttpd.conf"), config).expect("a file in a folder of ours");
        let mut command = unpacked::program("usr/sbin/lighttpd");
        command.arg("-D").arg("-f").arg(at("lighttpd.conf")).arg("-m").arg(modules);
        let server = Server::start_in(folder, &command, &format!("127.0.0.1:{port}"));
        GitHttp { server, port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// What signed the server's certificate, which is for 127.0.0.1, localhost and git.invalid (a name that nobody resolves).
    pub fn authority(&self) -> String {
        certificates()[0].clone()
    }

    /// Makes an empty repository. Hooks are shell scripts by name.
    pub fn repository(&self, name: &str, hooks: &[(&str, &str)]) -> PathBuf {
        bare(&self.server.folder().join("git").join(name), hooks)
    }

    pub fn url(&self, repository: &str) -> String {
        format!("https://127.0.0.1:{}/git/{repository}", self.port)
    }

    /// What the server complained of.
    pub fn log(&self) -> String {
        self.server.log()
    }
}

/// The authority's certificate, and the server's with its key: the same for all servers of a test, so that one that comes
/// back is still trusted.
fn certificates() -> &'static [String; 2] {
    static MADE: OnceLock<[String; 2]> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = folder();
        let openssl = |arguments: &str| {
            let mut command = Command::new("openssl");
            command.args(arguments.split(' ')).current_dir(folder.path());
            succeed(&mut command);
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
        openssl(&format!("req -x509 {key} -keyout authority.key -out authority.pem -subj /CN=authority"));
        openssl(&format!(
            "req -x509 {key} -keyout server.key -out server.crt -subj /CN=server -CA authority.pem -CAkey authority.key \
             -addext subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:git.invalid -addext basicConstraints=critical,CA:FALSE"
        ));
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("openssl wrote it");
        [read("authority.pem"), read("server.crt") + &read("server.key")]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_itself_can_push_there_with_the_token() {
        let remote = GitHttp::start();
        let repository = remote.repository("r.git", &[]);
        let folder = folder();
        let authority = folder.path().join("authority.pem");
        fs::write(&authority, remote.authority()).expect("a file");
        let push = |token: &str| {
            let script = "git init -q -b main w && cd w && git commit -q --allow-empty -m first && git push -q \"$1\" main";
            let mut command = Command::new("sh");
            command.args(["-c", script, "sh", &remote.url("r.git").replace("://", &format!("://git:{token}@"))]);
            command.current_dir(folder.path()).env("HOME", folder.path()).env("GIT_SSL_CAINFO", &authority).envs(crate::git::ALONE);
            let output = command.output().expect("git can be run");
            drop(fs::remove_dir_all(folder.path().join("w")));
            output
        };
        let wrong = push("wrong");
        assert!(!wrong.status.success() && remote.log().contains("password doesn't match"), "{}", remote.log());
        let right = push(remote.token());
        assert!(right.status.success(), "{}\n{}", String::from_utf8_lossy(&right.stderr), remote.log());
        succeed(Command::new("git").arg("-C").arg(&repository).args(["rev-parse", "--verify", "main"]));
    }
}
