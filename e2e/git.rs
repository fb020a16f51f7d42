//! Git by command line, with nothing of this machine's settings: a person's repository of manifests, and a clone of one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::kubectl::kubectl;

/// `git` with these arguments.
pub fn git(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(folder).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_ASKPASS", "").env("HOME", folder);
    command.output().unwrap_or_else(|error| panic!("git cannot be run: {error}"))
}

/// A call that must succeed. A URL may hold a token, so neither arguments nor such lines are told.
#[track_caller]
fn done(folder: &Path, arguments: &[&str]) {
    let Output { status, stderr, .. } = git(folder, arguments);
    let told = String::from_utf8_lossy(&stderr);
    let told: Vec<&str> = told.lines().filter(|line| !line.contains('@')).collect();
    assert!(status.success(), "git {} in {}: {}", arguments[0], folder.display(), told.join("\n"));
}

/// A person's repository: a folder of manifests with a kustomization, in which changes are committed.
pub struct Repository {
    path: PathBuf,
    kustomization: String,
}

impl Repository {
    /// One whose kustomization begins with these lines.
    #[track_caller]
    pub fn new(path: PathBuf, kustomization: &str) -> Self {
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        done(&path, &["init", "--quiet", "--initial-branch", "main"]);
        Self { path, kustomization: kustomization.to_owned() }
    }

    /// One commit: files with what is to be in them, or none for those that go.
    #[track_caller]
    pub fn commit(&self, message: &str, files: &[(&str, Option<&str>)]) {
        for (name, text) in files {
            let file = self.path.join(name);
            let written = text.map_or_else(|| std::fs::remove_file(&file), |text| std::fs::write(&file, text));
            written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
        let folder = std::fs::read_dir(&self.path).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        let mut names: Vec<_> = folder.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| Path::new(name).extension().is_some_and(|end| end == "yaml") && name != "kustomization.yaml");
        names.sort();
        let resources: Vec<_> = names.iter().map(|name| format!("  - {name}\n")).collect();
        let whole = format!("{}resources:\n{}", self.kustomization, resources.concat());
        let file = self.path.join("kustomization.yaml");
        std::fs::write(&file, whole).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        done(&self.path, &["add", "--all"]);
        done(&self.path, &["-c", "user.name=Ann", "-c", "user.email=ann@example.com", "commit", "--quiet", "--message", message]);
    }

    pub fn url(&self) -> String {
        self.path.display().to_string()
    }
}

/// A clone as a GitOps tool keeps one: what a folder of it says is built with kustomize, and the file that comes of it is
/// there as a whole at any time.
pub struct Checkout {
    pub path: PathBuf,
    folder: &'static str,
}

impl Checkout {
    /// Where the built manifests lie in a clone.
    pub const BUILT: &'static str = "built";

    #[track_caller]
    pub fn of(url: &str, path: PathBuf, folder: &'static str) -> Self {
        done(Path::new("."), &["clone", "--quiet", url, &path.display().to_string()]);
        let this = Self { path, folder };
        this.build();
        this
    }

    /// Brings it up to date.
    #[track_caller]
    pub fn pull(&self) {
        done(&self.path, &["pull", "--quiet", "--ff-only"]);
        self.build();
    }

    #[track_caller]
    fn build(&self) {
        let manifests = kubectl("kustomize").arg(self.path.join(self.folder).display()).ok();
        let built = self.path.join(Self::BUILT);
        let (half, whole) = (self.path.join(".git/half"), built.join("all.yaml"));
        let written =
            std::fs::create_dir_all(built).and_then(|()| std::fs::write(&half, manifests)).and_then(|()| std::fs::rename(half, whole));
        written.unwrap_or_else(|error| panic!("manifests could not be written: {error}"));
    }
}
