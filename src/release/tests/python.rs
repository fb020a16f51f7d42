//! Other people's eyes: PyYAML reads the values that were written, and a script of a few lines of Python that knows
//! nothing of Slipway finds the same checksums.

#![cfg(test)]

#[path = "unit/strange.rs"]
mod strange;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;
use slipway_release::{Artifact, Status, yaml};

fn here(path: &str) -> PathBuf {
    // Tests run in the folder of their crate.
    Path::new(path).canonicalize().unwrap()
}

fn python(script: &str, arguments: &[&str]) -> String {
    let output = slipway_peers::python(&here(script), arguments, &[]);
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn pyyaml_reads_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let arbitrary = (0..3000).map(|_| strange::value().new_tree(&mut runner).unwrap().current());
    let artifact = serde_yaml::from_str::<Value>(include_str!("../testdata/full.yaml")).unwrap();
    let mut count = 0;
    for document in arbitrary.chain([strange::document(), artifact]) {
        let file = folder.path().join(format!("{count:04}.yaml"));
        fs::write(&file, yaml(&document)).unwrap();
        fs::write(file.with_extension("json"), document.to_string()).unwrap();
        count += 1;
    }
    assert_eq!(python("tests/read.py", &[folder.path().to_str().unwrap()]).trim(), count.to_string());
}

#[test]
fn a_script_finds_the_same_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    let mut files = Vec::new();
    let full = Artifact::from_yaml(include_str!("../testdata/full.yaml")).unwrap();
    let minimal = Artifact::from_yaml(include_str!("../testdata/minimal.yaml")).unwrap();
    let strange = strange::STRINGS.iter().map(|text| {
        let mut artifact = minimal.clone();
        artifact.metadata.changelog = (*text).to_owned();
        artifact.agent.system_prompt = Some(format!("{text}\n  checksum: {text}"));
        artifact.sealed().unwrap()
    });
    let artifacts = [full.clone(), minimal.clone(), full.marked(Status::Archived).unwrap()].into_iter().chain(strange);
    for (at, artifact) in artifacts.enumerate() {
        let file = folder.path().join(format!("{at}.yaml")).display().to_string();
        fs::write(&file, artifact.to_yaml()).unwrap();
        expected.push(format!("{file} {}", artifact.metadata.checksum));
        files.push(file);
    }
    let arguments: Vec<_> = files.iter().map(String::as_str).collect();
    assert_eq!(python("tests/checksums.py", &arguments).lines().collect::<Vec<_>>(), expected);
}
