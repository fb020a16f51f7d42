//! Skills: listed to the model, read when it asks.

use std::{env, fs, process};

use serde_json::json;

use crate::support::Runtime;

#[test]
fn the_model_loads_a_skill_and_its_files() {
    let folder = env::temp_dir().join(format!("slipway-skills-{}", process::id()));
    fs::create_dir_all(folder.join("references")).unwrap();
    fs::write(folder.join("SKILL.md"), "---\nname: refunds\ndescription: How refunds work.\n---\nAsk for the order number.").unwrap();
    fs::write(folder.join("references/limits.md"), "At most 100 EUR.").unwrap();
    let skills = json!([{"name": "refunds", "description": "How refunds work.", "path": folder, "digest": "x"}]).to_string();
    let runtime =
        Runtime::with(&[("RUNTIME_MODEL_ID", "stub-script"), ("RUNTIME_STRATEGY", "agent-react"), ("RUNTIME_SKILLS", skills.as_str())]);
    let script = "call load_skill {\"name\": \"refunds\"}\ncall read_skill_file {\"name\": \"refunds\", \"file\": \"references/limits.md\"}\n\n\
                  text {results}";
    let answer = runtime.chat(&json!({"message": script}));
    let output = answer["output"].as_str().unwrap();
    assert!(output.contains("Ask for the order number.") && output.contains("At most 100 EUR."), "{output}");
    fs::remove_dir_all(folder).unwrap();
}
