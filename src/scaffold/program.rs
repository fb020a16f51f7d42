//! The program: files that are the same in every project of a framework, and `project.json`, which says what is different.

use serde_json::json;
use slipway_api::agent::Framework;

use crate::wanted::{Capability, WantedProject};
use crate::{File, VERSION};

const CONTRACT: &str = include_str!("templates/common/slipway_contract.py");
const KNOWLEDGE: &str = include_str!("templates/common/knowledge.py");
const TESTS: [(&str, &str); 4] = [
    ("tests/__init__.py", include_str!("templates/common/tests/__init__.py")),
    ("tests/stage.py", include_str!("templates/common/tests/stage.py")),
    ("tests/test_agent.py", include_str!("templates/common/tests/test_agent.py")),
    ("tests/test_contract.py", include_str!("templates/common/tests/test_contract.py")),
];
/// For `knowledge.py`.
const PSYCOPG: &str = "psycopg[binary]==3.3.9\n";

/// A framework's own files.
struct Program {
    agent: &'static str,
    requirements: &'static str,
    /// Further modules.
    more: &'static [(&'static str, &'static str)],
}

const fn of(framework: Framework) -> Program {
    match framework {
        Framework::Custom => Program {
            agent: include_str!("templates/custom/agent.py"),
            requirements: include_str!("templates/custom/requirements.txt"),
            more: &[],
        },
        Framework::Langchain => Program {
            agent: include_str!("templates/langchain/agent.py"),
            requirements: include_str!("templates/langchain/requirements.txt"),
            more: &[],
        },
        Framework::Crewai => Program {
            agent: include_str!("templates/crewai/agent.py"),
            requirements: include_str!("templates/crewai/requirements.txt"),
            more: &[],
        },
        Framework::Autogen => Program {
            agent: include_str!("templates/autogen/agent.py"),
            requirements: include_str!("templates/autogen/requirements.txt"),
            more: &[],
        },
        Framework::Adk => Program {
            agent: include_str!("templates/adk/agent.py"),
            requirements: include_str!("templates/adk/requirements.txt"),
            more: &[("model.py", include_str!("templates/adk/model.py"))],
        },
    }
}

pub(crate) fn files(wanted: &WantedProject) -> Vec<File> {
    let Program { agent, requirements, more } = of(wanted.framework);
    let has_knowledge = wanted.has(Capability::Knowledge);
    let requirements = format!("{requirements}{}", if has_knowledge { PSYCOPG } else { "" });
    let mut files = vec![
        File::plain("agent.py", agent),
        File::plain("slipway_contract.py", CONTRACT),
        File::plain("requirements.txt", requirements),
        File::plain("project.json", project(wanted)),
    ];
    files.extend(more.iter().chain(&TESTS).map(|(path, content)| File::plain(*path, *content)));
    files.extend(has_knowledge.then(|| File::plain("knowledge.py", KNOWLEDGE)));
    files
}

/// What the program is without variables of the platform.
fn project(wanted: &WantedProject) -> String {
    let project = json!({
        "name": wanted.name,
        "slug": wanted.slug,
        "description": wanted.description,
        "framework": wanted.framework,
        "capabilities": wanted.sorted(),
        "modelType": wanted.model_type,
        "modelId": wanted.model_id,
        "systemPrompt": wanted.prompt(),
        "scaffold": VERSION,
    });
    format!("{project:#}\n")
}
