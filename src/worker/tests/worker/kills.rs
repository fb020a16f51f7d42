//! An ingestion that is killed at each of its stages and begun again: nothing is doubled, lost or stale. Where it is killed is
//! found by locks in the database that it waits for, by its subprocess, and by the time that it computes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use slipway_api::contract::UPLOADS;

use crate::ingesting::{Library, can_mount};

/// The number of chunks: enough for a second batch of embeddings while the document is still being read.
const PARAGRAPHS: usize = 110;

/// How a stage is recognised.
enum Sign {
    /// It waits for what this has locked since before it began.
    Lock(&'static str),
    /// It waits for what this locks, which can only be locked once a document is being written.
    LateLock(&'static str),
    /// It reads a document in its subprocess.
    Subprocess,
    /// It has computed for so long since it began to.
    Computing(Duration),
}

const STAGES: [(&str, Sign); 8] = [
    ("listing", Sign::Lock("select 1 from slipway.documents where key = 'same.md' for update")),
    ("extracting", Sign::Subprocess),
    ("embedding", Sign::Computing(Duration::from_millis(120))),
    ("storing", Sign::Lock("lock table slipway.CHUNKS in exclusive mode")),
    ("publishing a new document", Sign::LateLock("lock table slipway.documents in exclusive mode")),
    ("publishing a changed document", Sign::Lock("select 1 from slipway.documents where key = 'changed.md' for update")),
    ("removing", Sign::Lock("select 1 from slipway.documents where key = 'gone.md' for update")),
    ("indexing", Sign::Lock("lock table slipway.frequencies in exclusive mode")),
];

/// What is shown of each document, to the last vector.
const SHOWN: &str = "select string_agg(concat_ws(' ', d.key, d.filename, d.status, d.chunk_count, (
        select md5(string_agg(concat_ws(' ', c.ordinal, encode(c.hash, 'hex'), c.content, c.embedding is null), ',' order by c.ordinal))
        from slipway.CHUNKS c where c.revision = d.revision)), E'\\n' order by d.key)
    from slipway.documents d";
/// The new document, which is the last.
const WRITING: &str = "select count(*) from slipway.drafts where holder is not null
    and exists (select 1 from slipway.documents where key = 'changed.md' and updated_at > created_at)";
/// Documents whose chunks are not as many as they say.
const WRONG: &str = "select count(*) from slipway.documents d
    where d.chunk_count <> (select count(*) from slipway.CHUNKS c where c.revision = d.revision)";
/// Chunks that are no document's, and what is counted beside what is there.
const LEFT: &str = "select concat_ws(' ',
    (select count(*) from slipway.CHUNKS c where not exists (select 1 from slipway.documents d where d.revision = c.revision)),
    (select count(*) from slipway.drafts), (select count(*) from slipway.attempts), (select (documents, chunks) = (select count(*), sum(chunk_count) from slipway.documents) from slipway.contents))";

/// Documents that were begun without an end, and how often.
const ATTEMPTS: &str = "select string_agg(concat_ws(' ', key, attempts), ', ' order by key) from slipway.attempts";
const FAILED: &str = "select failed from slipway.ingestions where uid = 'two'";

#[tokio::test]
async fn a_kill_at_any_stage_doubles_and_loses_nothing() {
    if !can_mount() {
        return;
    }
    let undisturbed = prepared().await;
    undisturbed.succeeds("two");
    let expected = ask(&undisturbed, SHOWN);
    assert!(expected.lines().count() == 3 && expected.contains("new.md") && !expected.contains("gone.md"), "{expected}");
    for (stage, sign) in STAGES {
        let (library, before) = killed(stage, &sign).await;
        assert_eq!(ask(&library, WRONG), "0", "{stage}: half a document is shown");
        let shown = ask(&library, SHOWN);
        assert!(shown.lines().all(|line| before.contains(line) || expected.contains(line)), "{stage}: {shown}");
        // As if a minute had passed; the Job's next pod has the same ingestion.
        library.platform.value("update slipway.ingestions set heartbeat = now() - interval '61 s' where ended_at is null");
        library.succeeds("two");
        assert_eq!(ask(&library, SHOWN), expected, "{stage}");
        // What was begun and is shown by nobody goes once it has expired.
        library.platform.value("update slipway.drafts set expires_at = now()");
        library.succeeds("three");
        assert_eq!((ask(&library, SHOWN).as_str(), ask(&library, LEFT).as_str()), (&*expected, "0 0 0 t"), "{stage}");
        assert!(library.ended("three").starts_with("succeeded 0 0"), "{stage}: there was nothing left to do: {}", library.ended("three"));
    }
}

/// What is left of an ingestion that was killed at a stage, and what was shown before.
async fn killed(stage: &str, sign: &Sign) -> (Library, String) {
    // Some stages pass unseen now and then, where the machine is busy.
    for _ in 0..5 {
        let library = prepared().await;
        let before = ask(&library, SHOWN);
        let lock = sign.lock(&library);
        let mut process = library.start("two", &json!({}));
        let Ok(lock) = reached(&library, &mut process, stage, sign, lock) else { continue };
        process.kill().unwrap();
        process.wait().unwrap();
        drop(lock);
        return (library, before);
    }
    panic!("{stage}: it passed unseen each time");
}

#[tokio::test]
async fn a_document_that_ends_two_pods_fails_alone() {
    if !can_mount() {
        return;
    }
    let library = Library::new().await;
    for name in ["a.md", "bad.md"] {
        library.write(name, &format!("# {name}\n\nThe lid of {name} is on top.\n"));
    }
    library.succeeds("one");
    library.write("bad.md", "# Changed\n\nThe lid is below now, and its screws are beside it.\n");
    // It comes after the bad one.
    library.write("z.md", "# Pumps\n\nThe filter is below the lid.\n");
    let documents = || {
        let line = "concat_ws(' ', filename, status, (chunk_count > 0)::text)";
        library.platform.value(&format!("select string_agg({line}, ', ' order by filename) from slipway.documents"))
    };
    end_at(&library, "bad.md", "-KILL");
    assert_eq!(documents(), "a.md ready true, bad.md ready true");
    end_at(&library, "bad.md", "-KILL");
    assert_eq!(documents(), "a.md ready true, bad.md ready true, z.md ready true", "it is read last");
    library.succeeds("two");
    let ended = library.ended("two");
    assert!(ended.starts_with("succeeded 0 0 reading it ended the ingestion's pod twice"), "{ended}");
    let expected = "a.md ready true, bad.md error true, z.md ready true";
    assert_eq!((library.platform.value(FAILED), documents().as_str()), ("1".to_owned(), expected), "what was indexed of it before stays");

    // By schedule it is not read again as it is; for somebody who asks it is.
    let output = library.ingest("three", &json!({"scheduled": true}));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(library.ended("three").starts_with("succeeded 0 0 reading it ended"), "{}", library.ended("three"));
    assert_eq!((library.platform.value(ATTEMPTS).as_str(), documents().as_str()), ("bad.md 2", expected));
    library.succeeds("four");
    assert_eq!(library.ended("four"), "succeeded 1 0");
    assert_eq!((library.platform.value(ATTEMPTS).as_str(), documents().as_str()), ("", &*expected.replace("error", "ready")));
}

#[tokio::test]
async fn pods_that_end_for_other_reasons_fail_no_document() {
    const NAMES: [&str; 3] = ["a.md", "b.md", "c.md"];
    if !can_mount() {
        return;
    }
    let library = Library::new().await;
    let write = |words: &str| {
        for name in NAMES {
            library.write(name, &format!("# {name}\n\nThe lid of {name} is {words}.\n"));
        }
    };
    write("on top");
    library.succeeds("one");
    write("below now, and its screws are beside it");
    // A node that is drained says so.
    for _ in 0..3 {
        end_at(&library, "a.md", "-TERM");
        assert_eq!(library.platform.value(ATTEMPTS), "");
    }
    // One that fails does not, whatever is being read. What was is read last.
    for (name, attempts) in [("a.md", "a.md 1"), ("b.md", "a.md 1, b.md 1"), ("c.md", "a.md 1, b.md 1, c.md 1")] {
        end_at(&library, name, "-KILL");
        assert_eq!(library.platform.value(ATTEMPTS), attempts);
    }
    library.succeeds("two");
    assert_eq!((library.ended("two").as_str(), library.platform.value(FAILED).as_str()), ("succeeded 3 0", "0"));
    assert_eq!(library.platform.value(ATTEMPTS), "");
}

/// Ends an ingestion by a signal while it has read a document that was there before, and not stored it yet.
fn end_at(library: &Library, key: &str, signal: &str) {
    let lock = Session::lock(library, &format!("select 1 from slipway.documents where key = '{key}' for update"));
    let mut process = library.start("two", &json!({}));
    let Ok(lock) = reached(library, &mut process, key, &Sign::Lock(""), Some(lock)) else { panic!("{key}: it ended before") };
    assert!(Command::new("kill").args([signal, &process.id().to_string()]).status().unwrap().success());
    assert!(!process.wait().unwrap().success(), "{key}");
    drop(lock);
    library.platform.value("update slipway.ingestions set heartbeat = now() - interval '61 s' where ended_at is null");
}

#[tokio::test]
async fn an_upload_killed_while_it_is_fetched_is_ingested_after_all() {
    if !can_mount() {
        return;
    }
    let library = Library::new().await;
    let worker = library.team.worker();
    let (_, stored) = worker.upload("x-filename: pump.md\r\n", b"# Pumps\n\nThe filter is below the lid.\n");
    let upload = json!({"source_name": UPLOADS, "source": null, "upload": stored["upload"]});
    let sign = Sign::Lock("lock table slipway.upload_parts in access exclusive mode");
    let lock = sign.lock(&library);
    let mut process = library.start("two", &upload);
    let Ok(lock) = reached(&library, &mut process, "fetching", &sign, lock) else { panic!("it ended before") };
    process.kill().unwrap();
    process.wait().unwrap();
    drop(lock);
    library.platform.value("update slipway.ingestions set heartbeat = now() - interval '61 s' where ended_at is null");
    let output = library.ingest("two", &upload);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(library.platform.value("select concat_ws(' ', filename, chunk_count) from slipway.documents"), "pump.md 1");
    assert_eq!(library.platform.value("select count(*) from slipway.uploads"), "0");
}

/// Three documents are there; then one changes, one goes, and a long one comes.
async fn prepared() -> Library {
    let library = Library::new().await;
    for name in ["same.md", "changed.md", "gone.md"] {
        library.write(name, &format!("# {name}\n\nThe lid of {name} is on top.\n"));
    }
    library.succeeds("one");
    library.remove("gone.md");
    library.write("changed.md", "# Changed\n\nThe lid is below now, and its screws are beside it.\n");
    let paragraph =
        |n: usize| format!("## Part {n}\n\nPart {n} of the pump is held by {n} screws, each of which is loosened by {} turns.\n\n", n + 3);
    library.write("new.md", &(0..PARAGRAPHS).map(paragraph).collect::<String>());
    library
}

fn ask(library: &Library, sql: &str) -> String {
    let chunks = library.platform.value("select chunks from slipway.bases");
    library.platform.value(&sql.replace("CHUNKS", &chunks))
}

impl Sign {
    /// Taken before the process begins, which could be past it otherwise.
    fn lock(&self, library: &Library) -> Option<Session> {
        if let Self::Lock(sql) = self { Some(Session::lock(library, sql)) } else { None }
    }
}

/// The process ended before it was seen at its stage.
struct Unseen;

/// Waits until the process is at its stage. What it waits for there is let go of by dropping it.
fn reached(library: &Library, process: &mut Child, stage: &str, sign: &Sign, lock: Option<Session>) -> Result<Option<Session>, Unseen> {
    let (begun, id) = (Instant::now(), process.id());
    // A document is read in a moment.
    let pause = Duration::from_millis(if matches!(sign, Sign::Subprocess) { 1 } else { 10 });
    let mut until = |holds: &mut dyn FnMut() -> bool| {
        while !holds() {
            if process.try_wait().unwrap().is_some() {
                return Err(Unseen);
            }
            assert!(begun.elapsed() < Duration::from_mins(2), "{stage}: it is not reached");
            sleep(pause);
        }
        Ok(())
    };
    match sign {
        Sign::Lock(_) => {
            until(&mut || lock.as_ref().unwrap().is_waited_for(library))?;
            Ok(lock)
        }
        Sign::LateLock(sql) => {
            until(&mut || library.platform.value(WRITING) != "0")?;
            let session = Session::lock(library, sql);
            until(&mut || session.is_waited_for(library))?;
            Ok(Some(session))
        }
        Sign::Subprocess => {
            until(&mut || has_subprocess(id))?;
            Ok(None)
        }
        Sign::Computing(time) => {
            until(&mut || has_subprocess(id))?;
            let before = computed(id);
            until(&mut || computed(id) >= before + *time)?;
            Ok(None)
        }
    }
}

fn has_subprocess(id: u32) -> bool {
    // A child is its thread's.
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let children: String = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    let is_reader = |child: &str| {
        fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == b"extract"))
    };
    children.split_whitespace().any(is_reader)
}

/// The time that a process has computed, without its children.
fn computed(id: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let ticks = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
    Duration::from_millis(10 * ticks.map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>())
}

/// A session of the database's owner that holds a lock until it is dropped.
struct Session {
    psql: Child,
    backend: String,
    _input: ChildStdin,
}

impl Session {
    fn lock(library: &Library, sql: &str) -> Self {
        let sql = sql.replace("CHUNKS", &library.platform.value("select chunks from slipway.bases"));
        let mut psql = library.platform.psql().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = psql.stdin.take().unwrap();
        writeln!(input, "begin; {sql}; select 'locked', pg_backend_pid();").unwrap();
        let mut lines = BufReader::new(psql.stdout.take().unwrap()).lines();
        let backend = lines.find_map(|line| Some(line.unwrap().strip_prefix("locked|")?.to_owned())).unwrap();
        Self { psql, backend, _input: input }
    }

    /// Sessions wait for each other all the time; this is about what it has locked.
    fn is_waited_for(&self, library: &Library) -> bool {
        let waiting = format!("select exists (select 1 from pg_stat_activity where {} = any(pg_blocking_pids(pid)))", self.backend);
        library.platform.value(&waiting) == "t"
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}
