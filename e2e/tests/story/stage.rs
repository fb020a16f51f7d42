//! Where the story takes place: the installed Slipway, servers at the node's address, one shell for the page, and the GitOps
//! controller that follows the repository of the page. What an earlier, interrupted story left is taken away first.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};
use slipway_e2e::page::{PageStep, steps};
use slipway_e2e::{Agent, Api, Call, ROOT, Team, kubectl, platform, poll};
use slipway_peers::repository;

use crate::follower::Follower;
use crate::receiver::StoryReceiver;
use crate::servers::{LittleServer, ServedAnswer};
use crate::shell::Shell;
use crate::{handbook, model};

const PAGE: &str = "docs/story.md";
/// Who a person's account is of: name, and where it is.
const ROOT_ACCOUNT: &str = "root";
pub(crate) const GUIDE: &str = "harbor-guide";
pub(crate) const BROKER: &str = "broker";

pub(crate) struct Stage {
    shell: Shell,
    /// Before the teams, or it makes anew what is taken away.
    pub(crate) follower: Option<Follower>,
    pub(crate) harbor: Team,
    pub(crate) depot: Team,
    _clean: Clean,
    steps: Vec<PageStep>,
    played: BTreeSet<usize>,
    pub(crate) api: Api,
    pub(crate) tide: LittleServer,
    pub(crate) hook: StoryReceiver,
    _model: LittleServer,
    pub(crate) folder: tempfile::TempDir,
    tokens: RefCell<BTreeMap<String, String>>,
    begun: Instant,
    /// What one chapter tells a later one.
    pub(crate) facts: BTreeMap<&'static str, Value>,
}

impl Stage {
    #[track_caller]
    pub(crate) fn set() -> Self {
        let api = Api::installed().unwrap_or_else(|| panic!("{PAGE} is played where the node is this machine: hack/test story"));
        let clean = Clean::now();
        let (harbor, depot) = (Team::called("harbor"), Team::called("depot"));
        let address = || platform::on_the_node().unwrap_or_else(|| panic!("pods reach servers only where the node is this machine"));
        let model = model::start(address());
        let tide =
            LittleServer::start(address(), |_| ServedAnswer::json(200, &json!({"high_water": "06:12"})), |asked| Some(asked.clone()));
        let hook = StoryReceiver::start(address());
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("handbook.pdf"), handbook::pdf()).unwrap();
        let root = repository();
        let path = format!("{}:{}", root.join(".local/peers/python/bin").display(), root.join(".local/bin").display());
        let variables = [
            ("API", format!("{}/api/v1", api.url())),
            ("MODEL", format!("{}/v1", model.url)),
            ("KEY", model::KEY.to_owned()),
            ("TIDE", tide.url.clone()),
            ("HOOK", hook.server.url.clone()),
            ("SLIPWAY", root.display().to_string()),
        ];
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let shell = Shell::start(folder.path(), &path, &variables, api.address().ip());
        let page = fs::read_to_string(format!("{ROOT}/{PAGE}")).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
        Self {
            shell,
            follower: None,
            harbor,
            depot,
            _clean: clean,
            steps: steps(PAGE, &page),
            played: BTreeSet::new(),
            api,
            tide,
            hook,
            _model: model,
            folder,
            tokens: RefCell::default(),
            begun: Instant::now(),
            facts: BTreeMap::new(),
        }
    }

    /// Plays what stands under a heading, block by block.
    #[track_caller]
    #[expect(clippy::print_stderr, reason = "a story of a quarter of an hour tells how far it is")]
    pub(crate) fn play(&mut self, heading: &str) {
        eprintln!("[{:4} s] {heading}", self.begun.elapsed().as_secs());
        let mut found = false;
        for (at, step) in self.steps.iter().enumerate().filter(|(_, step)| step.heading == heading) {
            found = true;
            self.played.insert(at);
            let told = self.shell.run(&step.commands);
            let place = format!("{PAGE}:{} ({heading})", step.line);
            let whole = || format!("{}\nit says:\n{:.4000}\nand complains:\n{:.4000}", step.commands, told.output, told.complaints);
            match told.code {
                Some(0) => {}
                Some(code) => panic!("{place} ended with {code}:\n{}", whole()),
                None => panic!("{place} did not end in time:\n{}", whole()),
            }
            if let Err(difference) = step.check(&told.output) {
                panic!("{place}: {difference}\n{}", whole());
            }
        }
        assert!(found, "{PAGE} has nothing to be done under the heading {heading:?}");
    }

    /// At the end: the page has nothing that nobody played.
    #[track_caller]
    pub(crate) fn ends(&self) {
        let left: Vec<_> = self.steps.iter().enumerate().filter(|(at, _)| !self.played.contains(at)).map(|(_, step)| step.line).collect();
        assert!(left.is_empty(), "nobody has played the blocks in lines {left:?} of {PAGE}");
    }

    /// A call of a person's, about a team.
    #[track_caller]
    pub(crate) fn call(&self, person: &str, team: &str, method: &str, path: &str) -> Call {
        self.api.call(method, path).token(&self.token(person)).header("X-Team", team)
    }

    /// What a call of a person's is answered, which must be good.
    #[track_caller]
    pub(crate) fn get(&self, person: &str, team: &str, path: &str) -> Value {
        self.call(person, team, "GET", path).expect(200)["data"].clone()
    }

    #[track_caller]
    fn token(&self, person: &str) -> String {
        if let Some(token) = self.tokens.borrow().get(person) {
            return token.clone();
        }
        let token = kubectl(format!("create token {person} -n {} --duration 4h", namespace_of(person))).ok().trim().to_owned();
        self.tokens.borrow_mut().insert(person.to_owned(), token.clone());
        token
    }

    pub(crate) fn guide(&self) -> Agent<'_> {
        Agent { team: &self.harbor, name: GUIDE.to_owned() }
    }

    pub(crate) fn broker(&self) -> Agent<'_> {
        Agent { team: &self.depot, name: BROKER.to_owned() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file that the page has made.
    #[track_caller]
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[track_caller]
    pub(crate) fn fact(&self, name: &str) -> &Value {
        self.facts.get(name).unwrap_or_else(|| panic!("no chapter has told {name}"))
    }
}

/// Where a person's account is.
pub(crate) fn namespace_of(person: &str) -> &'static str {
    match person {
        ROOT_ACCOUNT => platform::NAMESPACE,
        "bob" => "team-depot",
        _ => "team-harbor",
    }
}

/// Polls until something holds that one can be told of.
#[track_caller]
pub(crate) fn until(what: &str, seconds: u64, mut look: impl FnMut() -> Result<(), Value>) {
    poll(seconds, || look().map_err(|seen| format!("{what}: {seen:#}")));
}

/// What lies outside of teams, before and after.
struct Clean;

impl Clean {
    fn now() -> Self {
        Self::sweep();
        Self
    }

    fn sweep() {
        kubectl("delete clusterrolebinding story-root --ignore-not-found").run();
        kubectl(format!("delete serviceaccount {ROOT_ACCOUNT} -n {} --ignore-not-found", platform::NAMESPACE)).run();
        for kind in ["configmap", "secret"] {
            let patch = kubectl(format!("-n {} patch {kind} slipway-platform --type=merge -p", platform::NAMESPACE));
            patch.arg(json!({"data": null})).run();
        }
    }
}

impl Drop for Clean {
    fn drop(&mut self) {
        Self::sweep();
    }
}
