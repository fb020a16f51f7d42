//! A deletion that is answered and not done: what somebody was told is gone would go on talking.

use serde_json::json;
use slipway_e2e::attack::Installation;
use slipway_e2e::poll;

#[test]
fn a_team_deleted_by_force_leaves_no_agent_and_no_namespace() {
    let slipway = Installation::shared();
    let namespace = slipway.team("forced");
    let admin = slipway.platform_admin("force-admin");
    for name in ["one", "two"] {
        let metadata = json!({"name": name, "namespace": namespace});
        slipway.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": metadata, "spec": {"name": "H", "framework": "custom"}}));
    }
    let rest = slipway.rest(&[]);
    let told = rest.call("DELETE", "/teams/forced?force=true").token(&admin.token).expect(200);
    assert_eq!(told["data"]["deleted"], json!(true), "{told}");
    poll(60, || {
        let left = slipway.kubectl(format!("get team/forced namespace/{namespace} --ignore-not-found -o name")).ok();
        let agents = slipway.kubectl(format!("get agents -n {namespace} --ignore-not-found -o name")).ok();
        if left.trim().is_empty() && agents.trim().is_empty() { Ok(()) } else { Err(format!("they are still there: {left}{agents}")) }
    });
}
