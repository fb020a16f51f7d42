use std::sync::{Arc, LazyLock, Mutex};

use hyper_util::client::proxy::matcher::Matcher;
use slipway_peers::Git;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::proxy::ImportEgress;
use super::*;

const SKILL: &str = "printf -- '---\\nname: %s\\ndescription: d\\n---\\nRead.' ";

static GIT: LazyLock<Git> = LazyLock::new(|| {
    let git = Git::start();
    git.repository(
        "one",
        &format!("mkdir -p skills/forms/references; {SKILL} forms > skills/forms/SKILL.md; echo x > skills/forms/references/a.md; echo y > README.md; commit first; git tag -a v1 -m v1; git branch feature/x; echo z > skills/forms/b.md; commit second"),
    );
    git.repository(
        "many",
        &format!("mkdir -p s/a s/b s/c; {SKILL} a > s/a/SKILL.md; {SKILL} b > s/b/SKILL.md; echo x > s/c/x; ln -s /etc/passwd s/b/link; commit all"),
    );
    git.repository("empty", "true");
    git.repository("large", "head -c 3000000 /dev/urandom > noise; mkdir a; echo x > a/SKILL.md; commit all");
    git.repository("bomb", &format!("head -c 60000000 /dev/zero > zeros; {SKILL} a > SKILL.md; commit all"));
    // 3^4 paths, four folders deep, of one object.
    git.repository(
        "trees",
        "tree=$(git mktree < /dev/null); for i in $(seq 24); do
         tree=$(printf \"040000 tree $tree\\t%s\\n\" a b c | git mktree); done
         git update-ref refs/heads/main $(git commit-tree -m all $tree)",
    );
    git.repository(
        "names",
        "long=$(head -c 1000000 /dev/zero | tr '\\0' a); blob=$(echo x | git hash-object -w --stdin)
         tree=$(printf \"100644 blob $blob\\t%s\\n\" a b c | git mktree); tree=$(printf \"040000 tree $tree\\t$long\\n\" | git mktree)
         git update-ref refs/heads/main $(git commit-tree -m all $tree)",
    );
    git.repository(
        "history",
        &format!("for i in 1 2 3 4; do head -c 1000000 /dev/urandom > noise; commit $i; done; rm noise; {SKILL} a > SKILL.md; commit last"),
    );
    git
});

fn egress(allow: &[&str]) -> Egress {
    let allow: Vec<_> = allow.iter().map(|item| item.parse().unwrap()).collect();
    let nowhere = url::Url::parse("https://example.com").unwrap();
    ImportEgress::with_environment(&allow, Matcher::builder().build()).to(&nowhere).unwrap()
}

/// A proxy that resolves every name, for one connection at a time. Returns its address and the recorded requests.
async fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap().to_string(), Arc::new(Mutex::new(Vec::new())));
    let noted = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let noted = noted.clone();
            tokio::spawn(async move {
                let mut head = vec![0; 4096];
                let read = client.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                noted.lock().unwrap().push(head.clone());
                let mut server = tokio::net::TcpStream::connect(("127.0.0.1", GIT.port())).await.unwrap();
                server.write_all(head.replace("http://git.internal/", "/").as_bytes()).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, asked)
}

#[tokio::test]
async fn a_proxy_is_used_except_for_hosts_in_no_proxy() {
    let (address, asked) = proxy().await;
    let environment = Matcher::builder().http(format!("http://me:hunter2@{address}")).no("127.0.0.1").build();
    let allow = ["git.internal:80".parse().unwrap(), "127.0.0.0/8".parse().unwrap()];
    let out = ImportEgress::with_environment(&allow, environment);
    assert!(!format!("{out:?}").contains("hunter2"));
    let import = async |source: &str| {
        let source = SkillSource::parse(source, None, None).unwrap();
        files(&out.to(&source.repository).unwrap(), source, FetchLimits::default()).await
    };
    let found = import("http://git.internal/one//skills/forms?ref=v1").await.unwrap();
    assert_eq!(found.len(), 2);
    let heard = asked.lock().unwrap().clone();
    assert!(heard.iter().any(|head| head.contains("http://git.internal/one/info/refs")), "{heard:?}");
    assert!(heard.iter().all(|head| head.to_lowercase().contains("proxy-authorization: basic")), "{heard:?}");
    // Excepted hosts are reached directly, and forbidden addresses are refused with a proxy, too.
    assert_eq!(import(&GIT.url("one")).await.unwrap().len(), 3);
    let refused = import("http://169.254.169.254/one").await.unwrap_err();
    assert_eq!(refused.status().as_u16(), 400, "{refused:?}");
    assert_eq!(asked.lock().unwrap().len(), heard.len());
}

/// Imports from a host that the operator has allowed.
async fn import(source: &str, limits: FetchLimits) -> Result<Vec<(String, Vec<u8>)>, (u16, String)> {
    let url = url::Url::parse(source).unwrap();
    let host = format!("{}:{}", url.host_str().unwrap(), url.port_or_known_default().unwrap());
    import_where(&[&host], source, limits).await
}

async fn import_where(allow: &[&str], source: &str, limits: FetchLimits) -> Result<Vec<(String, Vec<u8>)>, (u16, String)> {
    let source = SkillSource::parse(source, None, None).unwrap();
    let done = files(&egress(allow), source, limits).await;
    done.map_err(|error| (error.status().as_u16(), error.message().to_owned()))
}

async fn paths(source: &str) -> Vec<String> {
    let files = import(source, FetchLimits::default()).await.unwrap();
    let mut paths: Vec<String> = files.into_iter().map(|(path, _)| path).collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn a_folder_of_a_branch_a_tag_or_a_commit_is_taken() {
    let url = GIT.url("one");
    assert_eq!(paths(&url).await, ["SKILL.md", "b.md", "references/a.md"], "the only skill is found");
    assert_eq!(paths(&format!("{url}//skills/forms")).await, ["SKILL.md", "b.md", "references/a.md"]);
    assert_eq!(paths(&format!("{url}/.git//skills/forms/SKILL.md?ref=v1")).await, ["SKILL.md", "references/a.md"]);
    assert_eq!(paths(&format!("{url}?ref=feature/x")).await, ["SKILL.md", "references/a.md"]);
    assert_eq!(paths(&format!("{url}?ref=refs/heads/main")).await.len(), 3);
    let files = import(&format!("{url}?ref=v1"), FetchLimits::default()).await.unwrap();
    let skill = folder::skill(files).unwrap();
    assert_eq!((skill.name.as_str(), skill.files["references/a.md"].as_str()), ("forms", "x\n"));
}

#[tokio::test]
async fn missing_and_ambiguous_skills_are_reported() {
    for (source, status, says) in [
        ("one?ref=v2", 400, "has no branch or tag v2"),
        ("one//skills/other", 400, "path: the repository has no folder skills/other"),
        ("one//README.md", 400, "path: the repository has no folder README.md"),
        ("many", 400, "there are 2 skills in it; say which by `path`: s/a, s/b"),
        ("many//s/c", 400, "no SKILL.md in s/c"),
        ("many//s/b", 400, "s/b/link is a symbolic link"),
        ("empty", 400, "the repository is empty"),
        ("nothing", 400, "has no repository /nothing that everybody may read"),
    ] {
        let (found, message) = import(&GIT.url(source), FetchLimits::default()).await.unwrap_err();
        assert!(found == status && message.contains(says), "{source}: {found} {message}");
    }
    assert_eq!(paths(&format!("{}//s/a", GIT.url("many"))).await, ["SKILL.md"], "another skill's link is not this one's matter");
}

#[tokio::test]
async fn imports_are_limited() {
    let limits = FetchLimits { bytes: 1 << 20, ..FetchLimits::default() };
    let (status, message) = import(&GIT.url("large"), limits).await.unwrap_err();
    assert!(status == 413 && message.contains("larger than 1 MiB"), "{status} {message}");
    // 4 MB of history are not transferred.
    assert_eq!(import(&GIT.url("history"), limits).await.unwrap().len(), 1);
    // 60 MB of zeros are transferred as some 60 kB, and not unpacked.
    let (status, message) = import(&GIT.url("bomb"), limits).await.unwrap_err();
    assert!(status == 413 && message.contains("a file of more than 32 MiB"), "{status} {message}");
    // 25 folders in 3^24 places, and three files whose paths have a million bytes each.
    for (name, says) in [("trees", "more than 20000 files and folders"), ("names", "longer than 4096 bytes")] {
        let begun = Instant::now();
        let (status, message) = import(&GIT.url(name), FetchLimits::default()).await.unwrap_err();
        assert!(status == 400 && message.contains(says), "{name}: {status} {message}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{name}: {:?}", begun.elapsed());
    }
}

/// Answers every request with `head`, and then hangs.
async fn server(head: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/r", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(head.as_bytes()).await;
                tokio::time::sleep(Duration::from_mins(1)).await;
            });
        }
    });
    url
}

#[tokio::test]
async fn servers_that_redirect_lie_or_stall_are_refused() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\nContent-Length: 100\r\n\r\n";
    let soon = FetchLimits { time: Duration::from_secs(2), ..FetchLimits::default() };
    for (head, status, says) in [
        (
            "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n",
            400,
            "redirects to another place, http://169.254.169.254",
        ),
        (
            "HTTP/1.1 301 Moved\r\nLocation: https://github.com/o/r\r\nContent-Length: 0\r\n\r\n",
            400,
            "redirects to another place, https://github.com",
        ),
        ("HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", 502, ""),
        ("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", 400, "that everybody may read"),
        ("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", 502, "status 500"),
        ("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi", 502, "does not answer as a Git server does"),
        ("nonsense\r\n\r\n", 502, "could not be reached"),
        ("", 504, "took too long"),
        (HEAD, 504, "took too long"),
    ] {
        let url = server(head).await;
        let (found, message) = import(&url, soon).await.unwrap_err();
        assert!(found == status && message.contains(says), "{head}: {found} {message}");
    }
}

/// Errors of hosts that are not public are all the same, even if a whole network is allowed.
#[tokio::test]
async fn errors_of_non_public_hosts_are_all_the_same() {
    let soon = FetchLimits { time: Duration::from_secs(2), ..FetchLimits::default() };
    let closed = format!("http://127.0.0.1:{}/r", slipway_peers::free_port());
    let mut places = vec![closed, "https://nobody-has-this-name.invalid/r".to_owned(), "https://127.0.0.1:1/r".to_owned()];
    for head in [
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: http://10.96.0.1/secret\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi",
        "SSH-2.0-OpenSSH\r\n",
        "",
    ] {
        places.push(server(head).await);
    }
    for place in places {
        let (status, message) = import_where(&["127.0.0.0/8"], &place, soon).await.unwrap_err();
        let shown = slipway_egress::redacted(&url::Url::parse(&place).unwrap());
        assert_eq!((status, message), (502, format!("{shown} could not be reached, is not public, or is no Git server; {ALLOW_HINT}")));
    }
    assert_eq!(import_where(&["127.0.0.0/8"], &GIT.url("one"), FetchLimits::default()).await.unwrap().len(), 3);
}

#[tokio::test]
async fn private_addresses_and_plain_http_need_an_exception() {
    let url = GIT.url("one");
    for (allow, source, says) in [
        (&[][..], url.as_str(), "must begin with https://"),
        (&[], "https://127.0.0.1/r", "127.0.0.1 is loopback. An operator can allow it in SLIPWAY_IMPORT_ALLOW"),
        (&[], "https://169.254.169.254/r", "link-local"),
        (&[], "https://metadata.google.internal/r", "metadata service"),
        (&[], "https://localhost/r", "loopback"),
        (&["10.0.0.0/8"], "http://127.0.0.1/r", "must begin with https://"),
        (&["127.0.0.0/8"], "http://example.com/r", "must begin with https://"),
    ] {
        let source = SkillSource::parse(source, None, None).unwrap();
        let error = files(&egress(allow), source.clone(), FetchLimits::default()).await.unwrap_err();
        assert!(error.status() == StatusCode::BAD_REQUEST && error.message().contains(says), "{source:?}: {}", error.message());
    }
}
