//! The kubectl binary: $KUBECTL, else the one in the path, with the kubeconfig of the environment. Plain reads that it would
//! print as JSON, by name or of one field are made without a process, as are merge patches, see [`crate::door`].

use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// One call of kubectl, not made yet.
#[derive(Clone, Debug)]
pub struct Kubectl {
    args: Vec<String>,
    input: Option<String>,
}

/// What became of a call.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A call whose arguments are the words of `line`.
pub fn kubectl(line: impl AsRef<str>) -> Kubectl {
    reachable();
    Kubectl::new(line.as_ref())
}

impl Kubectl {
    /// One that needs no cluster of the environment.
    pub(crate) fn new(line: &str) -> Self {
        Self { args: line.split_whitespace().map(str::to_owned).collect(), input: None }
    }

    /// One more argument, which may hold spaces.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "calls read better without the ampersand")]
    pub fn arg(mut self, arg: impl ToString) -> Self {
        self.args.push(arg.to_string());
        self
    }

    /// What the call reads, for use with `-f -`.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "calls read better without the ampersand")]
    pub fn input(mut self, text: impl ToString) -> Self {
        self.input = Some(text.to_string());
        self
    }

    pub fn run(&self) -> Outcome {
        if let Some(stdout) = crate::door::answer(&self.args) {
            return Outcome { code: Some(0), stdout, stderr: String::new() };
        }
        let mut child =
            self.command().stdin(Stdio::piped()).spawn().unwrap_or_else(|e| panic!("{} cannot be run: {e}", program().display()));
        if let (Some(mut stdin), Some(text)) = (child.stdin.take(), &self.input) {
            // A kubectl that refuses its arguments does not read; its exit code tells.
            let _ = stdin.write_all(text.as_bytes());
        }
        let output = child.wait_with_output().unwrap_or_else(|e| panic!("{self} did not end well: {e}"));
        Outcome {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The output of a call that must succeed.
    #[track_caller]
    pub fn ok(&self) -> String {
        let Outcome { code, stdout, stderr } = self.run();
        assert!(code == Some(0), "{self}\nshould succeed, ended with {code:?}:\n{stderr}{stdout}");
        stdout
    }

    /// The complaint of a call that must fail.
    #[track_caller]
    pub fn refused(&self) -> String {
        let Outcome { code, stdout, stderr } = self.run();
        assert!(code != Some(0), "{self}\nshould be refused, but succeeded:\n{stdout}");
        stderr
    }

    /// What the call prints with `-o json`.
    #[track_caller]
    pub fn json(&self) -> Value {
        let text = self.clone().arg("-o").arg("json").ok();
        if text.trim().is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{self} should print JSON: {e}\n{text}"))
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(program());
        // Thousands of short processes: without collections and more threads each takes a quarter less of the machine.
        command.env("GOGC", "400").env("GOMAXPROCS", "1");
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl std::fmt::Display for Kubectl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "kubectl {}", self.args.join(" "))?;
        self.input.as_ref().map_or(Ok(()), |text| write!(f, " <<END\n{text:.4000}\nEND"))
    }
}

pub(crate) fn program() -> OsString {
    std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into())
}

/// Without a cluster every test fails with the same advice.
fn reachable() {
    static PROBLEM: OnceLock<Option<String>> = OnceLock::new();
    let problem = PROBLEM.get_or_init(|| {
        let outcome = Kubectl::new("get --raw /readyz --request-timeout=10s").command().output();
        match outcome {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Some(format!("{}: {error}", program().display())),
        }
    });
    if let Some(problem) = problem {
        panic!("no cluster is reachable; hack/test cluster brings one up and runs these tests. kubectl said: {problem}");
    }
}
