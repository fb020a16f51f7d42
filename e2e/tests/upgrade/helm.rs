//! The release that Helm installed: changed as people change it, and put back as it was at the end of the test.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use slipway_e2e::{ROOT, platform};

const RELEASE: &str = "slipway";

/// The installed release and the values that it had. When this goes, the present chart is there again, with them.
pub(crate) struct Installed {
    pub values: Value,
    folder: tempfile::TempDir,
    as_found: bool,
}

impl Installed {
    #[track_caller]
    pub(crate) fn kept() -> Self {
        let values: Value = parsed(&helm(&format!("get values {RELEASE}")).arg("--output=json").ok());
        // Without any, Helm says null.
        let values = if values.is_null() { serde_json::json!({}) } else { values };
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("no folder for values: {e}"));
        Self { values, folder, as_found: true }
    }

    /// The chart of this folder, with these values, in place of what there is.
    #[track_caller]
    pub(crate) fn upgrade(&mut self, chart: &Path, values: &Value) {
        self.as_found = false;
        self.run(chart, values).ok();
    }

    /// The present chart, with the values that were found.
    #[track_caller]
    pub(crate) fn restore(&mut self) {
        self.run(Path::new(ROOT), &self.values).ok();
        self.as_found = true;
    }

    #[track_caller]
    pub(crate) fn roll_back(&mut self, revision: u64) {
        self.as_found = false;
        helm(&format!("rollback {RELEASE} {revision} --wait --timeout=3m")).ok();
    }

    #[track_caller]
    pub(crate) fn uninstall(&mut self) {
        self.as_found = false;
        helm(&format!("uninstall {RELEASE} --wait --timeout=2m")).ok();
    }

    /// The number of the revision that was installed by the last change.
    #[track_caller]
    pub(crate) fn revision() -> u64 {
        let history: Value = parsed(&helm(&format!("history {RELEASE} --max=1")).arg("--output=json").ok());
        history[0]["revision"].as_u64().unwrap_or_else(|| panic!("Helm's history has no revision: {history}"))
    }

    fn run(&self, chart: &Path, values: &Value) -> Helm {
        let file: PathBuf = self.folder.path().join("values.json");
        std::fs::write(&file, values.to_string()).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        helm(&format!("upgrade --install {RELEASE} --wait --timeout=3m --create-namespace"))
            .arg(chart.display())
            .arg("--values")
            .arg(file.display())
    }
}

impl Drop for Installed {
    #[expect(clippy::print_stderr, reason = "the test harness shows it, and a panic would hide the first one")]
    fn drop(&mut self) {
        if self.as_found {
            return;
        }
        if let Err(why) = self.run(Path::new(ROOT), &self.values).run() {
            eprintln!("the release is not as it was found; hack/up installs it anew: {why}");
        }
    }
}

/// One call of Helm in the platform's namespace, not made yet.
struct Helm(Vec<String>);

fn helm(line: &str) -> Helm {
    let words = line.split_whitespace().map(str::to_owned);
    Helm(words.chain(["--namespace".to_owned(), platform::NAMESPACE.to_owned()]).collect())
}

impl Helm {
    fn arg(mut self, arg: impl Display) -> Self {
        self.0.push(arg.to_string());
        self
    }

    fn run(&self) -> Result<String, String> {
        let line = format!("helm {}", self.0.join(" "));
        let output = Command::new("helm").args(&self.0).output();
        let output = output.map_err(|error| format!("{line} cannot be run, hack/test cluster has Helm in its path: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    #[track_caller]
    fn ok(&self) -> String {
        self.run().unwrap_or_else(|why| panic!("{why}"))
    }
}

#[track_caller]
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("Helm should answer with JSON ({e}): {text}"))
}
