//! The mirror against real remotes: git behind lighttpd over https, OpenSSH's server, folders; and against those that are
//! down, silent, elsewhere, or changed by somebody else.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what went wrong by panicking")]

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use slipway_api::mirror::{Credential, Remote, RemoteSettings};
use slipway_peers::{GitHttp, Sshd, free_port};
use slipway_state::git::Git;
use slipway_state::mirror::{Mirror, MirrorState, Options, ProbeResult, Rules, Trouble, probe};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

struct Local {
    folder: TempDir,
    git: Git,
    rules: Rules,
}

struct Running {
    mirror: Mirror,
    remote: watch::Sender<Option<Remote>>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Local {
    fn new() -> Local {
        let folder = TempDir::new().unwrap();
        for name in ["state", "remotes"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let git = Git::new("git", folder.path(), std::env::vars_os()).unwrap();
        let rules = Rules { allow: vec!["127.0.0.0/8".parse().unwrap()], files: Some(folder.path().join("remotes")) };
        Local { folder, git, rules }
    }

    fn repository(&self, namespace: &str) -> PathBuf {
        self.folder.path().join("state").join(format!("{namespace}.git"))
    }

    /// One more commit, and its id.
    fn commit(&self, namespace: &str) -> String {
        let repository = self.repository(namespace);
        if !repository.exists() {
            git(self.folder.path(), &["init", "-q", "--bare", "-b", "main", repository.to_str().unwrap()]);
        }
        committed(&repository, "main")
    }

    fn start(&self, remote: Option<Remote>) -> Running {
        self.start_with(remote, Options { settle: Duration::from_millis(20), ..Options::default() })
    }

    fn start_with(&self, remote: Option<Remote>, options: Options) -> Running {
        let (mirror, worker) = Mirror::new(self.git.clone(), self.rules.clone(), self.folder.path().join("state"), options);
        let (sender, receiver) = watch::channel(remote);
        let task = tokio::spawn(worker.run(receiver, SystemTime::now, std::future::pending()));
        Running { mirror, remote: sender, task }
    }

    async fn probe(&self, remote: &Remote) -> Result<ProbeResult, Trouble> {
        probe(&self.git, &self.rules, remote, "team-a").await
    }

    fn file(&self, name: &str) -> (PathBuf, Remote) {
        let path = self.folder.path().join("remotes").join(name);
        git(self.folder.path(), &["init", "-q", "--bare", "-b", "main", path.to_str().unwrap()]);
        let url = format!("file://{}", path.display());
        (path, Remote::new(RemoteSettings { url, ..RemoteSettings::default() }).unwrap())
    }
}

impl Running {
    async fn until(&self, namespace: &str, what: &str, holds: impl Fn(&MirrorState) -> bool) -> MirrorState {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let state = self.mirror.state(namespace);
            if let Some(state) = state.as_ref().filter(|state| holds(state)) {
                return state.clone();
            }
            assert!(Instant::now() < deadline, "{namespace} should be {what}, and is {state:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn in_sync(&self, namespace: &str, id: &str) -> MirrorState {
        self.until(namespace, &format!("in sync at {id}"), |state| state.is_in_sync() && state.theirs.as_deref() == Some(id)).await
    }

    async fn fault(&self, namespace: &str) -> Trouble {
        self.until(namespace, "at fault", |state| state.fault.is_some()).await.fault.unwrap().trouble
    }
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let who = [("GIT_AUTHOR_NAME", "Ada"), ("GIT_AUTHOR_EMAIL", "a@b"), ("GIT_COMMITTER_NAME", "Ada"), ("GIT_COMMITTER_EMAIL", "a@b")];
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*"]).args(arguments).current_dir(folder).envs(who).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A commit on top of a branch of a bare repository.
fn committed(repository: &Path, branch: &str) -> String {
    let branch = format!("refs/heads/{branch}");
    let tree = git(repository, &["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let parent = git(repository, &["for-each-ref", "--format=%(objectname)", &branch]);
    let mut arguments = vec!["commit-tree", "-m", "one more", &tree];
    if !parent.is_empty() {
        arguments.extend(["-p", &parent]);
    }
    let id = git(repository, &arguments);
    git(repository, &["update-ref", &branch, &id]);
    id
}

fn at(repository: &Path, branch: &str) -> String {
    git(repository, &["for-each-ref", "--format=%(objectname)", &format!("refs/heads/{branch}")])
}

fn https(server: &GitHttp, url: &str, token: &str) -> Remote {
    let settings = RemoteSettings {
        url: url.into(),
        token: Some(Credential::new(token)),
        authority: Some(server.authority()),
        ..RemoteSettings::default()
    };
    Remote::new(settings).unwrap()
}

fn ssh(server: &Sshd, url: &str, key: &str, host_key: &str) -> Remote {
    let known_hosts = Some(host_key.to_owned());
    Remote::new(RemoteSettings { url: url.into(), key: Some(Credential::new(key)), known_hosts, ..RemoteSettings::default() })
        .unwrap_or_else(|fault| {
            panic!("{fault}; {}", server.log());
        })
}

#[tokio::test]
async fn each_namespace_gets_its_branch_over_https_and_many_changes_become_few_pushes() {
    let (local, server) = (Local::new(), GitHttp::start());
    let count = local.folder.path().join("pushes");
    let there = server.repository("agents.git", &[("post-receive", &format!("echo x >>{}", count.display()))]);
    let (a, b) = (local.commit("team-a"), local.commit("team-b"));
    let remote = https(&server, &server.url("agents.git"), server.token());
    assert_eq!(local.probe(&remote).await, Ok(ProbeResult { branches: 0 }));
    let running = local.start(Some(remote.clone()));
    running.in_sync("team-a", &a).await;
    let state = running.in_sync("team-b", &b).await;
    assert!(state.last_success.unwrap() <= SystemTime::now());
    assert_eq!((at(&there, "team-a"), at(&there, "team-b")), (a, b));
    let before = fs::read_to_string(&count).unwrap().lines().count();
    let mut last = String::new();
    for _ in 0..50 {
        last = local.commit("team-a");
        running.mirror.changed("team-a");
        sleep(Duration::from_millis(5)).await;
    }
    running.in_sync("team-a", &last).await;
    assert_eq!(at(&there, "team-a"), last);
    let pushes = fs::read_to_string(&count).unwrap().lines().count() - before;
    assert!((1..25).contains(&pushes), "50 changes became {pushes} pushes");
    assert_eq!(local.probe(&remote).await, Ok(ProbeResult { branches: 2 }));
    // What nobody could have as a namespace is passed over.
    running.mirror.changed("../team-a");
    sleep(Duration::from_millis(100)).await;
    assert_eq!(running.mirror.states().into_keys().collect::<Vec<_>>(), ["team-a", "team-b"]);
}

#[tokio::test]
async fn a_name_is_connected_to_at_the_addresses_that_were_checked() {
    let (local, server) = (Local::new(), GitHttp::start());
    let there = server.repository("a.git", &[]);
    let id = local.commit("team-a");
    let url = server.url("{team}.git").replace("127.0.0.1", "localhost");
    let remote = https(&server, &url, server.token());
    let refused = local.probe(&remote).await.unwrap_err();
    assert!(refused.to_string().contains("localhost is not reachable for the mirror: it is a loopback name"), "{refused}");
    let mut local = local;
    local.rules.allow = vec![format!("localhost:{}", server.port()).parse().unwrap()];
    let running = local.start(Some(remote));
    running.in_sync("team-a", &id).await;
    assert_eq!(at(&there, "main"), id);
}

#[tokio::test]
async fn ssh_takes_the_right_key_and_the_right_host() {
    let (local, server) = (Local::new(), slipway_peers::sshd());
    let there = server.repository("agents.git", &[]);
    let other = slipway_peers::sshd();
    let url = server.url("agents.git");
    let right = ssh(&server, &url, &server.key(), &server.host_key());
    assert_eq!(local.probe(&right).await, Ok(ProbeResult { branches: 0 }), "{}", server.log());
    let impostor = local.probe(&ssh(&server, &url, &server.key(), &other.host_key())).await.unwrap_err();
    assert!(matches!(impostor, Trouble::HostKey(_)), "{impostor}");
    let stranger = local.probe(&ssh(&server, &url, &other.key(), &server.host_key())).await.unwrap_err();
    assert!(matches!(stranger, Trouble::Credentials(_)), "{stranger}");
    let nowhere = local.probe(&ssh(&server, &server.url("nothing.git"), &server.key(), &server.host_key())).await.unwrap_err();
    assert!(matches!(nowhere, Trouble::Missing(_)), "{nowhere}");

    let id = local.commit("team-a");
    let running = local.start(Some(right));
    running.in_sync("team-a", &id).await;
    assert_eq!(at(&there, "team-a"), id);
}

#[tokio::test]
async fn the_remote_may_change_and_go_while_it_runs() {
    let local = Local::new();
    let ((first, to_first), (second, to_second)) = (local.file("first.git"), local.file("second.git"));
    let id = local.commit("team-a");
    let running = local.start(None);
    running.mirror.changed("team-a");
    sleep(Duration::from_millis(200)).await;
    assert!(running.mirror.states().is_empty());
    running.remote.send(Some(to_first)).unwrap();
    running.in_sync("team-a", &id).await;
    assert_eq!(at(&first, "team-a"), id);
    let next = local.commit("team-a");
    running.remote.send(Some(to_second)).unwrap();
    running.in_sync("team-a", &next).await;
    assert_eq!((at(&first, "team-a"), at(&second, "team-a")), (id, next));
    running.remote.send(None).unwrap();
    while !running.mirror.states().is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn folders_are_written_to_only_where_that_is_allowed() {
    let local = Local::new();
    local.commit("team-a");
    let victim = local.repository("team-victim");
    let id = local.commit("team-victim");
    std::os::unix::fs::symlink(&victim, local.folder.path().join("remotes/link.git")).unwrap();
    let link = local.folder.path().join("remotes/link.git");
    for path in [&victim, &link, &PathBuf::from("/tmp/anything.git")] {
        let remote = Remote::new(RemoteSettings { url: format!("file://{}", path.display()), ..RemoteSettings::default() }).unwrap();
        let trouble = local.probe(&remote).await.unwrap_err();
        assert!(matches!(&trouble, Trouble::Forbidden(words) if words.contains("must lie in")), "{}: {trouble}", path.display());
        let running = local.start(Some(remote));
        assert!(matches!(running.fault("team-a").await, Trouble::Forbidden(_)));
    }
    assert_eq!(git(&victim, &["for-each-ref", "--format=%(objectname) %(refname)"]), format!("{id} refs/heads/main"));
    let mut none = Local::new();
    let (_, remote) = none.file("r.git");
    none.rules.files = None;
    assert!(none.probe(&remote).await.unwrap_err().to_string().contains("there is none"));
}

#[tokio::test]
async fn a_remote_that_was_down_is_caught_up_with() {
    let local = Local::new();
    let port = free_port();
    local.commit("team-a");
    let mut server = GitHttp::start_on(port);
    server.repository("agents.git", &[]);
    let remote = https(&server, &server.url("agents.git"), server.token());
    drop(server);
    let running = local.start(Some(remote));
    assert!(matches!(running.fault("team-a").await, Trouble::Unreachable(_)));
    let state = running.until("team-a", "tried again", |state| state.fault.as_ref().is_some_and(|fault| fault.attempts >= 2)).await;
    assert_eq!(state.behind, None, "it was never seen what the remote has");

    server = GitHttp::start_on(port);
    let there = server.repository("agents.git", &[]);
    let first = local.commit("team-a");
    running.mirror.changed("team-a");
    running.in_sync("team-a", &first).await;
    assert_eq!(at(&there, "team-a"), first);

    drop(server);
    let second = local.commit("team-a");
    running.mirror.changed("team-a");
    running.fault("team-a").await;
    local.commit("team-a");
    let third = local.commit("team-a");
    running.mirror.changed("team-a");
    let state = running.until("team-a", "three commits behind", |state| state.behind == Some(3)).await;
    assert_eq!((state.ours.as_deref(), state.theirs.as_deref()), (Some(third.as_str()), Some(first.as_str())));
    assert!(state.last_success.is_some() && !state.is_in_sync());
    let server = GitHttp::start_on(port);
    let there = server.repository("agents.git", &[]);
    running.in_sync("team-a", &third).await;
    assert_eq!(at(&there, "team-a"), third);
    assert_ne!(second, third);
}

#[tokio::test]
async fn what_the_remote_has_of_others_is_never_overwritten() {
    let (local, server) = (Local::new(), GitHttp::start());
    let there = server.repository("agents.git", &[]);
    let id = local.commit("team-a");
    let running = local.start(Some(https(&server, &server.url("agents.git"), server.token())));
    running.in_sync("team-a", &id).await;

    let foreign = committed(&there, "team-a");
    sleep(Duration::from_secs(1)).await;
    let ours = local.commit("team-a");
    assert_ne!(foreign, ours);
    running.mirror.changed("team-a");
    let trouble = running.fault("team-a").await;
    assert_eq!(trouble, Trouble::Diverged { branch: "team-a".into(), ours: ours.clone(), theirs: Some(foreign.clone()) });
    let words = trouble.to_string();
    assert!(words.contains(&ours) && words.contains(&foreign) && words.contains("delete or rename the branch"), "{words}");
    running.until("team-a", "tried again", |state| state.fault.as_ref().is_some_and(|fault| fault.attempts >= 2)).await;
    assert_eq!(at(&there, "team-a"), foreign);

    // As the words say.
    git(&there, &["branch", "-m", "team-a", "kept"]);
    running.in_sync("team-a", &ours).await;
    assert_eq!((at(&there, "team-a"), at(&there, "kept")), (ours, foreign));
}

#[tokio::test]
async fn a_refusal_is_reported_in_the_words_of_the_remote() {
    let (local, server) = (Local::new(), GitHttp::start());
    server.repository("hook.git", &[("pre-receive", "echo not on a Friday >&2; exit 1")]);
    let closed = server.repository("closed.git", &[]);
    git(&closed, &["config", "http.receivepack", "false"]);
    local.commit("team-a");
    let running = local.start(Some(https(&server, &server.url("hook.git"), server.token())));
    let trouble = running.fault("team-a").await;
    assert!(
        matches!(&trouble, Trouble::Declined(words) if words.contains("pre-receive hook declined") && words.contains("Friday")),
        "{trouble}"
    );
    for (path, token, expected) in [
        ("closed.git", server.token(), "give no right to write"),
        ("hook.git", "wr0ng-token", "does not take our credentials"),
        ("nothing.git", server.token(), "has no repository there"),
    ] {
        let remote = https(&server, &server.url(path), token);
        let trouble = local.probe(&remote).await.unwrap_err().to_string();
        assert!(trouble.contains(expected) && !trouble.contains(token), "{path}: {trouble}");
    }
    let untrusting =
        RemoteSettings { url: server.url("hook.git"), token: Some(Credential::new(server.token())), ..RemoteSettings::default() };
    let trouble = local.probe(&Remote::new(untrusting).unwrap()).await.unwrap_err();
    assert!(matches!(trouble, Trouble::Certificate(_)), "{trouble}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (local, server) = (Local::new(), GitHttp::start());
    let there = server.repository("agents.git", &[]);
    local.commit("team-a");
    let remote = https(&server, &server.url("agents.git").replace("/git/", "/moved/"), server.token());
    let trouble = local.probe(&remote).await.unwrap_err();
    assert!(matches!(trouble, Trouble::Redirected(_)), "{trouble}");
    let running = local.start(Some(remote));
    let trouble = running.fault("team-a").await;
    assert!(matches!(trouble, Trouble::Redirected(_)), "{trouble}");
    assert_eq!(at(&there, "team-a"), "");
}

#[tokio::test]
async fn a_remote_that_never_answers_ends_by_time_and_holds_up_nobody_else() {
    let local = Local::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://127.0.0.1:{}/agents.git", silent.local_addr().unwrap().port());
    local.commit("team-a");
    let remote = Remote::new(RemoteSettings { url, token: Some(Credential::new("t0ken")), ..RemoteSettings::default() }).unwrap();
    let time = Duration::from_secs(1);
    let running = local.start_with(Some(remote), Options { time, settle: Duration::ZERO, ..Options::default() });
    let began = Instant::now();
    let trouble = running.fault("team-a").await;
    assert!(matches!(trouble, Trouble::Git(slipway_state::git::GitFault::Time(_))), "{trouble}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // Reporting a change does not block.
    let began = Instant::now();
    for _ in 0..1000 {
        running.mirror.changed("team-a");
    }
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
}

#[tokio::test]
async fn places_where_nobody_may_go_are_refused() {
    let mut local = Local::new();
    local.rules.allow.clear();
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n-----END OPENSSH PRIVATE KEY-----\n";
    for host in
        ["127.0.0.1", "localhost", "169.254.169.254", "metadata.google.internal", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0"]
    {
        let https =
            RemoteSettings { url: format!("https://{host}/a.git"), token: Some(Credential::new("t0ken")), ..RemoteSettings::default() };
        let ssh = RemoteSettings {
            url: format!("ssh://git@{host}/a.git"),
            key: Some(Credential::new(key)),
            known_hosts: Some("ssh-ed25519 AAAA".into()),
            ..RemoteSettings::default()
        };
        for settings in [https, ssh] {
            let url = settings.url.clone();
            let trouble = local.probe(&Remote::new(settings).unwrap()).await.unwrap_err();
            assert!(matches!(&trouble, Trouble::Forbidden(words) if words.contains("state.mirror.allow")), "{url}: {trouble}");
        }
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// What this process logs, whichever test it is about: a subscriber of one thread would be passed over at random, as
    /// others decide whether anybody listens.
    fn of_all() -> Log {
        static LOG: OnceLock<Log> = OnceLock::new();
        let begun = || {
            let log = Log::default();
            let (writer, subscriber) = (log.clone(), tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false));
            tracing::subscriber::set_global_default(subscriber.with_writer(move || writer.clone()).finish()).unwrap();
            log
        };
        LOG.get_or_init(begun).clone()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// Command lines and environments of all that runs below us: what `ps` and anybody with our user id can see.
fn visible(of: &Path) -> Vec<String> {
    let mine = of.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|process| process.path());
    let both = processes.filter_map(|path| Some((fs::read(path.join("cmdline")).ok()?, fs::read(path.join("environ")).ok()?)));
    let texts = both.map(|(line, environment)| String::from_utf8_lossy(&[line, environment].concat()).replace('\0', "\n"));
    texts.filter(|text| text.contains(mine) && text.contains("GIT_TERMINAL_PROMPT")).collect()
}

#[tokio::test]
async fn secrets_are_not_seen_in_processes_logs_or_states_while_a_push_takes_its_time() {
    let log = Log::of_all();
    let (web, shell) = (GitHttp::start(), slipway_peers::sshd());
    let hooks = [("pre-receive", "sleep 1; echo $(cat) >&2; exit 1")];
    web.repository("agents.git", &hooks);
    shell.repository("agents.git", &hooks);
    let over_https = https(&web, &web.url("agents.git"), web.token());
    let over_ssh = ssh(&shell, &shell.url("agents.git"), &shell.key(), &shell.host_key());
    let encoded = {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(format!("git:{}", web.token()))
    };
    let key = shell.key();
    let mut secrets: Vec<&str> = key.lines().filter(|line| !line.starts_with("---")).collect();
    secrets.extend([web.token(), &encoded]);
    for (remote, programs) in [(over_https, ["push", "git-remote-https", "send-pack"]), (over_ssh, ["push", "ssh\n-F", "pack-objects"])] {
        let local = Local::new();
        local.commit("team-a");
        let running = local.start(Some(remote));
        let mut seen = Vec::new();
        let state = loop {
            let texts = visible(&local.folder.path().join("slipway-git"));
            for text in &texts {
                for secret in &secrets {
                    assert!(!text.contains(secret), "{text}");
                }
                seen.extend(programs.into_iter().filter(|program| text.contains(program)));
            }
            match running.mirror.state("team-a") {
                Some(state) if state.fault.is_some() => break state,
                _ => sleep(Duration::from_millis(2)).await,
            }
        };
        // The last of each is short-lived, and need not have been caught.
        assert!(programs[..2].iter().all(|program| seen.contains(program)), "{programs:?} were to be seen: {seen:?}");
        assert!(matches!(state.fault.as_ref().unwrap().trouble, Trouble::Declined(_)), "{state:?}");
        for secret in &secrets {
            assert!(!format!("{state:?}").contains(secret) && !log.text().contains(secret));
        }
        // Nor is it left on the disk.
        running.task.abort();
        let scratch = local.folder.path().join("slipway-git");
        let deadline = Instant::now() + Duration::from_secs(5);
        while fs::read_dir(&scratch).unwrap().count() > 0 {
            assert!(Instant::now() < deadline, "private folders are left");
            sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(log.text().contains("the mirror is behind"), "{}", log.text());
}
