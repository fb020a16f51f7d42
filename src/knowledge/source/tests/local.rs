use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

fn source(mounts: &Mounts, path: &str) -> Box<dyn Source> {
    mounts.open(json!({"type": "local", "path": path}))
}

fn make_fifo(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[tokio::test]
async fn files_are_listed_in_order_and_fetched() {
    let mounts = Mounts::with(&[]);
    for name in
        ["docs/b.txt", "docs/a/z.txt", "docs/a/ä.txt", "docs/a.txt", "docs/c d.txt", "docs/.hidden", "docs/.git/config", "other.txt"]
    {
        write(&mounts.volume(), name, name);
    }
    let source = source(&mounts, "/docs/");
    let (items, skipped, complete) = traversed(&*source).await.unwrap();
    assert_eq!(keys(&items), ["a.txt", "a/z.txt", "a/ä.txt", "b.txt", "c d.txt"]);
    assert_eq!((skipped, complete.items()), (vec![], 5));
    let item = &items["a/ä.txt"];
    assert_eq!((item.filename.as_str(), item.size), ("ä.txt", Some(13)));
    assert_eq!(content(&*source, item).await.unwrap(), "docs/a/ä.txt".as_bytes());
    assert_eq!(listed(&*source).await, items, "the same files have the same versions");
}

#[tokio::test]
async fn a_change_a_rename_and_a_deletion_are_seen() {
    let mounts = Mounts::with(&[]);
    for name in ["a.txt", "b.txt", "c.txt"] {
        write(&mounts.volume(), name, "one");
    }
    let source = source(&mounts, "/");
    let before = listed(&*source).await;
    write(&mounts.volume(), "a.txt", "two");
    std::fs::rename(mounts.volume().join("b.txt"), mounts.volume().join("d.txt")).unwrap();
    std::fs::remove_file(mounts.volume().join("c.txt")).unwrap();
    let after = listed(&*source).await;
    assert_eq!(keys(&after), ["a.txt", "d.txt"]);
    assert_ne!(before["a.txt"].version, after["a.txt"].version, "same size, other content");
    assert_eq!(before["b.txt"].version, after["d.txt"].version);
    assert_eq!(content(&*source, &before["c.txt"]).await.unwrap_err().kind(), SourceErrorKind::Gone);
}

#[tokio::test]
async fn nothing_leads_out_of_the_folder() {
    let mounts = Mounts::with(&[]);
    let (volume, outside) = (mounts.volume(), mounts.volume().parent().unwrap().join("outside"));
    write(&outside, "secret.txt", "secret");
    write(&volume, "docs/in.txt", "in");
    write(&volume, "beside.txt", "beside");
    for (target, name) in [
        (outside.join("secret.txt"), "absolute.txt"),
        ("../../outside/secret.txt".into(), "relative.txt"),
        ("../beside.txt".into(), "beside.txt"),
        (outside.clone(), "folder"),
        ("/proc/self/root/etc/passwd".into(), "magic.txt"),
        ("nowhere".into(), "nowhere.txt"),
        ("in.txt".into(), "inside.txt"),
        ("inside.txt".into(), "twice.txt"),
    ] {
        symlink(target, volume.join("docs").join(name)).unwrap();
    }
    make_fifo(&volume.join("docs/pipe"));
    let source = source(&mounts, "docs");
    let (items, skipped, _) = traversed(&*source).await.unwrap();
    assert_eq!(keys(&items), ["in.txt", "inside.txt", "twice.txt"]);
    assert_eq!(content(&*source, &items["twice.txt"]).await.unwrap(), b"in");
    let names: Vec<&str> = skipped.iter().map(|skipped| skipped.name.as_str()).collect();
    assert_eq!(names, ["absolute.txt", "beside.txt", "folder", "magic.txt", "nowhere.txt", "pipe", "relative.txt"]);
    // A key that is not from a list, or a file that has become a link since.
    for key in ["../beside.txt", "/etc/passwd", "absolute.txt", "folder/secret.txt", "relative.txt", "pipe", "../../outside/secret.txt"] {
        let item = Item { key: key.into(), ..items["in.txt"].clone() };
        let error = content(&*source, &item).await.expect_err(key);
        assert!(error.is_of_one_document(), "{key}: {error}");
    }
    for (path, says) in [("docs/folder", "leads out of the volume"), ("docs/in.txt", "no folder"), ("missing", "no such folder")] {
        let source = mounts.open(json!({"type": "local", "path": path}));
        let error = traversed(&*source).await.unwrap_err();
        assert!(error.wrong_field() == Some("path") && error.to_string().contains(says), "{path}: {error}");
    }
}

#[test]
fn without_openat2_links_are_refused() {
    let mounts = Mounts::with(&[]);
    write(&mounts.volume(), "a/b/c.txt", "c");
    symlink("b", mounts.volume().join("a/link")).unwrap();
    symlink("c.txt", mounts.volume().join("a/b/file")).unwrap();
    let root = crate::source::local::Root::open(&mounts.volume()).unwrap();
    for (path, expected) in [
        ("a/b/c.txt", true),
        ("a/link/c.txt", false),
        ("a/b/file", false),
        ("a/../a/b/c.txt", false),
        ("/etc/passwd", false),
        ("a//b/c.txt", false),
    ] {
        assert_eq!(root.part_by_part(path, rustix::fs::OFlags::RDONLY).is_ok(), expected, "{path}");
    }
}

#[tokio::test]
async fn pages_and_resuming_lose_and_repeat_nothing() {
    let mounts = Mounts::with(&[]);
    let mut expected = Vec::new();
    for folder in 0..7 {
        for file in 0..400 {
            let name = format!("f{folder}/x{file:03}.txt");
            write(&mounts.volume(), &name, "");
            expected.push(name);
        }
    }
    let source = source(&mounts, "/");
    let TraversalStep::Page { items, rest, .. } = Traversal::begin(&*source, "one").next().await.unwrap() else { panic!("no page") };
    assert_eq!(items.len(), 1000);
    // The traversal ends here; another one has its point, in JSON. The last file of the page is deleted meanwhile.
    let point = serde_json::to_string(rest.resume_point()).unwrap();
    std::fs::remove_file(mounts.volume().join(&items[999].key)).unwrap();
    let mut seen: Vec<String> = items.into_iter().map(|item| item.key).collect();
    let mut traversal = Traversal::resume(&*source, serde_json::from_str(&point).unwrap());
    let complete = loop {
        match traversal.next().await.unwrap() {
            TraversalStep::Page { items, rest, .. } => {
                seen.extend(items.into_iter().map(|item| item.key));
                traversal = rest;
            }
            TraversalStep::Complete(complete) => break complete,
        }
    };
    assert_eq!(seen, expected);
    assert_eq!((complete.traversal(), complete.items()), ("one", 2800));
}

#[tokio::test]
async fn a_folder_that_cannot_be_listed_ends_the_traversal() {
    // Root reads everything, so that a folder has to be one that nobody can list whole.
    let mounts = Mounts::with(&[]);
    std::fs::create_dir(mounts.volume().join("many")).unwrap();
    for file in 0..=100_000 {
        File::create(mounts.volume().join(format!("many/{file}"))).unwrap();
    }
    let error = traversed(&*source(&mounts, "/")).await.unwrap_err();
    assert!(error.to_string().contains("\"many\" has more than 100000 entries"), "{error}");
}

#[tokio::test]
async fn a_volume_that_vanishes_removes_nothing() {
    let mounts = Mounts::with(&[]);
    for file in 0..1500 {
        write(&mounts.volume(), &format!("docs/x{file:04}.txt"), "");
    }
    let source = source(&mounts, "docs");
    let TraversalStep::Page { rest, .. } = Traversal::begin(&*source, "one").next().await.unwrap() else { panic!("no page") };
    std::fs::rename(mounts.volume(), mounts.volume().with_file_name("away")).unwrap();
    let error = rest.next().await.err().expect("no page of a volume that is away");
    assert_eq!(error.wrong_field(), Some("path"), "{error}");
}

#[tokio::test]
async fn a_file_over_the_limit_is_refused_alone() {
    let mounts = Mounts::with(&[]);
    let file = File::create(mounts.volume().join("large.bin")).unwrap();
    file.set_len(MAX_DOCUMENT_BYTES + 1).unwrap();
    let source = source(&mounts, "/");
    let items = listed(&*source).await;
    let error = content(&*source, &items["large.bin"]).await.unwrap_err();
    assert!(error.is_of_one_document() && error.to_string().contains("larger than 100 MiB"), "{error}");
    file.set_len(MAX_DOCUMENT_BYTES).unwrap();
    let mut target = tempfile::tempfile().unwrap();
    assert_eq!(source.fetch(&items["large.bin"], &mut target).await.unwrap().bytes, MAX_DOCUMENT_BYTES);
}
