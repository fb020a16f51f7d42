//! Projects for agents: a program that keeps the runtime contract, its tests, its image, and the manifests that deploy and
//! evaluate it. Pure: the same request gives the same bytes, for each caller at any time.
//!
//! Programs are files that run as they lie in `templates/`. What differs from request to request stands in `project.json`, which
//! they read, and in manifests, which are made of values and never of text. So no name can leave its quotes.

mod archive;
mod manifests;
mod program;
#[cfg(test)]
mod tests;
mod text;
mod wanted;

pub use archive::{ARCHIVE_BYTES_MAX, archive};
pub use wanted::{Capability, WantedProject, WantedTool};

/// The version of the templates, which the header of an answer and the program say.
pub const VERSION: &str = "1";

/// A file of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Below the project's folder.
    pub path: String,
    /// 0o644, or 0o755 of what is run.
    pub mode: u32,
    pub content: String,
}

impl File {
    fn plain(path: impl Into<String>, content: impl Into<String>) -> Self {
        Self { path: path.into(), mode: 0o644, content: content.into() }
    }

    fn program(path: impl Into<String>, content: impl Into<String>) -> Self {
        Self { mode: 0o755, ..Self::plain(path, content) }
    }
}

/// The files of a project, by path.
pub fn project(wanted: &WantedProject) -> Vec<File> {
    let mut files = program::files(wanted);
    files.extend(text::files(wanted));
    files.extend(manifests::files(wanted));
    files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    files
}
