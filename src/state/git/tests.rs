use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use rustix::process::{Pid, test_kill_process};

use super::*;

const LIMITS: GitLimits = GitLimits { time: Duration::from_secs(20), bytes: 1 << 20 };

fn script(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("program");
    // A file that this process has open for writing is open in whatever a neighbouring test starts at that moment, and cannot be run.
    let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 700 \"$1\"";
    assert!(std::process::Command::new("/bin/sh").args(["-c", write, "sh"]).arg(&path).arg(text).status().unwrap().success());
    path
}

fn ours() -> Vec<(OsString, OsString)> {
    let given = [
        ("PATH", "/usr/bin:/bin"),
        ("https_proxy", ""),
        ("NO_PROXY", "*"),
        ("SSL_CERT_FILE", "/some/ca.crt"),
        ("DATABASE_URL", "postgres://u:hunter2@db/x"),
        ("GIT_SSL_NO_VERIFY", "1"),
        ("GIT_TRACE", "1"),
        ("LD_PRELOAD", "/x.so"),
    ];
    given.map(|(name, value)| (name.into(), value.into())).to_vec()
}

#[tokio::test]
async fn a_child_sees_nothing_of_our_environment_but_what_it_needs() {
    let folder = TempDir::new().unwrap();
    let git = Git::new(script(folder.path(), "env -0; pwd"), folder.path(), ours()).unwrap();
    let call = git.call(["x"]).unwrap().set("a.b", "c").trusting(Path::new("/r.git"));
    let private = call.folder().to_owned();
    let finished = call.run(LIMITS).await.unwrap();
    let seen: BTreeMap<&str, &str> = finished.stdout.as_str().split('\0').filter_map(|pair| pair.split_once('=')).collect();
    for (name, value) in
        [("PATH", "/usr/bin:/bin"), ("NO_PROXY", "*"), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_TERMINAL_PROMPT", "0"), ("LANG", "C")]
    {
        assert_eq!(seen.get(name), Some(&value), "{name}");
    }
    assert_eq!(seen.get("HOME"), private.to_str().as_ref());
    for absent in ["DATABASE_URL", "GIT_SSL_NO_VERIFY", "GIT_TRACE", "LD_PRELOAD", "SSL_CERT_FILE"] {
        assert!(!seen.contains_key(absent), "{absent}");
    }
    let count: usize = seen["GIT_CONFIG_COUNT"].parse().unwrap();
    let settings: BTreeMap<&str, &str> =
        (0..count).map(|n| (seen[&*format!("GIT_CONFIG_KEY_{n}")], seen[&*format!("GIT_CONFIG_VALUE_{n}")])).collect();
    for (key, value) in [
        ("a.b", "c"),
        ("safe.directory", "/r.git"),
        ("core.hooksPath", "/dev/null"),
        ("protocol.allow", "never"),
        ("http.sslCAInfo", "/some/ca.crt"),
    ] {
        assert_eq!(settings.get(key), Some(&value), "{key}");
    }
    assert!(!private.exists(), "the private folder goes with the child");
}

#[tokio::test]
async fn secrets_lie_in_files_that_others_cannot_read_and_are_removed() {
    let folder = TempDir::new().unwrap();
    let scratch = folder.path().join("slipway-git");
    fs::create_dir(&scratch).unwrap();
    fs::write(scratch.join("left by a process that was killed"), "hunter2").unwrap();
    let git = Git::new(script(folder.path(), "cat $GIT_CONFIG_GLOBAL; stat -c %a $GIT_CONFIG_GLOBAL . .."), folder.path(), ours()).unwrap();
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
    let call = git.call(["x"]).unwrap().secret_settings("[a]\n\tb = hunter2\n").unwrap().hiding(["hunter2".to_owned()]);
    let finished = call.run(LIMITS).await.unwrap();
    assert_eq!(finished.stdout.line(), "[a] b = *** 600 700 700");
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
}

#[tokio::test]
async fn limits_end_a_child_with_all_that_it_started() {
    let folder = TempDir::new().unwrap();
    let git = Git::new(script(folder.path(), "eval \"$1\""), folder.path(), ours()).unwrap();
    // Long enough for a shell to begin on a busy machine, and to write more than that.
    let short = GitLimits { time: Duration::from_secs(1), bytes: 1000 };
    let pids = folder.path().join("pids");
    let sleeper = format!("sleep 60 & echo $! >{0}; echo $$ >>{0}; sleep 60", pids.display());
    let began = Instant::now();
    assert_eq!(git.call([&sleeper]).unwrap().run(short).await.unwrap_err(), GitFault::Time(short.time));
    assert!(began.elapsed() < Duration::from_secs(5));
    let gone = |pid: &str| test_kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap()).is_err();
    let all_gone = || fs::read_to_string(&pids).unwrap().lines().all(gone);
    for _ in 0..100 {
        if all_gone() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(all_gone(), "{}", fs::read_to_string(&pids).unwrap());
    assert_eq!(git.call(["while :; do echo x; done"]).unwrap().run(short).await.unwrap_err(), GitFault::Output(1000));
    let fault = Git::new("/nowhere/git", folder.path().join("other"), ours()).unwrap().call(["x"]).unwrap().run(short).await.unwrap_err();
    assert!(fault.to_string().contains("/nowhere/git could not be started"), "{fault}");
}

#[tokio::test]
async fn a_repository_cannot_undo_what_is_set() {
    let folder = TempDir::new().unwrap();
    let git = Git::new("git", folder.path(), std::env::vars_os()).unwrap();
    let repository = folder.path().join("r.git");
    let made =
        git.call(["init", "--quiet", "--bare", "--template="]).unwrap().environment("GIT_DIR", &repository).run(LIMITS).await.unwrap();
    assert!(made.status.success(), "{made:?}");
    let config = "[core]\n\tbare = true\n\trepositoryformatversion = 0\n\thooksPath = /evil\n[http]\n\tfollowRedirects = true\n[protocol]\n\tallow = always\n";
    fs::write(repository.join("config"), config).unwrap();
    for (key, value) in [("core.hooksPath", "/dev/null"), ("http.followRedirects", "false"), ("protocol.allow", "never")] {
        let output = git.call(["config", key]).unwrap().within(&repository).run(LIMITS).await.unwrap();
        assert_eq!(output.stdout.line(), value, "{key}");
    }
}
