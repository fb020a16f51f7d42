//! `ARCHITECTURE.md`: that what it names is there, and that its table of rooms says what Cargo's manifests say; and that no module of
//! the controllers' crates depends on itself by way of others. Asks nothing of a cluster.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use slipway_e2e::ROOT;

const PAGE: &str = "ARCHITECTURE.md";
/// What a path from the repository's root begins with; other names of files are of some folder in `src`.
const ROOMS: [&str; 9] = ["src/", "docs/", "hack/", "e2e/", "bench/", "peers/", "crds/", "config/", "templates/"];
/// The walks whose length is bounded, with the number of files that each may name.
const WALKS: [(&str, usize); 3] = [("An Agent to its pod", 15), ("A chat message", 20), ("A change to its release", 20)];
const GLOSSARY_LINES_MAX: usize = 15;
/// Crates whose modules form no cycle.
const ACYCLIC: [&str; 2] = ["operator", "releases"];

/// What a module of a crate names of the same crate, by module.
type Graph = BTreeMap<String, BTreeSet<String>>;

#[track_caller]
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn root(path: &str) -> PathBuf {
    Path::new(ROOT).join(path)
}

/// All Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// `a/{b,c}.rs` names two files.
fn expanded(name: &str) -> Vec<String> {
    let parts = name.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    let Some((before, (list, after))) = parts else { return vec![name.to_owned()] };
    list.split(',').map(|one| format!("{before}{one}{after}")).collect()
}

fn is_of_root(name: &str) -> bool {
    ROOMS.iter().any(|room| name.starts_with(*room))
}

/// The files and folders that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|sign: char| !sign.is_ascii_alphanumeric() && !"_-./{},*".contains(sign));
    let words = words.map(|word| word.trim_matches([',', '.', '/']));
    let names = words.filter(|word| Path::new(word).extension().is_some_and(|extension| extension == "rs") || is_of_root(word));
    names.flat_map(expanded).collect()
}

/// The cells of a row of a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    Some(line.strip_prefix('|')?.split('|').map(str::trim).collect())
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The crates of the workspace that a crate uses when it runs.
fn dependencies(manifest: &str) -> BTreeSet<&str> {
    let list = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1).take_while(|line| !line.starts_with('['));
    list.filter_map(|line| line.strip_prefix("slipway-")?.split(['.', ' ', '=']).next()).collect()
}

/// The names that follow `crate::` in a text without comments, one by one where they stand in braces.
fn of_crate(text: &str) -> Vec<&str> {
    let first = |path: &str| path.find(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_').unwrap_or(path.len());
    let mut found = Vec::new();
    for rest in text.split("crate::").skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            found.push(&rest[..first(rest)]);
            continue;
        };
        let (mut depth, mut is_start) = (1, true);
        for (at, sign) in list.char_indices() {
            match sign {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => is_start = true,
                _ if is_start && !sign.is_whitespace() => {
                    found.push(&list[at..at + first(&list[at..])]);
                    is_start = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

/// What is not a test, without comments.
fn product(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The modules that stand in a crate's root, and which of them name which.
fn graph(folder: &Path) -> Graph {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for path in sources(folder) {
        let parts: Vec<String> = path.strip_prefix(folder).unwrap().iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let is_test = parts.iter().any(|part| matches!(part.as_str(), "tests" | "tests.rs"));
        let Some(module) = parts.first().filter(|part| !is_test && part.as_str() != "lib.rs") else { continue };
        let text = product(&read(&path));
        // Of a file that stands in the root, the crate is the parent.
        let text = if parts.len() == 1 { text.replace("super::", "crate::") } else { text };
        texts.entry(module.trim_end_matches(".rs").to_owned()).or_default().push_str(&text);
    }
    let of = |module: &str, text: &str| -> BTreeSet<String> {
        let names = of_crate(text).into_iter().filter(|name| *name != module && texts.contains_key(*name));
        names.map(str::to_owned).collect()
    };
    texts.iter().map(|(module, text)| (module.clone(), of(module, text))).collect()
}

/// The modules in a cycle, and those between two cycles.
fn cyclic(mut graph: Graph) -> Graph {
    loop {
        let used: BTreeSet<String> = graph.values().flatten().cloned().collect();
        let is_outside = |module: &String, uses: &BTreeSet<String>| uses.is_empty() || !used.contains(module);
        let outside: Vec<String> =
            graph.iter().filter(|(module, uses)| is_outside(module, uses)).map(|(module, _)| module.clone()).collect();
        if outside.is_empty() {
            return graph;
        }
        graph.retain(|module, _| !outside.contains(module));
        for uses in graph.values_mut() {
            uses.retain(|module| !outside.contains(module));
        }
    }
}

#[test]
fn every_file_that_the_page_names_is_there() {
    let (page, src) = (read(&root(PAGE)), root("src"));
    let files: Vec<PathBuf> = sources(&src);
    let is_there = |name: &str| match name.split_once('*') {
        Some((folder, _)) => root(folder).is_dir(),
        None if is_of_root(name) => root(name).exists(),
        None => files.iter().any(|file| file.ends_with(name)),
    };
    let names = named(&page);
    assert!(names.len() > 150, "the page is not read as it is meant: it names {} files", names.len());
    let missing: Vec<&String> = names.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "{PAGE} names what is not there: {missing:?}");
    assert!(!is_there("src/operator/nothing.rs") && !is_there("nothing.rs"));
}

#[test]
fn walks_and_glossary_are_short() {
    let page = read(&root(PAGE));
    for (title, most) in WALKS {
        let head = format!("**{title}.**");
        let walk = page.split("\n\n").find(|part| part.starts_with(&head)).unwrap_or_else(|| panic!("{PAGE} has no walk {head}"));
        let names = named(walk);
        assert!((10..=most).contains(&names.len()), "{title}: {} files of at most {most}: {names:?}", names.len());
    }
    let words = page.split("\n## Words\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
    // Without the head of the table, and the line below it.
    let count = words.lines().filter(|line| line.starts_with('|')).skip(2).count();
    assert!((5..=GLOSSARY_LINES_MAX).contains(&count), "the glossary has {count} lines of at most {GLOSSARY_LINES_MAX}");
}

#[test]
fn the_rooms_use_what_cargo_lets_them_use() {
    let page = read(&root(PAGE));
    let rows: BTreeMap<&str, BTreeSet<&str>> = page
        .lines()
        .filter_map(cells)
        .filter_map(|cells| Some((quoted(cells.first().copied()?).next()?, quoted(cells.get(2).copied()?).collect())))
        .collect();
    let mut wrong = Vec::new();
    let crates = fs::read_dir(root("src")).unwrap().map(|entry| format!("src/{}", entry.unwrap().file_name().to_string_lossy()));
    for room in crates.chain(["peers", "e2e", "bench"].map(str::to_owned)) {
        let manifest = read(&root(&room).join("Cargo.toml"));
        let uses = dependencies(&manifest);
        if rows.get(room.as_str()) != Some(&uses) {
            wrong.push(format!("{room}: its manifest has {uses:?}, the page {:?}", rows.get(room.as_str())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_module_depends_on_itself() {
    for name in ACYCLIC {
        let graph = graph(&root("src").join(name));
        let edges: usize = graph.values().map(BTreeSet::len).sum();
        assert!(graph.len() > 10 && edges > graph.len(), "{name} is not read as it is meant: {graph:?}");
        let cycle = cyclic(graph);
        assert!(cycle.is_empty(), "modules of src/{name} that depend on themselves by way of others, and what each uses: {cycle:#?}");
    }
}

#[test]
fn a_cycle_among_modules_is_found() {
    let of = |texts: [(&str, &str); 4]| -> Graph {
        texts
            .map(|(module, text)| (module.to_owned(), of_crate(&product(text)).into_iter().map(str::to_owned).collect::<BTreeSet<_>>()))
            .into()
    };
    let root = ("root", "use crate::{\n    a::{self, One},\n    b,\n};");
    let (a, b) = (("a", "use crate::b::Two;\n// use crate::root;"), ("b", "fn f() -> crate::c::Three {}"));
    assert_eq!(cyclic(of([root, a, b, ("c", "#[cfg(test)]\nmod tests {\n    use crate::a;\n}")])), Graph::new());
    let found = cyclic(of([root, a, b, ("c", "pub(in crate::a) fn f() {}")]));
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
}
