//! Against a real PostgreSQL: the rows of agents that are gone go too, and no others.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use slipway_api::ids;
use slipway_database::{Fault, Holder, Home, NewMessage, Options, PodRun, Role, Store, Turn};
use slipway_operator::database::DatabaseUrl;
use slipway_operator::tenancy::rows::{Census, Cleared, Fate, GRACE, Leavings, Roll, SETTLED};
use slipway_operator::tenancy::{Tenancy, Wanted};
use slipway_peers::Postgres;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// The agents of all teams, as the caches and as the API server have them: their UIDs by id.
struct Register {
    heard: Mutex<Option<HashMap<String, String>>>,
    asked: Mutex<Option<HashMap<String, String>>>,
    /// Agents of which pods are left that are not their own.
    haunted: Mutex<HashSet<String>>,
    adopts: Mutex<HashMap<String, String>>,
    home: Home,
    age: Duration,
    /// The number of looks at the cache after which an agent is heard of again.
    returns: Mutex<Option<(u32, String)>>,
}

/// Team red, of the cluster `here`.
fn red() -> Home {
    Home { team: ids::team("red"), uid: "red".to_owned(), created: 0, adopts: None, cluster: "here".to_owned() }
}

impl Register {
    fn of(names: &[&str]) -> Self {
        let register = Self {
            heard: Mutex::default(),
            asked: Mutex::default(),
            haunted: Mutex::default(),
            adopts: Mutex::default(),
            home: red(),
            age: SETTLED,
            returns: Mutex::default(),
        };
        register.now(names);
        register
    }

    /// Agents whose UIDs begin with their names.
    fn now(&self, names: &[&str]) {
        let all = names.iter().map(|name| (name.split('.').next().unwrap_or_default(), (*name).to_owned()));
        let all: HashMap<String, String> = all.map(|(name, uid)| (id(name), uid)).collect();
        *self.heard.lock().unwrap() = Some(all.clone());
        *self.asked.lock().unwrap() = Some(all);
    }
}

impl Census for Register {
    fn heard(&self, _: &str) -> Option<Roll> {
        if let Some((looks, id)) = &mut *self.returns.lock().unwrap() {
            if *looks == 0 {
                self.heard.lock().unwrap().as_mut().unwrap().insert(id.clone(), "again".to_owned());
            }
            *looks = looks.saturating_sub(1);
        }
        let heard = self.heard.lock().unwrap().clone()?;
        let holder = |(id, uid): (String, String)| {
            let alone = !self.haunted.lock().unwrap().contains(&id);
            let adopts = self.adopts.lock().unwrap().get(&id).cloned();
            // Created after whatever lies there, unless it is said to have been there always.
            let created = if uid.contains('.') { 9_000_000_000 } else { 0 };
            (id.clone(), Some(Holder { agent_id: id, uid, created, adopts, alone }))
        };
        Some(Roll { home: self.home.clone(), agents: heard.into_iter().map(holder).collect() })
    }

    async fn asked(&self, _: &str) -> Option<HashMap<String, String>> {
        self.asked.lock().unwrap().clone()
    }

    fn age(&self, _: &str) -> Duration {
        self.age
    }

    fn teams(&self) -> Option<HashSet<String>> {
        Some([self.home.team.clone()].into())
    }

    async fn asked_teams(&self) -> Option<HashSet<String>> {
        self.teams()
    }
}

fn id(name: &str) -> String {
    ids::agent("team-red", name)
}

/// The manager, as far as it sees to rows. A second one is the first after a restart.
struct Manager {
    tenancy: Tenancy,
    leavings: Leavings,
}

impl Manager {
    async fn start(postgres: &Postgres) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let tenancy = Tenancy::open(&DatabaseUrl::parse(&postgres.url()).unwrap(), Wanted::RolePerTeam, b"a key of tests").unwrap();
        tenancy.is_of("here".to_owned());
        tenancy.migrate().await.unwrap();
        Self { tenancy, leavings: Leavings::default() }
    }

    /// Whether that Agent may have pods.
    async fn lets_in(&self, register: &Register, name: &str) -> bool {
        let holder = register.heard("red").unwrap().agents[&id(name)].clone().unwrap();
        self.tenancy.admit(&register.home, &holder).await.is_ok()
    }

    async fn round(&mut self, register: &Register, now: Instant) -> (Vec<String>, Result<Instant, Fault>) {
        let teams = BTreeSet::from(["red".to_owned()]);
        let (cleared, outcome) = self.leavings.round(&self.tenancy, register, &teams, now).await;
        let told = |Cleared { team, name, id, rows, fate }: Cleared| match fate {
            Fate::Deleted => format!("{team} {} {rows}", name.unwrap_or(id)),
            fate => format!("{fate:?}"),
        };
        (cleared.into_iter().map(told).collect(), outcome)
    }
}

/// An agent of team red with a conversation of two rows.
async fn talk(postgres: &Postgres, name: &str) -> Store {
    let options = Options {
        url: postgres.url(),
        password: None,
        sslmode: None,
        team: ids::team("red"),
        agent_id: id(name),
        migrate: false,
        prepared_statements: false,
        run: PodRun::default(),
    };
    let store = Store::open(&options).unwrap();
    let turn = Turn::new("c1");
    store.begin_turn(&turn, "Hello", NewMessage::new(Role::User, "hello"), 0).await.unwrap();
    store.finish_turn(&turn, vec![]).await.unwrap();
    store
}

async fn rows(store: &Store) -> usize {
    store.conversations(10, None, None).await.unwrap().items.len()
}

#[tokio::test]
async fn the_rows_of_a_deleted_agent_go_after_a_while_and_no_others() {
    let postgres = Postgres::start();
    let (mut manager, register, start) = (Manager::start(&postgres).await, Register::of(&["stays", "goes"]), Instant::now());
    let (stays, goes) = (talk(&postgres, "stays").await, talk(&postgres, "goes").await);
    let (cleared, next) = manager.round(&register, start).await;
    assert!(cleared.is_empty() && next.unwrap() > start + SECOND, "all is in order");

    register.now(&["stays"]);
    manager.tenancy.departed("team-red", "goes", start + SECOND);
    let (cleared, next) = manager.round(&register, start + SECOND * 2).await;
    assert_eq!((cleared.len(), next.unwrap()), (0, start + SECOND + GRACE), "it has a grace, counted from its going");
    assert_eq!(rows(&goes).await, 1);
    let (cleared, _) = manager.round(&register, start + SECOND + GRACE).await;
    assert_eq!(cleared, ["red goes 2"]);
    assert_eq!((rows(&stays).await, rows(&goes).await), (1, 0));

    // A pod that was slow to end wrote once more: that is found, too.
    let goes = talk(&postgres, "goes").await;
    let late = start + Duration::from_mins(20);
    assert!(manager.round(&register, late).await.0.is_empty());
    assert_eq!(manager.round(&register, late + GRACE).await.0, [format!("red {} 2", id("goes"))]);
    assert_eq!((rows(&stays).await, rows(&goes).await), (1, 0));
}

#[tokio::test]
async fn what_is_not_known_to_be_gone_is_kept() {
    let postgres = Postgres::start();
    let (mut manager, register, start) = (Manager::start(&postgres).await, Register::of(&[]), Instant::now());
    let store = talk(&postgres, "helper").await;
    // It has the whole grace from when its last pod has gone.
    let again = start + GRACE * 2;
    manager.tenancy.departed("team-red", "helper", again);
    assert!(manager.round(&register, again + SECOND * 9).await.0.is_empty());
    manager.tenancy.emptied("team-red", "helper", again + SECOND * 9);
    assert!(manager.round(&register, again + GRACE).await.0.is_empty());
    assert_eq!(rows(&store).await, 1);

    // The API server has it already, and the cache has not heard: the API server is right.
    *register.asked.lock().unwrap() = Some([(id("helper"), "helper".to_owned())].into());
    assert!(manager.round(&register, again + SECOND * 19).await.0.is_empty());
    // Nor is anything deleted while it does not answer, or while the cache is not complete.
    *register.asked.lock().unwrap() = None;
    assert!(manager.round(&register, again + Duration::from_mins(5)).await.0.is_empty());
    *register.heard.lock().unwrap() = None;
    assert!(manager.round(&register, again + Duration::from_mins(10)).await.0.is_empty());
    assert_eq!(rows(&store).await, 1);
    register.now(&[]);
    assert_eq!(manager.round(&register, again + Duration::from_mins(15)).await.0, ["red helper 2"]);
}

#[tokio::test]
async fn an_agent_made_again_waits_until_old_rows_are_gone() {
    let postgres = Postgres::start();
    let (mut manager, register, start) = (Manager::start(&postgres).await, Register::of(&["helper"]), Instant::now());
    assert!(manager.lets_in(&register, "helper").await);
    let store = talk(&postgres, "helper").await;
    // Made again at once, long before its grace is over, and while an old pod still ends.
    manager.tenancy.departed("team-red", "helper", start);
    register.now(&["helper.2"]);
    register.haunted.lock().unwrap().insert(id("helper"));
    assert!(!manager.lets_in(&register, "helper").await);
    assert!(manager.round(&register, start).await.0.is_empty());
    assert_eq!(rows(&store).await, 1, "the old pod is still at work");
    register.haunted.lock().unwrap().clear();
    assert!(!manager.lets_in(&register, "helper").await, "with a pod it would read what was said before");
    assert_eq!(manager.round(&register, start).await.0, ["Replaced"]);
    assert_eq!(rows(&store).await, 0);
    assert!(manager.lets_in(&register, "helper").await);
    talk(&postgres, "helper").await;
    assert!(manager.round(&register, start + GRACE * 2).await.0.is_empty());
    assert_eq!(rows(&store).await, 1);
}

#[tokio::test]
async fn what_is_owed_survives_a_restart_and_a_new_agent() {
    let postgres = Postgres::start();
    let (manager, register, start) = (Manager::start(&postgres).await, Register::of(&["helper"]), Instant::now());
    assert!(manager.lets_in(&register, "helper").await);
    let store = talk(&postgres, "helper").await;
    postgres.stop();
    register.now(&["helper.2"]);
    assert!(!manager.lets_in(&register, "helper").await, "nobody knows what lies there");
    drop(manager);
    postgres.restart();
    let mut restarted = Manager::start(&postgres).await;
    assert!(!restarted.lets_in(&register, "helper").await);
    assert_eq!(restarted.round(&register, start).await.0, ["Replaced"]);
    assert!(restarted.lets_in(&register, "helper").await);
    assert_eq!(rows(&store).await, 0);
}

#[tokio::test]
async fn after_a_restore_an_admin_hands_rows_over() {
    let postgres = Postgres::start();
    let (manager, mut register, start) = (Manager::start(&postgres).await, Register::of(&["helper"]), Instant::now());
    assert!(manager.lets_in(&register, "helper").await);
    let store = talk(&postgres, "helper").await;
    // Another cluster, with other UIDs, and the same database.
    register.home = Home { uid: "red.2".to_owned(), created: 9_000_000_000, cluster: "there".to_owned(), ..red() };
    register.now(&["helper.2"]);
    let mut restored = Manager::start(&postgres).await;
    assert_eq!(restored.round(&register, start).await.0, ["Aside(\"helper\")"]);
    assert!(restored.lets_in(&register, "helper").await);
    assert_eq!(rows(&store).await, 0, "nothing is shown that was not handed over");
    register.adopts.lock().unwrap().insert(id("helper"), "helper".to_owned());
    assert!(restored.lets_in(&register, "helper").await, "it has been let in");
    assert_eq!(restored.round(&register, start).await.0, ["Adopted(\"helper\")"]);
    assert_eq!(rows(&store).await, 1);
    assert!(restored.round(&register, start + GRACE * 100).await.0.is_empty());
    assert_eq!(rows(&store).await, 1);
}

#[tokio::test]
async fn a_restart_or_a_server_that_is_away_only_delays_it() {
    let postgres = Postgres::start();
    let (mut manager, mut register, start) = (Manager::start(&postgres).await, Register::of(&[]), Instant::now());
    let helper = talk(&postgres, "helper").await;
    manager.tenancy.departed("team-red", "helper", start);
    manager.round(&register, start).await.1.unwrap();
    postgres.stop();
    let (cleared, outcome) = manager.round(&register, start + GRACE).await;
    let Err(fault) = outcome else { unreachable!("the server is away") };
    assert!(cleared.is_empty() && fault.is_passing(), "{fault}");
    postgres.restart();
    assert_eq!(manager.round(&register, start + GRACE + SECOND).await.0, ["red helper 2"]);
    assert_eq!(rows(&helper).await, 0);

    // Nobody has seen this one going. Where everything is young, it may only not have come yet.
    let other = talk(&postgres, "other").await;
    let mut restarted = Manager::start(&postgres).await;
    register.age = SETTLED.saturating_sub(SECOND);
    for minutes in [0, 10, 20] {
        assert!(restarted.round(&register, start + Duration::from_mins(minutes)).await.0.is_empty());
    }
    register.age = SETTLED;
    assert_eq!(rows(&other).await, 1);
    assert_eq!(restarted.round(&register, start + Duration::from_mins(30)).await.0, [format!("red {} 2", id("other"))]);

    let last = talk(&postgres, "last").await;
    let mut restarted = Manager::start(&postgres).await;
    let (cleared, next) = restarted.round(&register, start).await;
    assert_eq!((cleared.len(), next.unwrap()), (0, start + GRACE), "found at the first comparison, and given a grace");
    // Its team is told of as gone before: that sees to the rows itself.
    restarted.leavings.round(&restarted.tenancy, &register, &BTreeSet::new(), start + GRACE).await.1.unwrap();
    assert_eq!(rows(&last).await, 1);
}
