//! The Git side of releases, without Kubernetes: a bare repository per namespace in one folder, what is mirrored of
//! them to a remote, and how they are served. The local repositories are the truth; a remote is a copy.

pub mod git;
pub mod history;
pub mod mirror;
pub mod serve;
