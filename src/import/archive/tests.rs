use std::io::Write;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::*;

fn archive(bytes: &[u8]) -> Archive {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"before").unwrap();
    file.write_all(bytes).unwrap();
    file.write_all(b"after").unwrap();
    Archive { file, start: 6, length: bytes.len() as u64 }
}

fn contents(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let archive = archive(bytes);
    let entries = archive.entries().map_err(|error| error.message().to_owned())?;
    entries.iter().map(|entry| Ok((entry.path.clone(), archive.read(entry).map_err(|error| error.message().to_owned())?))).collect()
}

/// One entry: its bytes in the archive, and the fields of its headers.
struct ZipEntry<'a> {
    name: &'a str,
    bytes: &'a [u8],
    mode: u32,
    method: u16,
    flags: u16,
    packed: Option<u32>,
    size: Option<u32>,
    crc: Option<u32>,
}

impl Default for ZipEntry<'_> {
    fn default() -> Self {
        Self { name: "a", bytes: b"x", mode: 0o100_644, method: 0, flags: 0, packed: None, size: None, crc: None }
    }
}

fn zip(entries: &[ZipEntry]) -> Vec<u8> {
    let (mut all, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let offset = u32::try_from(all.len()).unwrap();
        let length = u32::try_from(entry.bytes.len()).unwrap();
        let name = u16::try_from(entry.name.len()).unwrap().to_le_bytes();
        let mut crc = Crc::new();
        crc.update(entry.bytes);
        let numbers = [entry.crc.unwrap_or(crc.sum()), entry.packed.unwrap_or(length), entry.size.unwrap_or(length)];
        let mut shared = Vec::new();
        for two in [20, entry.flags, entry.method, 0, 0] {
            shared.extend_from_slice(&two.to_le_bytes());
        }
        for number in numbers {
            shared.extend_from_slice(&number.to_le_bytes());
        }
        shared.extend_from_slice(&name);
        shared.extend_from_slice(&[0, 0]);
        all.extend_from_slice(b"PK\x03\x04");
        all.extend_from_slice(&shared);
        all.extend_from_slice(entry.name.as_bytes());
        all.extend_from_slice(entry.bytes);
        directory.extend_from_slice(b"PK\x01\x02\x14\x03");
        directory.extend_from_slice(&shared);
        directory.extend_from_slice(&[0; 6]);
        directory.extend_from_slice(&(entry.mode << 16).to_le_bytes());
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(entry.name.as_bytes());
    }
    let (offset, size) = (u32::try_from(all.len()).unwrap(), u32::try_from(directory.len()).unwrap());
    let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
    all.extend_from_slice(&directory);
    all.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    all.extend_from_slice(&[count, count].concat());
    all.extend_from_slice(&size.to_le_bytes());
    all.extend_from_slice(&offset.to_le_bytes());
    all.extend_from_slice(&[0, 0]);
    all
}

/// An archive by Python's zipfile.
fn python(script: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (path, target) = (folder.path().join("make.py"), folder.path().join("made.zip"));
    std::fs::write(
        &path,
        format!("import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED)\n{script}\nz.close()\n"),
    )
    .unwrap();
    let done = slipway_peers::python(&path, &[target.to_str().unwrap()], &[]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::read(target).unwrap()
}

fn names(found: &[(String, Vec<u8>)]) -> Vec<&str> {
    found.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn archives_of_other_programs_are_read() {
    let long = "Übung ".repeat(5000);
    let made = python(&format!(
        "z.writestr('s/SKILL.md', {long:?})\nz.writestr('s/é.md', 'x')\nz.writestr('s/empty', '')\nz.mkdir('s/folder')\nz.comment = b'about PK\\x05\\x06 it'"
    ));
    let found = contents(&made).unwrap();
    assert_eq!(names(&found), ["s/SKILL.md", "s/é.md", "s/empty"]);
    assert_eq!(found[0].1, long.as_bytes());

    // Info-ZIP writes the lengths after the bytes if the input is a pipe.
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("s")).unwrap();
    std::fs::write(folder.path().join("s/SKILL.md"), &long).unwrap();
    let script = "zip -q -r x.zip s && printf 'piped %0300d' 1 | zip -q x.zip -";
    let done = Command::new("sh").args(["-c", script]).current_dir(folder.path()).status().unwrap();
    assert!(done.success());
    let found = contents(&std::fs::read(folder.path().join("x.zip")).unwrap()).unwrap();
    assert_eq!(names(&found), ["s/SKILL.md", "-"]);
    assert!(found[1].1.starts_with(b"piped 0000"));
}

#[test]
fn names_outside_of_the_archive_are_refused() {
    for name in [
        "../x",
        "a/../../x",
        "/etc/passwd",
        "a//b",
        "./../x",
        "..\\x",
        "a\\b",
        "C:/x",
        "c:x",
        "a/./b",
        "a\0b",
        "a\nb",
        "",
        "a/..",
        "//host/x",
        "./",
    ] {
        if name == "./" {
            assert_eq!(contents(&zip(&[ZipEntry { name, bytes: b"", ..ZipEntry::default() }])).unwrap(), []);
            continue;
        }
        let message =
            contents(&zip(&[ZipEntry { name, ..ZipEntry::default() }, ZipEntry { name: "ok", ..ZipEntry::default() }])).unwrap_err();
        assert!(message.contains("leads out"), "{name:?}: {message}");
    }
    for name in ["a/b-c_d.md", "./a/b", "..a/b..", "ü"] {
        assert!(contents(&zip(&[ZipEntry { name, ..ZipEntry::default() }])).is_ok(), "{name}");
    }
    let slipped = python("z.writestr('../../etc/cron.d/x', 'x')");
    assert!(contents(&slipped).unwrap_err().contains("leads out"));
}

#[test]
fn links_and_devices_are_recognised() {
    for (mode, kind) in [
        (0o100_755, FileKind::File),
        (0, FileKind::File),
        (0o120_777, FileKind::Other("a symbolic link")),
        (0o020_666, FileKind::Other("no plain file")),
        (0o010_666, FileKind::Other("no plain file")),
    ] {
        let found = archive(&zip(&[ZipEntry { mode, ..ZipEntry::default() }])).entries().unwrap();
        assert_eq!(found[0].kind, kind, "{mode:o}");
    }
    let linked = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/etc/passwd", linked.path().join("x")).unwrap();
    let done = Command::new("zip").args(["-q", "-y", "x.zip", "x"]).current_dir(linked.path()).status().unwrap();
    assert!(done.success());
    let found = archive(&std::fs::read(linked.path().join("x.zip")).unwrap()).entries().unwrap();
    assert_eq!(found[0].kind, FileKind::Other("a symbolic link"));
}

#[test]
fn bombs_are_refused_before_they_are_inflated() {
    let dense = python("z.writestr('zeros', b'\\0' * (300 << 20))");
    assert!(dense.len() < 1 << 20, "a bomb is small");
    assert!(contents(&dense).unwrap_err().contains("would expand"));
    let many = python("for i in range(10001): z.writestr(f'{i}', 'x')");
    assert!(contents(&many).unwrap_err().contains("more than 10000 entries"));

    // Two entries with the same bytes.
    let mut shared = zip(&[ZipEntry { name: "a", bytes: &[b'x'; 500], ..ZipEntry::default() }]);
    let directory = shared.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let end = shared.windows(4).position(|window| window == b"PK\x05\x06").unwrap();
    let entry = shared[directory..end].to_vec();
    shared.splice(end..end, entry.clone());
    let end = end + entry.len();
    (shared[end + 8], shared[end + 10], shared[end + 12]) = (2, 2, u8::try_from(2 * entry.len()).unwrap());
    assert!(contents(&shared).unwrap_err().contains("overlap"));

    let ratio = ZipEntry { method: 8, size: Some(2 << 20), packed: Some(1), ..ZipEntry::default() };
    assert!(contents(&zip(&[ratio])).unwrap_err().contains("times what it has"));
    let grown = ZipEntry { method: 8, size: Some(1), bytes: &[0; 4096], ..ZipEntry::default() };
    assert!(contents(&zip(&[grown])).unwrap_err().contains("4096 bytes for 1"));
}

#[test]
fn inconsistent_and_unsupported_archives_are_refused() {
    for (made, says) in [
        (ZipEntry { crc: Some(1), ..ZipEntry::default() }, "not what the directory says"),
        (ZipEntry { method: 8, bytes: b"\xff\xff\xff", size: Some(3), ..ZipEntry::default() }, "cannot be inflated"),
        (ZipEntry { method: 8, bytes: b"\x03\0", size: Some(3), ..ZipEntry::default() }, "not what the directory says"),
        // A stream of five bytes that declares fewer: no more is inflated than declared.
        (
            ZipEntry { method: 8, bytes: b"\x01\x05\0\xfa\xffabcde", size: Some(2), crc: Some(0), ..ZipEntry::default() },
            "not what the directory says",
        ),
        (ZipEntry { size: Some(7), ..ZipEntry::default() }, "stored or deflated"),
        (ZipEntry { method: 14, ..ZipEntry::default() }, "stored or deflated"),
        (ZipEntry { flags: 1, ..ZipEntry::default() }, "encrypted"),
        (ZipEntry { size: Some(u32::MAX), ..ZipEntry::default() }, "64-bit"),
        (ZipEntry { packed: Some(9999), size: Some(9999), ..ZipEntry::default() }, "overlap"),
    ] {
        let message = contents(&zip(&[made])).unwrap_err();
        assert!(message.contains(says), "{says}: {message}");
    }
    for (bytes, says) in [(&b""[..], "too short"), (b"PK\x03\x04", "too short"), (&[b'x'; 100], "no zip archive")] {
        assert!(contents(bytes).unwrap_err().contains(says), "{bytes:?}");
    }
    let whole = zip(&[ZipEntry::default()]);
    assert!(contents(&whole[..whole.len() - 1]).unwrap_err().contains("cut off"));
    assert!(contents(&whole[1..]).unwrap_err().contains("directory"), "its beginning is missing");
    let encrypted = Path::new("/usr/bin/zip");
    assert!(encrypted.exists(), "Info-ZIP is one of the programs that these tests need");
}

proptest! {
    #[test]
    fn any_bytes_are_an_archive_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = contents(&bytes);
    }

    #[test]
    fn a_corrupted_byte_causes_no_panic(at in 0_usize..200, value in any::<u8>(), cut in 0_usize..200) {
        let packed = b"\x4b\x04\0";
        let mut whole = zip(&[
            ZipEntry { name: "SKILL.md", bytes: b"text", ..ZipEntry::default() },
            ZipEntry { name: "b", bytes: packed, method: 8, size: Some(1), crc: Some(0xe8b7_be43), ..ZipEntry::default() },
        ]);
        let length = whole.len();
        whole[at % length] = value;
        let _ = contents(&whole);
        whole.truncate(length.saturating_sub(cut));
        let _ = contents(&whole);
    }

    #[test]
    fn any_archive_is_plain_files_below_a_folder_or_refused(
        made in proptest::collection::vec(
            (
                "([a-z]{1,3}|\\.\\.|\\.|/|\\\\|:|\0|é|SKILL.md){1,5}/?",
                proptest::collection::vec(any::<u8>(), 0..40),
                (prop_oneof![Just(0o100_644), Just(0o120_777), Just(0o040_755), Just(0), any::<u32>()], prop_oneof![4 => Just(0), 1 => any::<u16>()], prop_oneof![4 => Just(0), 1 => any::<u16>()]),
                proptest::option::weighted(0.2, any::<u32>()),
                proptest::option::weighted(0.2, any::<u32>()),
                proptest::option::weighted(0.1, any::<u32>()),
            ),
            0..4,
        ),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let entries: Vec<ZipEntry> = made
            .iter()
            .map(|(name, bytes, (mode, method, flags), packed, size, crc)| ZipEntry {
                name, bytes, mode: *mode, method: *method, flags: *flags, packed: *packed, size: *size, crc: *crc,
            })
            .collect();
        let mut whole = zip(&entries);
        for (at, byte) in damage {
            let at = at.index(whole.len());
            whole[at] = byte;
        }
        let archive = archive(&whole);
        let Ok(entries) = archive.entries() else { return Ok(()) };
        prop_assert!(entries.iter().map(|entry| entry.size).sum::<u64>() <= EXPANDED_BYTES_MAX);
        for entry in entries {
            let path = Path::new(&entry.path);
            prop_assert!(path.components().all(|part| matches!(part, std::path::Component::Normal(_))), "{:?}", entry.path);
            prop_assert!(!entry.path.contains(['\\', ':', '\0']));
            if let Ok(bytes) = archive.read(&entry) {
                prop_assert_eq!(bytes.len() as u64, entry.size);
            }
        }
    }
}
