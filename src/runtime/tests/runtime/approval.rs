//! The manager's own question to a real runtime, about a real MCP server whose tools change.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use slipway_operator::control_port::Fault;
use slipway_operator::tool::poll::{PolledTools, ask};

use crate::support::{Runtime, eventually};

struct Platform(Ed25519KeyPair);

impl Platform {
    fn token(&self, agent: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let parts = [json!({"alg": "EdDSA"}), json!({"aud": agent, "iat": now, "exp": now + 60, "jti": "1"})];
        let signed = parts.map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// An agent that uses the server at `url`; `digests` is its RUNTIME_TOOL_DIGESTS, `pinned` the Tool's own digest.
    fn agent(&self, url: &str, digests: &Value, pinned: Option<&str>) -> Runtime {
        let mut tool = json!({"name": "ch", "type": "mcp", "category": "general", "mcpEndpoint": url, "timeout": 60});
        tool.as_object_mut().unwrap().extend(pinned.map(|digest| ("toolsDigest".to_owned(), json!(digest))));
        Runtime::with(&[
            ("RUNTIME_MODEL_ID", "stub-script"),
            ("RUNTIME_STRATEGY", "agent-react"),
            ("RUNTIME_TOOLS", &json!([tool, {"name": "calculator", "type": "builtin", "category": "general", "timeout": 5}]).to_string()),
            ("RUNTIME_TOOL_DIGESTS", &digests.to_string()),
            ("RUNTIME_EGRESS_ALLOW", "127.0.0.0/8"),
            ("RUNTIME_AGENT_ID", "ag_mine"),
            ("RUNTIME_CONTROL_PUBLIC_KEY", &STANDARD.encode(self.0.public_key())),
        ])
    }

    fn asks(&self, runtime: &Runtime, agent: &str) -> Result<PolledTools, Fault> {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(ask(runtime.control_address(), &self.token(agent)))
    }
}

fn says(runtime: &Runtime, call: &str) -> String {
    runtime.chat(&json!({"message": format!("call {call}\n\ntext {{results}}")}))["output"].as_str().unwrap().to_owned()
}

#[test]
fn the_manager_learns_of_other_tools_and_agents_do_without_them() {
    let address = SocketAddr::from(([127, 0, 0, 1], slipway_peers::free_port()));
    let url = format!("http://{address}/mcp");
    let _server = slipway_peers::changing_server_at(address);
    let platform = Platform(Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap());

    let first = platform.agent(&url, &json!({}), None);
    let answer = platform.asks(&first, "ag_mine").unwrap();
    let approved = answer.tool_digests["ch"].clone();
    assert!(approved.starts_with("sha256:") && answer.tool_changes.is_empty(), "{answer:?}");
    assert!(matches!(platform.asks(&first, "ag_other"), Err(Fault::Refused(status)) if status == 401));

    assert_eq!(says(&first, r#"ch_learn {"name": "trick"}"#), "learnt");
    let answer = eventually("the change", || {
        let answer = platform.asks(&first, "ag_mine").unwrap();
        (answer.tool_digests["ch"] != approved).then_some(answer)
    });
    let observed = answer.tool_digests["ch"].clone();
    assert_eq!(answer.tool_changes["ch"].added, ["trick"]);
    assert!(says(&first, "ch_trick {}").contains("there is no tool 'ch_trick'"));
    assert_eq!(says(&first, r#"ch_shout {"count": 3}"#), "xxx");

    // Pods that start later: as they are told without and with an approval by hand.
    let later = platform.agent(&url, &json!({"ch": approved}), None);
    assert!(says(&later, r#"ch_shout {"count": 3}"#).contains("there is no tool 'ch_shout'"));
    assert!(says(&later, r#"calculator {"expression": "6*7"}"#).contains("42"), "other tools are none of this server's business");
    let answer = platform.asks(&later, "ag_mine").unwrap();
    assert_eq!((&answer.tool_digests["ch"], answer.tool_changes.contains_key("ch")), (&observed, true));
    let offered = &answer.tool_changes["ch"].offered;
    assert!(["shout", "trick"].iter().all(|name| offered.iter().any(|tool| tool == name)), "it names what there is: {offered:?}");
    let released = platform.agent(&url, &json!({}), Some(&observed));
    assert_eq!(says(&released, "ch_trick {}"), "this is trick");
    assert!(platform.asks(&released, "ag_mine").unwrap().tool_changes.is_empty());
}
