//! One history that is written and repacked while git clones it over HTTP and it is mirrored to a remote.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use slipway_api::mirror::{Remote, RemoteSettings};
use slipway_http::{Error, Request, ServerLimits};
use slipway_release::{Artifact, Metadata, Status};
use slipway_state::git::Git;
use slipway_state::history::{Author, Draft, History};
use slipway_state::mirror::{Mirror, Options, Rules};
use slipway_state::serve::{Serve, ServeLimits, place};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// However slow the readers are, the remote, which keeps every folder of every version in full, does not fill the disk.
const RELEASES_MAX: u32 = 1_000;

fn draft(agent: &str, number: u32) -> Draft {
    let mut artifact = Artifact {
        api_version: slipway_release::API_VERSION.to_owned(),
        kind: slipway_release::KIND.to_owned(),
        metadata: Metadata {
            name: agent.to_owned(),
            version: 0,
            previous: 0,
            author: "Ada".to_owned(),
            timestamp: Timestamp::from_second(1_800_000_000 + i64::from(number)).unwrap(),
            changelog: format!("change {number}"),
            checksum: String::new(),
            status: Status::Active,
            deleted_at: None,
        },
        runtime: slipway_release::Runtime::default(),
        agent: slipway_release::AgentBlock::default(),
        governance: slipway_release::Governance::default(),
        deployment: slipway_release::Deployment::default(),
        resolved: slipway_release::Resolved::default(),
    };
    "rest".clone_into(&mut artifact.runtime.channel);
    "agent-react".clone_into(&mut artifact.runtime.strategy);
    artifact.agent.system_prompt = Some(format!("You are number {number}. {}", "Be kind. ".repeat(20)));
    "team-a".clone_into(&mut artifact.deployment.namespace);
    let author = Author { name: "Ada".to_owned(), email: "ada@example.com".to_owned() };
    Draft { name: format!("{agent}-{number}"), artifact, author, manifest: Some("kind: Agent\n".to_owned()) }
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_the_mirror_get_whole_histories_while_releases_are_made() {
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("state");
    let child = Git::new("git", folder.path(), std::env::vars_os()).unwrap();
    let history = Arc::new(History::open(&state, child.clone()).unwrap());
    history.record("team-a", draft("helper", 0)).unwrap();

    let served = Serve::new(child.clone(), &state, ServeLimits::default());
    let handler = move |request: Request| {
        let served = served.clone();
        async move {
            let path = request.path().to_owned();
            let (namespace, rest) = path.strip_prefix("/state/").and_then(place).ok_or_else(|| Error::not_found("nothing"))?;
            served.answer(namespace, rest, request).await
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/state/team-a.git", listener.local_addr().unwrap());
    tokio::spawn(slipway_http::serve(listener, ServerLimits::default(), handler, std::future::pending()));

    let remotes = folder.path().join("remotes");
    fs::create_dir(&remotes).unwrap();
    git(&remotes, &["init", "-q", "--bare", "a.git"]);
    let remote = Remote::new(RemoteSettings { url: format!("file://{}/a.git", remotes.display()), ..RemoteSettings::default() }).unwrap();
    let (mirror, worker) = Mirror::new(child, Rules { files: Some(remotes.clone()), ..Rules::default() }, &state, Options::default());
    let (_settings, receiver) = watch::channel(Some(remote));
    let worker = tokio::spawn(worker.run(receiver, SystemTime::now, std::future::pending()));

    // Two agents of one team are written by threads of their own, until the readers have read enough.
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = ["helper", "other"]
        .map(|agent| {
            let (history, done, mirror) = (history.clone(), done.clone(), mirror.clone());
            spawn_blocking(move || {
                let mut number = 1;
                while !done.load(Ordering::SeqCst) && number < RELEASES_MAX {
                    history.record("team-a", draft(agent, number)).unwrap();
                    mirror.changed("team-a");
                    number += 1;
                    thread::sleep(Duration::from_millis(5));
                }
                number
            })
        })
        .into();
    let readers: Vec<_> = (0..2)
        .map(|reader| {
            let (url, folder) = (url.clone(), folder.path().to_owned());
            spawn_blocking(move || {
                let kept = folder.join(format!("kept-{reader}"));
                git(&folder, &["clone", "-q", &url, kept.to_str().unwrap()]);
                for round in 0..8 {
                    let fresh = folder.join(format!("fresh-{reader}-{round}"));
                    git(&folder, &["clone", "-q", &url, fresh.to_str().unwrap()]);
                    git(&fresh, &["fsck", "--strict"]);
                    git(&kept, &["pull", "-q", "--ff-only"]);
                    git(&kept, &["fsck", "--strict"]);
                    fs::remove_dir_all(fresh).unwrap();
                }
            })
        })
        .collect();
    for reader in readers {
        reader.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    let mut releases = 0;
    for writer in writers {
        releases += writer.await.unwrap();
    }
    history.wait_for_repacks();
    let head = history.head("team-a").unwrap().unwrap();
    assert!(releases > 50, "only {releases} releases were made meanwhile");

    let deadline = Instant::now() + Duration::from_secs(30);
    while !mirror.state("team-a").is_some_and(|state| state.is_in_sync() && state.theirs.as_deref() == Some(&head)) {
        assert!(Instant::now() < deadline, "the mirror should be at {head}: {:?}", mirror.state("team-a"));
        sleep(Duration::from_millis(20)).await;
    }
    let copy = remotes.join("a.git");
    assert_eq!(git(&copy, &["rev-parse", "team-a"]), head);
    git(&copy, &["fsck", "--strict"]);
    let last = folder.path().join("last");
    let (from, to) = (url.clone(), last.clone());
    spawn_blocking(move || git(Path::new("/"), &["clone", "-q", &from, to.to_str().unwrap()])).await.unwrap();
    assert_eq!(git(&last, &["rev-parse", "HEAD"]), head);
    let versions = git(&last, &["ls-files", "agents/helper/releases", "agents/other/releases"]).lines().count();
    assert_eq!(versions, usize::try_from(releases).unwrap() - 1, "the first of helper, and of each what its writer made");
    worker.abort();
}
