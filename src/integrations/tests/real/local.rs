//! Folders of a volume.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use slipway_api::integration::IntegrationType;
use slipway_api::worker::{ProbeReply, ProbeRequest};
use slipway_integrations::probe_local;

use crate::support::{connected, failed, login};

#[tokio::test]
async fn a_folder_is_looked_at_within_the_volume() {
    let volume = tempfile::tempdir().unwrap();
    for name in ["handbook", "handbook/more"] {
        fs::create_dir(volume.path().join(name)).unwrap();
    }
    for name in ["handbook/a.md", "handbook/.hidden", "a.md"] {
        fs::write(volume.path().join(name), "text").unwrap();
    }
    symlink("/etc", volume.path().join("out")).unwrap();
    let at = async |config: Value| -> ProbeReply {
        probe_local(&ProbeRequest { kind: IntegrationType::Local, config, credentials: login(&[]) }, volume.path()).await
    };
    connected(&at(json!({})).await, "the folder has 3 entries");
    connected(&at(json!({"path": "/handbook/"})).await, "the folder has 2 entries");
    failed(&at(json!({"path": "none"})).await, "NotFound", "path: the volume has no such folder");
    failed(&at(json!({"path": "a.md"})).await, "NotFound", "path: is no folder");
    failed(&at(json!({"path": "out"})).await, "NotFound", "path: leads out of the volume");
    failed(&at(json!({"path": "../etc"})).await, "NotFound", "path: must not have ..");
}
