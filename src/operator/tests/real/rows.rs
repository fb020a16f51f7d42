//! Against a real PostgreSQL: the rows of agents that are gone go too, and no others.

use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use slipway_api::ids;
use slipway_database::{Fault, NewMessage, Options, Role, Store, Turn};
use slipway_operator::database::DatabaseUrl;
use slipway_operator::tenancy::rows::{Census, Cleared, GRACE, Leavings, SETTLED};
use slipway_operator::tenancy::{Tenancy, Wanted};
use slipway_peers::Postgres;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// The agents of all teams, as the caches and as the API server have them.
struct Register {
    heard: Mutex<Option<HashSet<String>>>,
    asked: Mutex<Option<HashSet<String>>>,
    age: Duration,
    /// After so many looks at the cache, an agent is heard of again.
    returns: Mutex<Option<(u32, String)>>,
}

impl Register {
    fn of(names: &[&str]) -> Self {
        let register = Self { heard: Mutex::default(), asked: Mutex::default(), age: SETTLED, returns: Mutex::default() };
        register.now(names);
        register
    }

    fn now(&self, names: &[&str]) {
        let all: HashSet<String> = names.iter().map(|name| id(name)).collect();
        *self.heard.lock().unwrap() = Some(all.clone());
        *self.asked.lock().unwrap() = Some(all);
    }
}

impl Census for Register {
    fn heard(&self, _: &str) -> Option<HashSet<String>> {
        if let Some((looks, id)) = &mut *self.returns.lock().unwrap() {
            if *looks == 0 {
                self.heard.lock().unwrap().as_mut().unwrap().insert(id.clone());
            }
            *looks = looks.saturating_sub(1);
        }
        self.heard.lock().unwrap().clone()
    }

    async fn asked(&self, _: &str) -> Option<HashSet<String>> {
        self.asked.lock().unwrap().clone()
    }

    fn age(&self, _: &str) -> Duration {
        self.age
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
        tenancy.migrate().await.unwrap();
        Self { tenancy, leavings: Leavings::default() }
    }

    async fn round(&mut self, register: &Register, now: Instant) -> (Vec<String>, Result<Instant, Fault>) {
        let teams = BTreeSet::from(["red".to_owned()]);
        let (cleared, outcome) = self.leavings.round(&self.tenancy, register, &teams, now).await;
        let told = |Cleared { team, name, id, rows }: Cleared| format!("{team} {} {rows}", name.unwrap_or(id));
        (cleared.into_iter().map(told).collect(), outcome)
    }
}

/// An agent of team red with a conversation of two rows.
async fn talk(postgres: &Postgres, name: &str) -> Store {
    let options =
        Options { url: postgres.url(), password: None, sslmode: None, team: ids::team("red"), agent_id: id(name), migrate: false };
    let store = Store::open(&options).unwrap();
    let turn = Turn::new("c1");
    store.begin_turn(&turn, "Hello", NewMessage::new(Role::User, "hello")).await.unwrap();
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
async fn an_agent_that_comes_back_keeps_its_rows() {
    let postgres = Postgres::start();
    let (mut manager, register, start) = (Manager::start(&postgres).await, Register::of(&[]), Instant::now());
    let store = talk(&postgres, "helper").await;
    manager.tenancy.departed("team-red", "helper", start);
    manager.round(&register, start).await.1.unwrap();
    register.now(&["helper"]);
    assert!(manager.round(&register, start + GRACE * 2).await.0.is_empty());

    // Gone once more, it has the whole grace once more, from when its last pod has gone.
    register.now(&[]);
    let again = start + GRACE * 2;
    manager.tenancy.departed("team-red", "helper", again);
    assert!(manager.round(&register, again + SECOND * 9).await.0.is_empty());
    manager.tenancy.emptied("team-red", "helper", again + SECOND * 9);
    assert!(manager.round(&register, again + GRACE).await.0.is_empty());
    assert_eq!(rows(&store).await, 1);

    // The API server has it already, and the cache has not heard: the API server is right.
    *register.asked.lock().unwrap() = Some([id("helper")].into());
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
async fn an_agent_that_comes_back_while_its_rows_are_deleted_keeps_the_rest() {
    let postgres = Postgres::start();
    let (mut manager, register, start) = (Manager::start(&postgres).await, Register::of(&[]), Instant::now());
    let many = format!(
        "INSERT INTO slipway.conversations SELECT 'tk_red', '{}', 'c' || n, 't', now(), now(), 0 FROM generate_series(1, 5000) n",
        id("helper")
    );
    postgres.psql(&many);
    manager.tenancy.departed("team-red", "helper", start);
    // Looked at for the comparison, before the deletion, and before a batch for each of the four tables until here.
    *register.returns.lock().unwrap() = Some((6, id("helper")));
    assert!(manager.round(&register, start + GRACE).await.0.is_empty(), "nothing to be told: it is there");
    let left: u32 = postgres.psql("SELECT count(*) FROM slipway.conversations").trim().parse().unwrap();
    assert!((1..5000).contains(&left), "some went, {left} stayed");
    assert!(manager.round(&register, start + Duration::from_hours(2)).await.0.is_empty());
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
