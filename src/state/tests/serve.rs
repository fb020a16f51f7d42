//! The real git reads what is served, over a real socket, and so do clients that misbehave.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use slipway_http::{Error, Request, ServerLimits, serve};
use slipway_state::git::Git;
use slipway_state::serve::{Serve, ServeLimits, place};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

struct Served {
    folder: TempDir,
    address: SocketAddr,
}

impl Served {
    async fn start(limits: ServeLimits) -> Served {
        Self::patient(limits, Duration::from_secs(2)).await
    }

    /// One that waits for the rest of a body for this long.
    async fn patient(limits: ServeLimits, body_timeout: Duration) -> Served {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        let git = Git::new("git", folder.path(), std::env::vars_os()).unwrap();
        let served = Serve::new(git, folder.path().join("state"), limits);
        let handler = move |request: Request| {
            let served = served.clone();
            async move {
                let path = request.path().to_owned();
                let found = path.strip_prefix("/state/").and_then(place);
                let (namespace, rest) = found.ok_or_else(|| Error::not_found("no repository is named"))?;
                served.answer(namespace, rest, request).await
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = ServerLimits { body_timeout, ..ServerLimits::default() };
        tokio::spawn(serve(listener, limits, handler, std::future::pending()));
        Served { folder, address }
    }

    /// A repository in which a shell script made commits.
    fn repository(&self, namespace: &str, script: &str) -> PathBuf {
        let path = self.folder.path().join("state").join(format!("{namespace}.git"));
        let script = format!("set -eu; git init -q -b main w; cd w; {script}; cd ..; git clone -q --bare w \"$1\"; rm -rf w");
        let output = run(Command::new("sh").args(["-c", &script, "sh"]).arg(&path).current_dir(self.folder.path()));
        assert!(output.status.success(), "{}", words(&output));
        path
    }

    fn url(&self, namespace: &str) -> String {
        format!("http://{}/state/{namespace}.git", self.address)
    }

    /// The real git, in the folder of the test.
    async fn git(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(self.folder.path());
        spawn_blocking(move || run(&mut command)).await.unwrap()
    }

    /// The processes that serve a repository, each with its command line.
    fn processes(&self) -> Vec<(OsString, String)> {
        let mine = self.folder.path().to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| Some((process.file_name(), fs::read(process.path().join("cmdline")).ok()?)));
        let lines = lines.map(|(pid, line)| (pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        lines.filter(|(_, line)| line.contains("upload-pack") && line.contains(mine) && !line.contains("clone")).collect()
    }

    fn children(&self) -> Vec<String> {
        self.processes().into_iter().map(|(_, line)| line).collect()
    }

    /// The processes that we started ourselves. One that git starts looks like git until it becomes another program.
    fn pids(&self, with: &str) -> BTreeSet<OsString> {
        let ours = format!("\nPPid:\t{}\n", std::process::id());
        let started =
            |pid: &OsString| fs::read_to_string(Path::new("/proc").join(pid).join("status")).is_ok_and(|status| status.contains(&ours));
        self.processes().into_iter().filter(|(pid, line)| line.contains(with) && started(pid)).map(|(pid, _)| pid).collect()
    }

    async fn is_alone(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        // A folder goes with its child.
        let folders = || fs::read_dir(self.folder.path().join("slipway-git")).unwrap().count();
        while !self.children().is_empty() || folders() > 0 {
            assert!(Instant::now() < deadline, "still there: {:?}, {} folders", self.children(), folders());
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn run(command: &mut Command) -> Output {
    let who = [("GIT_AUTHOR_NAME", "Ada"), ("GIT_AUTHOR_EMAIL", "a@b"), ("GIT_COMMITTER_NAME", "Ada"), ("GIT_COMMITTER_EMAIL", "a@b")];
    command.envs(who).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
    command.output().unwrap()
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

async fn send(address: SocketAddr, head: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("{head}\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    stream
}

async fn answer(address: SocketAddr, head: &str, body: &[u8]) -> String {
    let mut bytes = Vec::new();
    timeout(Duration::from_secs(20), send(address, head, body).await.read_to_end(&mut bytes)).await.unwrap().unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

const TEN: &str = "for n in 1 2 3 4 5 6 7 8 9 10; do echo $n >file; git add .; git commit -qm $n; done";
/// So much that neither sockets nor pipes can hold it.
const BIG: &str = "head -c 60000000 /dev/urandom >file; git add .; git commit -qm big";
const FETCH: &str = "POST /state/team-a.git/git-upload-pack HTTP/1.1\r\ncontent-type: application/x-git-upload-pack-request";

fn packet(line: &str) -> String {
    format!("{:04x}{line}", line.len() + 4)
}

fn head(repository: &Path) -> String {
    let output = run(Command::new("git").arg("-C").arg(repository).args(["rev-parse", "main"]));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Asks for everything, in the words of version 0.
fn everything(repository: &Path) -> String {
    packet(&format!("want {} side-band-64k no-progress\n", head(repository))) + "0000" + &packet("done\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn git_clones_and_fetches_in_each_version_of_the_protocol() {
    let served = Served::start(ServeLimits::default()).await;
    let repository = served.repository("team-a", TEN);
    for version in ["0", "1", "2"] {
        let protocol = format!("protocol.version={version}");
        let clone = served.git(&["-c", &protocol, "clone", "-q", &served.url("team-a"), version]).await;
        assert!(clone.status.success(), "{version}: {}", words(&clone));
        let log = served.git(&["-C", version, "log", "--format=%s"]).await;
        assert_eq!(words(&log).lines().count(), 10, "{version}");

        let shallow = format!("shallow-{version}");
        let clone = served.git(&["-c", &protocol, "clone", "-q", "--depth=3", &served.url("team-a"), &shallow]).await;
        assert!(clone.status.success(), "{version}: {}", words(&clone));
        assert_eq!(words(&served.git(&["-C", &shallow, "log", "--format=%s"]).await).lines().count(), 3, "{version}");
        let deepened = served.git(&["-C", &shallow, "-c", &protocol, "fetch", "-q", "--unshallow"]).await;
        assert!(deepened.status.success(), "{version}: {}", words(&deepened));
        assert_eq!(words(&served.git(&["-C", &shallow, "log", "--format=%s"]).await).lines().count(), 10, "{version}");
    }
    // More commits, which clones of before get by telling what they have.
    let more =
        "git clone -q \"$1\" more; cd more; for n in $(seq 300); do git commit -q --allow-empty -m $n; done; git push -q origin main";
    assert!(run(Command::new("sh").args(["-euc", more, "sh"]).arg(&repository).current_dir(served.folder.path())).status.success());
    for version in ["0", "1", "2"] {
        let protocol = format!("protocol.version={version}");
        let pull = served.git(&["-C", version, "-c", &protocol, "pull", "-q", "--ff-only"]).await;
        assert!(pull.status.success(), "{version}: {}", words(&pull));
        assert_eq!(words(&served.git(&["-C", version, "log", "--format=%s"]).await).lines().count(), 310, "{version}");
        let check = served.git(&["-C", version, "fsck", "--strict"]).await;
        assert!(check.status.success(), "{version}: {}", words(&check));
    }
    served.is_alone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_negotiation_comes_packed_and_is_understood() {
    let served = Served::start(ServeLimits::default()).await;
    // A clone that has a thousand commits which the server has not: it names them in bodies that git packs with gzip.
    let repository = served.repository("team-a", TEN);
    let clone = served.git(&["clone", "-q", &served.url("team-a"), "mine"]).await;
    assert!(clone.status.success(), "{}", words(&clone));
    let script = "for n in $(seq 1000); do git commit -q --allow-empty -m mine-$n; done";
    assert!(run(Command::new("sh").args(["-euc", script]).current_dir(served.folder.path().join("mine"))).status.success());
    let more = "git clone -q \"$1\" more; cd more; git commit -q --allow-empty -m theirs; git push -q origin main";
    assert!(run(Command::new("sh").args(["-euc", more, "sh"]).arg(&repository).current_dir(served.folder.path())).status.success());
    for version in ["0", "2"] {
        let mut fetch = Command::new("git");
        fetch.args(["-C", "mine", "-c", &format!("protocol.version={version}"), "fetch", "-q", "origin", "main"]);
        fetch.current_dir(served.folder.path()).env("GIT_CURL_VERBOSE", "1");
        let output = spawn_blocking(move || run(&mut fetch)).await.unwrap();
        assert!(output.status.success(), "{version}: {}", words(&output));
        // In version 2 git packs nothing.
        assert!(version == "2" || words(&output).to_lowercase().contains("content-encoding: gzip"), "nothing was packed");
        assert_eq!(words(&served.git(&["-C", "mine", "log", "-1", "--format=%s", "FETCH_HEAD"]).await).trim(), "theirs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_sent_writes() {
    let served = Served::start(ServeLimits::default()).await;
    let repository = served.repository("team-a", TEN);
    let before = head(&repository);
    let clone = served.git(&["clone", "-q", &served.url("team-a"), "c"]).await;
    assert!(clone.status.success(), "{}", words(&clone));
    served.git(&["-C", "c", "commit", "-q", "--allow-empty", "-m", "more"]).await;
    let push = served.git(&["-C", "c", "push", "origin", "main"]).await;
    // Git shows its user the words of the refusal.
    assert!(!push.status.success() && words(&push).contains("this repository is read-only"), "{}", words(&push));
    let post = "POST /state/team-a.git/git-receive-pack HTTP/1.1\r\ncontent-type: application/x-git-receive-pack-request";
    let update = packet(&format!("{before} {} refs/heads/main\0report-status", "0".repeat(40))) + "0000";
    let refusal = answer(served.address, post, update.as_bytes()).await;
    assert!(refusal.starts_with("HTTP/1.1 403"), "{refusal}");
    assert_eq!(head(&repository), before);
    served.is_alone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_reachable_from_a_branch_is_not_given_out_whatever_the_repository_says() {
    let served = Served::start(ServeLimits::default()).await;
    let repository = served.repository("team-a", TEN);
    let lost = ["commit-tree", "-m", "taken back", "main^{tree}"];
    let lost = words(&run(Command::new("git").arg("-C").arg(&repository).args(lost))).trim().to_owned();
    let ran = served.folder.path().join("ran");
    let hook = format!("touch {} #", ran.display());
    for (key, value) in [("uploadpack.allowAnySHA1InWant", "true"), ("uploadpack.packObjectsHook", &hook), ("core.hooksPath", "/tmp")] {
        assert!(run(Command::new("git").arg("-C").arg(&repository).args(["config", key, value])).status.success());
    }
    let wants = packet(&format!("want {lost} side-band-64k\n")) + "0000" + &packet("done\n");
    let refusal = answer(served.address, FETCH, wants.as_bytes()).await;
    assert!(refusal.contains("not our ref") && !refusal.contains("PACK"), "{refusal}");
    let given = answer(served.address, FETCH, everything(&repository).as_bytes()).await;
    assert!(given.contains("PACK"), "{given:.300}");
    assert!(!ran.exists(), "a hook ran");
    served.is_alone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_with_words() {
    let served = Served::start(ServeLimits { body: 10_000, ..ServeLimits::default() }).await;
    served.repository("team-a", TEN);
    served.repository("other", TEN);
    std::os::unix::fs::symlink(served.folder.path().join("state/other.git"), served.folder.path().join("state/team-link.git")).unwrap();
    fs::write(served.folder.path().join("state/team-file.git"), "").unwrap();
    let service = "info/refs?service=git-upload-pack";
    for (request, status, says) in [
        (format!("GET /state/team-b.git/{service}"), 404, "no such repository"),
        (format!("GET /state/team-link.git/{service}"), 404, "no such repository"),
        (format!("GET /state/team-file.git/{service}"), 404, "no such repository"),
        (format!("GET /state/..%2fteam-a.git/{service}"), 404, "no such repository"),
        (format!("GET /state/../team-a.git/{service}"), 404, ""),
        (format!("GET /state/.git/{service}"), 404, ""),
        (format!("GET /state/TEAM-A.git/{service}"), 404, "no such repository"),
        (format!("GET /state/--upload-pack=x.git/{service}"), 404, "no such repository"),
        ("GET /state/team-a.git/info/refs".into(), 403, "smart protocol"),
        ("GET /state/team-a.git/info/refs?service=git-evil".into(), 403, "smart protocol"),
        ("GET /state/team-a.git/HEAD".into(), 403, "smart protocol"),
        ("GET /state/team-a.git/objects/info/packs".into(), 403, "smart protocol"),
        ("GET /state/team-a.git/config".into(), 404, "nothing of that name"),
        ("GET /state/team-a.git/info/refs?service=git-receive-pack".into(), 403, "read-only"),
        (format!("POST /state/team-a.git/{service}"), 405, "allowed here: GET"),
        ("GET /state/team-a.git/git-upload-pack".into(), 405, "allowed here: POST"),
        ("POST /state/team-a.git/git-upload-pack".into(), 415, "application/x-git-upload-pack-request"),
    ] {
        let reply = answer(served.address, &format!("{request} HTTP/1.1"), b"").await;
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")) && reply.contains(says), "{request}: {reply}");
    }
    let long = "0".repeat(20_000);
    for (more, body, status) in [
        ("\r\ncontent-encoding: br", &b"0000"[..], 415),
        ("\r\ncontent-encoding: gzip", b"0000", 400),
        ("", long.as_bytes(), 413),
        // A flush alone, with which git tries whether it is let in.
        ("", b"0000", 200),
    ] {
        let reply = answer(served.address, &format!("{FETCH}{more}"), body).await;
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{more}: {reply}");
    }
    served.is_alone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_clients_at_once_are_all_served_by_few_children() {
    let served = Served::start(ServeLimits { children: 3, ..ServeLimits::default() }).await;
    served.repository("team-a", "head -c 3000000 /dev/urandom >file; git add .; git commit -qm big");
    let mut most = 0;
    let clones: Vec<_> = (0..20)
        .map(|n| {
            let mut command = Command::new("git");
            command.args(["clone", "-q", &served.url("team-a"), &n.to_string()]).current_dir(served.folder.path());
            spawn_blocking(move || run(&mut command))
        })
        .collect();
    while !clones.iter().all(tokio::task::JoinHandle::is_finished) {
        // Looking takes a while. What two looks in a row have seen was there together between them.
        let (before, after) = (served.pids("--stateless-rpc"), served.pids("--stateless-rpc"));
        most = most.max(before.intersection(&after).count());
        sleep(Duration::from_millis(5)).await;
    }
    for clone in clones {
        let output = clone.await.unwrap();
        assert!(output.status.success(), "{}", words(&output));
    }
    assert!((1..=3).contains(&most), "{most} at once");
    served.is_alone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_too_long_is_answered_with_503() {
    let served = Served::start(ServeLimits { children: 1, queue: Duration::from_millis(200), ..ServeLimits::default() }).await;
    let repository = served.repository("team-a", BIG);
    let mut slow = send(served.address, FETCH, everything(&repository).as_bytes()).await;
    slow.read_u8().await.unwrap();
    let busy = answer(served.address, "GET /state/team-a.git/info/refs?service=git-upload-pack HTTP/1.1", b"").await;
    assert!(busy.starts_with("HTTP/1.1 503") && busy.contains("retry-after: 5"), "{busy}");
    drop(slow);
    served.is_alone().await;
    let free = answer(served.address, "GET /state/team-a.git/info/refs?service=git-upload-pack HTTP/1.1", b"").await;
    assert!(free.starts_with("HTTP/1.1 200"), "{free}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_of_one_repository_leave_places_for_others() {
    let limits = ServeLimits { children: 3, of_one: 2, queue: Duration::from_millis(200), ..ServeLimits::default() };
    let served = Served::start(limits).await;
    let repository = served.repository("team-a", BIG);
    served.repository("team-b", TEN);
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut reader = send(served.address, FETCH, everything(&repository).as_bytes()).await;
        reader.read_u8().await.unwrap();
        slow.push(reader);
    }
    let refs = |team: &str| format!("GET /state/{team}.git/info/refs?service=git-upload-pack HTTP/1.1");
    let (own, other) = (answer(served.address, &refs("team-a"), b"").await, answer(served.address, &refs("team-b"), b"").await);
    assert!(own.starts_with("HTTP/1.1 503"), "{own}");
    assert!(other.starts_with("HTTP/1.1 200"), "{other}");
    drop(slow);
    served.is_alone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_slowly_holds_git_back_and_one_that_leaves_ends_it() {
    // As long as git is looked for, at least.
    let served = Served::patient(ServeLimits::default(), Duration::from_secs(30)).await;
    let repository = served.repository("team-a", BIG);
    let mut slow = send(served.address, FETCH, everything(&repository).as_bytes()).await;
    slow.read_u8().await.unwrap();
    sleep(Duration::from_millis(500)).await;
    let children = served.children();
    assert!(!children.is_empty(), "git waits for its reader");
    let mut rest = Vec::new();
    timeout(Duration::from_secs(30), slow.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(rest.len() > 60_000_000, "all of it comes in the end: {} bytes", rest.len());
    served.is_alone().await;

    let mut cut = send(served.address, FETCH, everything(&repository).as_bytes()).await;
    cut.read_u8().await.unwrap();
    drop(cut);
    served.is_alone().await;

    // One that leaves before it has said all.
    let mut half = TcpStream::connect(served.address).await.unwrap();
    half.write_all(format!("{FETCH}\r\nhost: a\r\ncontent-length: 100\r\n\r\n0032want").as_bytes()).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while served.children().is_empty() {
        assert!(Instant::now() < deadline, "no git was started");
        sleep(Duration::from_millis(10)).await;
    }
    drop(half);
    served.is_alone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_ends_who_reads_too_slowly_and_who_says_nothing() {
    let served = Served::start(ServeLimits { time: Duration::from_secs(1), ..ServeLimits::default() }).await;
    let repository = served.repository("team-a", BIG);
    let mut slow = send(served.address, FETCH, everything(&repository).as_bytes()).await;
    slow.read_u8().await.unwrap();
    sleep(Duration::from_millis(1500)).await;
    let mut rest = Vec::new();
    let ended = timeout(Duration::from_secs(10), slow.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.len() < 60_000_000, "it was cut: {ended:?} after {} bytes", rest.len());
    served.is_alone().await;

    let began = Instant::now();
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    silent.write_all(format!("{FETCH}\r\nhost: a\r\ncontent-length: 100\r\n\r\n0032want").as_bytes()).await.unwrap();
    let mut reply = String::new();
    timeout(Duration::from_secs(10), silent.read_to_string(&mut reply)).await.unwrap().unwrap();
    assert!(reply.starts_with("HTTP/1.1 504") || reply.starts_with("HTTP/1.1 408"), "{reply}");
    assert!(began.elapsed() < Duration::from_secs(5));
    served.is_alone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_left_dead_where_we_are_the_first_process() {
    // The first process of a container inherits git's orphans.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let served = Served::start(ServeLimits::default()).await;
    let repository = served.repository("team-a", BIG);
    for _ in 0..5 {
        let mut cut = send(served.address, FETCH, everything(&repository).as_bytes()).await;
        cut.read_u8().await.unwrap();
        drop(cut);
    }
    served.is_alone().await;
    let dead = || {
        let (me, group) = (std::process::id().to_string(), rustix::process::getpgrp().to_string());
        let stats = fs::read_dir("/proc").unwrap().flatten().filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
        let of_git = |stat: &str| {
            let (name, fields) = stat.rsplit_once(") ")?;
            let mut fields = fields.split(' ');
            let is_orphan = fields.next()? == "Z" && fields.next()? == me && name.contains("(git");
            // Git that tests run themselves is in our own group, and theirs to wait for.
            (is_orphan && fields.next()? != group).then(|| stat.to_owned())
        };
        stats.filter_map(|stat| of_git(&stat)).collect::<Vec<_>>()
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while !dead().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", dead());
        sleep(Duration::from_millis(50)).await;
    }
}
