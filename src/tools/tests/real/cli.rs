//! cli tools with programs of this machine, and with scripts that try to outlive their limits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_api::contract::ToolConfig;
use slipway_tools::{Context, ToolOutcome, ToolSettings, Toolbox};
use tempfile::TempDir;
use tokio::sync::watch;

fn config(binary: &Path, commands: &[&str], parameters: &Value) -> ToolConfig {
    serde_json::from_value(json!({
        "name": "t", "type": "cli", "category": "general", "binary": binary, "allowedCommands": commands, "parameters": parameters, "timeout": 2,
    }))
    .unwrap()
}

fn open(config: ToolConfig) -> Result<Toolbox, Vec<String>> {
    let settings = ToolSettings { output_limit: 2000, ..ToolSettings::default() };
    Toolbox::open(vec![config], Vec::new(), settings, &|_| None).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

async fn call(binary: &Path, commands: &[&str], parameters: Value, arguments: Value) -> ToolOutcome {
    open(config(binary, commands, &parameters)).unwrap().call("t", arguments, &soon()).await
}

fn soon() -> Context {
    Context::until(tokio::time::Instant::now() + Duration::from_secs(20))
}

/// An executable of one test.
struct Script {
    _folder: TempDir,
    path: PathBuf,
}

fn script(text: &str) -> Script {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("script");
    // Not written by this process: programs that other tests start meanwhile would inherit the open file, which could then not be run.
    let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"";
    assert!(Command::new("/bin/sh").args(["-c", write, "sh"]).arg(&path).arg(text).status().unwrap().success());
    Script { _folder: folder, path }
}

#[tokio::test]
async fn values_stay_single_arguments_and_no_shell_reads_them() {
    let tricky = "a b; $(touch /tmp/pwned) `id` | cat > x && * ' \"";
    let text = json!([{"name": "text", "type": "string"}]);
    let outcome =
        call(Path::new("/usr/bin/printf"), &["[%s]\\n {text} *"], text, json!({"text": tricky, "arguments": ["*", "$HOME"]})).await;
    assert_eq!(outcome, ToolOutcome::ok(format!("[{tricky}]\n[*]\n[$HOME]\n")));
}

#[tokio::test]
async fn a_program_starts_with_nothing() {
    let outcome = call(Path::new("/usr/bin/printenv"), &["printenv"], json!([]), json!({})).await;
    let mut variables: Vec<&str> = outcome.content.lines().collect();
    variables.sort_unstable();
    assert_eq!(variables, ["HOME=/tmp", "LANG=C.UTF-8", "PATH=/usr/bin:/bin"]);

    let look = script("pwd; ls -A | wc -l; cat; echo input ended");
    let outcome = call(&look.path, &["script"], json!([]), json!({})).await;
    let lines: Vec<&str> = outcome.content.lines().map(str::trim).collect();
    assert_eq!(lines[1..], ["0", "input ended"], "{outcome:?}");
    assert!(!Path::new(lines[0]).exists(), "the folder {} is still there", lines[0]);
}

#[tokio::test]
async fn how_it_ended_is_told() {
    for (text, expected) in [
        ("echo out", ToolOutcome::ok("out\n")),
        ("echo out; echo err >&2", ToolOutcome::ok("out\n\n[stderr]\nerr\n")),
        ("true", ToolOutcome::ok("exit code 0, without output")),
        ("echo out; exit 3", ToolOutcome::error("exit code 3\nout\n")),
        ("echo err >&2; exit 1", ToolOutcome::error("exit code 1\n[stderr]\nerr\n")),
        ("kill -9 $$", ToolOutcome::error("ended by signal 9\n(no output)")),
    ] {
        let script = script(text);
        assert_eq!(call(&script.path, &["script"], json!([]), json!({})).await, expected, "{text}");
    }
}

/// Whether a process of this number is still running; a zombie is not.
fn runs(id: &str) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
}

async fn gone(id: &str) {
    let started = Instant::now();
    while runs(id) {
        assert!(started.elapsed() < Duration::from_secs(5), "process {id} is still running");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn time_ends_it_with_all_its_children() {
    let script = script("sleep 300 & echo $!; (trap '' TERM HUP INT; sleep 301) & echo $!; echo $$; wait");
    let started = Instant::now();
    let outcome = call(&script.path, &["script"], json!([]), json!({})).await;
    assert!(outcome.is_error && outcome.content.starts_with("stopped after 2."), "{outcome:?}");
    assert!(started.elapsed() < Duration::from_secs(8));
    let ids: Vec<&str> = outcome.content.lines().skip(1).collect();
    assert_eq!(ids.len(), 3, "{outcome:?}");
    for id in ids {
        gone(id).await;
    }
}

#[tokio::test]
async fn children_left_behind_end_with_the_call() {
    let script = script("sleep 300 & echo $!");
    let started = Instant::now();
    let outcome = call(&script.path, &["script"], json!([]), json!({})).await;
    assert!(!outcome.is_error && started.elapsed() < Duration::from_millis(1900), "{outcome:?} after {:?}", started.elapsed());
    gone(outcome.content.trim()).await;
}

#[tokio::test]
async fn cancellation_and_a_dropped_call_end_it() {
    let marker = TempDir::new().unwrap();
    let file = marker.path().join("id");
    let script = script(&format!("echo $$ > {}; sleep 300", file.display()));
    let toolbox = open(config(&script.path, &["script"], &json!([]))).unwrap();
    let started = async || {
        while fs::read_to_string(&file).unwrap_or_default().trim().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let id = fs::read_to_string(&file).unwrap().trim().to_owned();
        fs::remove_file(&file).unwrap();
        id
    };
    let (cancel, cancelled) = watch::channel(false);
    let context = soon().with_cancelled(cancelled);
    let (outcome, id) = tokio::join!(toolbox.call("t", json!({}), &context), async {
        let id = started().await;
        cancel.send(true).unwrap();
        id
    });
    assert_eq!(outcome, ToolOutcome::error("cancelled; output until then:\n(no output)"));
    gone(&id).await;

    let context = soon();
    let id = tokio::select! {
        outcome = toolbox.call("t", json!({}), &context) => panic!("it ended by itself: {outcome:?}"),
        id = started() => id,
    };
    gone(&id).await;
}

#[tokio::test]
async fn a_flood_of_output_ends_it() {
    let started = Instant::now();
    let outcome = call(Path::new("/usr/bin/yes"), &["yes"], json!([]), json!({})).await;
    assert!(outcome.is_error && outcome.truncated, "{outcome:?}");
    assert!(outcome.content.starts_with("stopped because it wrote more than 2000 bytes") && outcome.content.len() < 2200, "{outcome:?}");
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn the_model_chooses_among_the_allowed_commands() {
    let commands = ["echo", "one {word}", "two -- *"];
    let toolbox = open(config(Path::new("/usr/bin/echo"), &commands, &json!([{"name": "word", "type": "string"}]))).unwrap();
    let schema = toolbox.specs().await[0].schema.clone();
    assert_eq!(schema["properties"]["command"]["enum"], json!(commands));
    assert_eq!(schema["required"], json!(["command"]));
    for (arguments, expected) in [
        (json!({"command": "echo"}), ToolOutcome::ok("\n")),
        (json!({"command": "one {word}", "word": "x y"}), ToolOutcome::ok("one x y\n")),
        (json!({"command": "two -- *", "arguments": ["a", "b"]}), ToolOutcome::ok("two -- a b\n")),
        (
            json!({"command": "two -- *", "arguments": ["-n"]}),
            ToolOutcome::error("arguments: '-n' begins with '-', which the command 'two -- *' does not allow"),
        ),
        (json!({"command": "two -- *", "arguments": [1]}), ToolOutcome::error("arguments: must be an array of strings")),
        (json!({"command": "one {word}"}), ToolOutcome::error("word: is required by the command 'one {word}'")),
        (json!({"command": "one {word}", "word": "-n"}), ToolOutcome::error("word: must not begin with '-'")),
        (json!({"command": "echo", "word": "x"}), ToolOutcome::error("word: is not part of the command 'echo'")),
        (json!({"command": "echo", "arguments": ["x"]}), ToolOutcome::error("arguments: the command 'echo' takes no further arguments")),
        (
            json!({"command": "three"}),
            ToolOutcome::error("t was not called: command: must be one of \"echo\", \"one {word}\", \"two -- *\""),
        ),
        (json!({}), ToolOutcome::error("t was not called: command: is required (a string)")),
    ] {
        assert_eq!(toolbox.call("t", arguments.clone(), &soon()).await, expected, "{arguments}");
    }
}

#[test]
fn what_cannot_be_held_is_refused() {
    let script = script("true");
    let plain = script.path.with_file_name("plain");
    fs::write(&plain, "").unwrap();
    for (binary, commands, parameters, expected) in [
        ("/usr/bin/true", &[][..], json!([]), "tool t: allowedCommands: must name what may be run"),
        ("true", &["true"], json!([]), "tool t: binary: 'true' must be an absolute path"),
        ("/usr/bin/../bin/true", &["true"], json!([]), "tool t: binary: '/usr/bin/../bin/true' must be an absolute path without .."),
        ("/nowhere/true", &["true"], json!([]), "tool t: binary: '/nowhere/true' is not there"),
        ("/usr/bin", &["true"], json!([]), "tool t: binary: '/usr/bin' is not an executable file"),
        (plain.to_str().unwrap(), &["true"], json!([]), "tool t: binary: "),
        ("/bin/sh", &["-c *"], json!([]), "tool t: binary: '/bin/sh' runs whatever it is told"),
        ("/usr/bin/env", &["..."], json!([]), "tool t: binary: '/usr/bin/env' runs whatever it is told"),
        ("/usr/bin/true", &["{x}"], json!([]), "tool t: allowedCommands: the placeholder {x} is not declared"),
        ("/usr/bin/true", &["a", "a"], json!([]), "tool t: allowedCommands: 'a' is there twice"),
        ("/usr/bin/true", &["a"], json!([{"name": "x", "type": "string"}]), "tool t: parameters: 'x' is used by no command"),
        ("/usr/bin/true", &["{command}"], json!([{"name": "command", "type": "string"}]), "tool t: parameters: 'command' is taken"),
    ] {
        let errors =
            open(config(Path::new(binary), commands, &parameters)).err().unwrap_or_else(|| panic!("{binary} {commands:?} was accepted"));
        assert!(errors[0].starts_with(expected), "{errors:?}");
    }
}
