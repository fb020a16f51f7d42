//! Every framework with the fewest and with all capabilities, against goldens; arbitrary words; the archive; and the programs, which pass
//! their own tests: that of `custom` with any Python, the others with what `hack/test projects` installs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io::{Cursor, Read};
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use serde_json::{Value, json};
use slipway_api::agent::{AgentSpec, Framework, ModelType};
use slipway_api::{DatasetSpec, EvaluationRunSpec, GuardrailPolicySpec, KnowledgeBaseSpec, ToolSpec};
use slipway_evaluation::{CaseTurn, Profile, heuristic};

use super::*;

fn wanted(framework: Framework, capabilities: &[Capability]) -> WantedProject {
    WantedProject {
        name: "Weather Helper".to_owned(),
        slug: "weather-helper".to_owned(),
        description: Some("Tells people how the weather is.".to_owned()),
        namespace: "team-depot".to_owned(),
        framework,
        capabilities: capabilities.to_vec(),
        tools: Vec::new(),
        image: "weather-helper:0.1.0".to_owned(),
        base_image: "docker.io/library/python:3.13-slim".to_owned(),
        model_type: ModelType::Stub,
        model_id: "stub-echo".to_owned(),
        system_prompt: None,
    }
}

fn weather() -> WantedTool {
    let spec = json!({
        "name": "get_weather", "type": "http", "endpoint": "https://weather.example.com/v1/{city}",
        "headersFrom": [{"name": "Authorization", "secret": "weather", "key": "token"}],
        "parameters": [{"name": "city", "type": "string", "required": true}],
    });
    WantedTool { slug: "weather".to_owned(), spec: serde_json::from_value(spec).unwrap() }
}

fn whole(framework: Framework) -> WantedProject {
    WantedProject { tools: vec![weather()], ..wanted(framework, &Capability::ALL) }
}

fn content<'a>(files: &'a [File], path: &str) -> &'a str {
    &files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("{path} is missing")).content
}

/// All but the files that lie in `templates/` as they are.
fn told(files: &[File]) -> String {
    let mut told = String::new();
    for File { path, mode, content } in files {
        let is_static = Path::new(path).extension().is_some_and(|extension| extension == "py");
        let content = if is_static { "(as in templates/)\n" } else { content };
        writeln!(told, "=== {path} {mode:o}\n{content}").unwrap();
    }
    told
}

#[test]
fn projects_are_the_goldens() {
    let folder = Path::new("testdata");
    for framework in Framework::ALL {
        let smallest = project(&wanted(*framework, &[]));
        let found = format!("{}\n###### with everything\n\n{}", told(&smallest), told(&project(&whole(*framework))));
        let path = folder.join(format!("{}.txt", framework.as_str()));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(folder).unwrap();
            fs::write(&path, &found).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(expected == found, "{} is another; UPDATE_GOLDEN=1 writes it:\n{found}", path.display());
    }
}

/// The spec of each manifest of our kinds, by kind.
fn specs(files: &[File]) -> BTreeMap<String, Value> {
    let manifests = files.iter().filter(|file| file.path.starts_with("deploy/") && !file.path.contains("own-image"));
    let read = |file: &File| serde_yaml::from_str::<Value>(&file.content).unwrap_or_else(|error| panic!("{}: {error}", file.path));
    let ours = manifests.map(read).filter(|manifest| manifest["apiVersion"] == "agents.slipway.dev/v1");
    ours.map(|manifest| (manifest["kind"].as_str().unwrap().to_owned(), manifest["spec"].clone())).collect()
}

fn reads<T: serde::de::DeserializeOwned>(specs: &BTreeMap<String, Value>, kind: &str) -> T {
    serde_json::from_value(specs[kind].clone()).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

#[test]
fn manifests_are_of_our_kinds_and_name_each_other() {
    let specs = specs(&project(&whole(Framework::Langchain)));
    assert_eq!(specs.keys().collect::<Vec<_>>(), ["Agent", "Dataset", "EvaluationRun", "GuardrailPolicy", "KnowledgeBase", "Tool"]);
    let agent: AgentSpec = reads(&specs, "Agent");
    let governance = agent.governance.unwrap();
    assert_eq!((agent.tools, agent.knowledge_bases), (vec!["weather".to_owned()], vec!["weather-helper".to_owned()]));
    assert_eq!(
        (governance.eval_dataset.as_deref(), governance.policies),
        (Some("weather-helper"), vec!["default".to_owned(), "weather-helper-limits".to_owned()])
    );
    assert_eq!((agent.image, agent.framework), (None, Framework::Custom), "the base needs no image");
    let dataset: DatasetSpec = reads(&specs, "Dataset");
    assert_eq!((dataset.fault(), dataset.cases.len()), (None, 5));
    let policy: GuardrailPolicySpec = reads(&specs, "GuardrailPolicy");
    assert_eq!(policy.fault(), None);
    let run: EvaluationRunSpec = reads(&specs, "EvaluationRun");
    assert_eq!((run.agent.as_str(), run.dataset.as_deref()), ("weather-helper", Some("weather-helper")));
    assert_eq!(reads::<ToolSpec>(&specs, "Tool"), weather().spec);
    let _: KnowledgeBaseSpec = reads(&specs, "KnowledgeBase");
}

#[test]
fn what_was_not_asked_for_is_not_there() {
    let files = project(&wanted(Framework::Custom, &[]));
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for part in ["dataset", "evaluation", "policy", "knowledge", "tool", "ci.sh", ".github"] {
        let there: Vec<_> =
            paths.iter().filter(|path| path.contains(part) && Path::new(path).extension().is_none_or(|end| end != "py")).collect();
        assert_eq!(there, Vec::<&&str>::new(), "{part}");
    }
    assert_eq!(specs(&files)["Agent"].get("governance"), None);
}

/// The stub answers `Echo: ` and what it was asked, the case's context with it.
#[test]
fn the_stub_passes_the_projects_evaluation() {
    let specs = specs(&project(&whole(Framework::Custom)));
    let dataset: DatasetSpec = reads(&specs, "Dataset");
    let run: EvaluationRunSpec = reads(&specs, "EvaluationRun");
    let mut values = Vec::new();
    for case in &dataset.cases {
        let case = slipway_evaluation::wire::RunCase::from(case.clone());
        let turn =
            CaseTurn { output: format!("Echo: {} {}", case.context.as_deref().unwrap_or_default(), case.input), ..CaseTurn::default() };
        let scorers = Profile::of(slipway_api::agent::RiskProfile::Standard).scorers(false, false);
        values.extend(scorers.into_iter().filter_map(|scorer| heuristic(scorer, &case, &[], &turn).counted()));
    }
    let score = 100.0 * values.iter().sum::<f64>() / f64::from(u32::try_from(values.len()).unwrap());
    assert!(score >= f64::from(run.min_quality_score.unwrap()), "{score}");
}

fn unpacked(archive: &[u8]) -> Vec<File> {
    let mut zip = zip::ZipArchive::new(Cursor::new(archive)).unwrap();
    let many = zip.len();
    let read = |at| {
        let mut file = zip.by_index(at).unwrap();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        let path = file.name().unwrap().strip_prefix("weather-helper/").unwrap().to_owned();
        File { path, mode: file.unix_mode().unwrap() & 0o777, content }
    };
    (0..many).map(read).collect()
}

#[test]
fn an_archive_is_its_files_and_the_same_bytes_each_time() {
    for framework in Framework::ALL {
        let files = project(&whole(*framework));
        let packed = archive("weather-helper", &files).unwrap();
        assert_eq!(unpacked(&packed), files);
        assert_eq!(packed, archive("weather-helper", &project(&whole(*framework))).unwrap());
        assert!(packed.len() < 128 * 1024, "{}", packed.len());
    }
}

fn written(files: &[File]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for File { path, content, .. } in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

/// What the program's own tests say against it, by this Python. They need no tool and no model but their own.
fn faults(python: &Path, framework: Framework, capabilities: &[Capability]) -> Option<String> {
    // What needs PostgreSQL's client is left out.
    let capabilities: Vec<_> = capabilities.iter().copied().filter(|capability| *capability != Capability::Knowledge).collect();
    let folder = written(&project(&wanted(framework, &capabilities)));
    let ran = Command::new(python).args(["-m", "unittest"]).current_dir(folder.path()).output();
    let ran = ran.unwrap_or_else(|error| panic!("{}: {error}", python.display()));
    let said = String::from_utf8_lossy(&ran.stderr);
    let is_good = ran.status.success() && said.contains("\nOK") && said.contains("Ran 21 tests");
    (!is_good).then(|| format!("{framework:?} with {capabilities:?}: {said}"))
}

#[test]
fn the_program_without_a_framework_passes_its_own_tests() {
    for capabilities in [&Capability::DEFAULT[..], &Capability::ALL] {
        assert_eq!(faults(Path::new("python3"), Framework::Custom, capabilities), None);
    }
}

#[test]
#[ignore = "hack/test projects tries it"]
fn the_programs_of_all_frameworks_pass_their_own_tests() {
    let environments = std::path::absolute("../../.local/scaffold").unwrap();
    let mut found = Vec::new();
    for framework in Framework::ALL {
        let python = environments.join(framework.as_str()).join("bin/python");
        for capabilities in [&Capability::DEFAULT[..], &Capability::ALL] {
            found.extend(faults(&python, *framework, capabilities));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Words with what YAML, Markdown, JSON, Python and shells take for something else.
fn words() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        "'",
        "\"",
        "\\",
        "\n",
        "\t",
        "{{name}}",
        "{{image}}",
        "{",
        "}",
        "#",
        ": ",
        "- ",
        "&a",
        "*a",
        "!!x",
        "%",
        "@",
        "`",
        "$(x)",
        "$X",
        "yes",
        "null",
        "1e3",
        "---",
        "...",
        "\u{2028}",
        "\u{85}",
        "\u{7f}",
        "\u{feff}",
        "é",
        "字",
        "</x>",
        "|",
        ">",
        "0x1",
        "~",
        "=",
        "<<",
    ]);
    prop::collection::vec(prop_oneof![odd.prop_map(str::to_owned), "[a-z ]{1,5}"], 1..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn whatever_words_are_given_come_back_from_each_file(name in words(), about in words(), prompt in words()) {
        let given = WantedProject {
            name: name.clone(), description: Some(about.clone()), system_prompt: Some(prompt.clone()), ..whole(Framework::Custom)
        };
        let files = project(&given);
        let specs = specs(&files);
        let agent: AgentSpec = reads(&specs, "Agent");
        prop_assert_eq!((&agent.name, agent.description.as_ref(), agent.system_prompt.as_ref()), (&name, Some(&about), Some(&prompt)));
        let own: Value = serde_json::from_str(content(&files, "project.json")).unwrap();
        prop_assert_eq!((own["name"].as_str(), own["systemPrompt"].as_str()), (Some(name.as_str()), Some(prompt.as_str())));
        let dataset: DatasetSpec = reads(&specs, "Dataset");
        prop_assert_eq!(dataset.cases[1].expected_output.clone(), Some(format!("{name} is ready.")));
        // Nothing that runs has a word of a caller.
        let plain = project(&whole(Framework::Custom));
        for file in files.iter().filter(|file| !file.path.starts_with("deploy/") && file.path != "README.md" && file.path != "project.json") {
            prop_assert_eq!(&file.content, content(&plain, &file.path));
        }
        let lines = |files: &[File]| content(files, "README.md").lines().count();
        prop_assert_eq!(lines(&files), lines(&plain), "they are one line");
    }
}
