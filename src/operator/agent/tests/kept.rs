//! Pods of agents that nobody changed outlive upgrades: what a version made of an Agent, later versions make of it too, to
//! the byte.
//!
//! `testdata/kept/NAME-VERSION.in.yaml` is an Agent as it was when that version came, `….pods.yaml` the pods that it got.
//! They are added to, with each version, and never written anew. Who has to change one replaces the pods of every such
//! agent of every installation (`rollout.maxConcurrent` at a time), and says so where upgrades are described.

use super::*;

#[test]
fn what_earlier_versions_made_is_made_still() {
    let mut seen = 0;
    for entry in std::fs::read_dir("testdata/kept").unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".in.yaml") else { continue };
        let mut settings = if name.starts_with("full") { everything() } else { settings(None) };
        // A value that came later, and is false unless somebody sets it.
        settings.platform.prepared_statements = false;
        let plan = plan(&std::fs::read_to_string(&path).unwrap(), &settings);
        let template = build::build(&plan).deployment.spec.unwrap().template;
        let built = serde_yaml::to_string(&serde_json::to_value(template).unwrap()).unwrap();
        let kept = std::fs::read_to_string(path.with_file_name(format!("{name}.pods.yaml"))).unwrap();
        assert_eq!(built, kept, "an upgrade would replace the pods of an agent like testdata/kept/{name}.in.yaml");
        seen += 1;
    }
    assert!(seen >= 2, "what is kept should be found");
}
