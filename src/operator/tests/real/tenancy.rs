//! Against a real PostgreSQL: each team gets a login of its own, which opens its own rows and no others.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use slipway_api::ids;
use slipway_database::{Holder, Home, NewMessage, Options, PodRun, Retention, Role, Store, Turn};
use slipway_operator::database::DatabaseUrl;
use slipway_operator::tenancy::rows::{Census, Leavings, Roll};
use slipway_operator::tenancy::{DatabaseAccess, DatabaseState, Tenancy, Wanted};
use slipway_peers::Postgres;
use tokio::time::Instant;

const KEY: &[u8] = b"the platform's key, of tests";

fn tenancy(url: &str, wanted: Wanted) -> Tenancy {
    rustls::crypto::ring::default_provider().install_default().ok();
    Tenancy::open(&DatabaseUrl::parse(url).unwrap(), wanted, KEY).unwrap()
}

/// A team that has always been there, by the UID of its name.
fn home(tenancy: &Tenancy, team: &str) -> Home {
    tenancy.home(team, team, 0, None)
}

async fn ensure(tenancy: &Tenancy, team: &str) -> DatabaseState {
    tenancy.ensure(&home(tenancy, team)).await
}

fn access(tenancy: &Tenancy, team: &str) -> DatabaseAccess {
    tenancy.access(team, team)
}

fn login(tenancy: &Tenancy, team: &str) -> DatabaseUrl {
    match access(tenancy, team) {
        DatabaseAccess::Url(url) => url,
        other => panic!("team {team} should have a login, but has {other:?}"),
    }
}

/// The agent's conversations with the login that a team was given, under the team's id, as runtimes are told it.
fn store(login: &DatabaseUrl, team: &str) -> Store {
    let (url, agent_id) = (login.complete().to_owned(), "ag_1".to_owned());
    Store::open(&Options {
        url,
        password: None,
        sslmode: None,
        team: ids::team(team),
        agent_id,
        migrate: false,
        prepared_statements: false,
        run: PodRun::default(),
    })
    .unwrap()
}

fn hello() -> NewMessage {
    NewMessage::new(Role::User, "hello")
}

#[tokio::test]
async fn each_team_has_a_login_that_opens_its_own_rows() {
    let postgres = Postgres::start();
    let tenancy_of_one = tenancy(&postgres.url(), Wanted::RolePerTeam);
    assert!(matches!(ensure(&tenancy_of_one, "red").await, DatabaseState::Unavailable(_)), "there is no schema yet");
    assert_eq!(access(&tenancy_of_one, "red"), DatabaseAccess::Unknown);
    tenancy_of_one.migrate().await.unwrap();
    for team in ["red", "blue"] {
        assert_eq!(ensure(&tenancy_of_one, team).await, DatabaseState::Isolated);
    }
    let (red, blue) = (login(&tenancy_of_one, "red"), login(&tenancy_of_one, "blue"));
    assert_ne!(red.complete(), blue.complete());
    store(&red, "red").begin_turn(&Turn::new("c1"), "Hello", hello(), 0).await.unwrap();
    assert_eq!(store(&red, "red").conversations(10, None, None).await.unwrap().items.len(), 1);
    let seen = store(&blue, "red").conversations(10, None, None).await;
    assert!(seen.is_err() || seen.unwrap().items.is_empty(), "blue's login must not read red's rows");

    // Another replica, or this one after a restart, arrives at the same login; pods keep theirs.
    let again = tenancy(&postgres.url(), Wanted::RolePerTeam);
    again.migrate().await.unwrap();
    ensure(&again, "red").await;
    assert_eq!(login(&again, "red").complete(), red.complete());
}

#[tokio::test]
async fn a_database_that_is_down_takes_no_login_away() {
    let postgres = Postgres::start();
    let tenancy = tenancy(&postgres.url(), Wanted::RolePerTeam);
    tenancy.migrate().await.unwrap();
    ensure(&tenancy, "red").await;
    let before = login(&tenancy, "red");
    postgres.stop();
    assert!(tenancy.migrate().await.is_err());
    let DatabaseState::Unavailable(why) = ensure(&tenancy, "blue").await else { panic!("the database is down") };
    assert!(!why.contains("postgres://") && !why.contains("password"), "{why}");
    assert_eq!(login(&tenancy, "red").complete(), before.complete());
    postgres.restart();
    tenancy.migrate().await.unwrap();
    assert_eq!(ensure(&tenancy, "blue").await, DatabaseState::Isolated);
}

#[tokio::test]
async fn a_login_that_may_not_make_others_is_shared_and_says_what_that_costs() {
    let postgres = Postgres::start();
    postgres.psql("CREATE ROLE plain LOGIN PASSWORD 'plain'");
    postgres.psql("CREATE DATABASE app OWNER plain");
    let url = postgres.url_of("plain", "plain", "app");
    let lesser = tenancy(&url, Wanted::RolePerTeam);
    lesser.migrate().await.unwrap();
    let DatabaseState::Shared(why) = ensure(&lesser, "red").await else { panic!("this login cannot make others") };
    assert!(why.contains("CREATEROLE") && why.contains("every team"), "{why}");
    assert_eq!(login(&lesser, "red").complete(), DatabaseUrl::parse(&url).unwrap().complete());

    let asked_for = tenancy(&postgres.url(), Wanted::Shared);
    asked_for.migrate().await.unwrap();
    let DatabaseState::Shared(why) = ensure(&asked_for, "red").await else { panic!("it was asked for") };
    assert!(why.contains("database.isolation"), "{why}");
}

/// Who there is: these teams, by name, with no agents.
struct Teams(Vec<&'static str>);

impl Census for Teams {
    fn heard(&self, _: &str) -> Option<Roll> {
        None
    }

    async fn asked(&self, _: &str) -> Option<HashMap<String, String>> {
        None
    }

    fn age(&self, _: &str) -> Duration {
        Duration::ZERO
    }

    fn teams(&self) -> Option<HashSet<String>> {
        Some(self.0.iter().map(|team| ids::team(team)).collect())
    }

    async fn asked_teams(&self) -> Option<HashSet<String>> {
        self.teams()
    }
}

#[tokio::test]
async fn a_team_that_is_gone_leaves_no_rows_even_if_the_database_was_down() {
    let postgres = Postgres::start();
    let start = async || {
        let tenancy = tenancy(&postgres.url(), Wanted::RolePerTeam);
        tenancy.is_of("here".to_owned());
        tenancy.migrate().await.unwrap();
        tenancy
    };
    let tenancy = start().await;
    let rows =
        |team: &str| postgres.psql(&format!("SELECT count(*) FROM slipway.conversations WHERE team = 'tk_{team}'")).trim().to_owned();
    for team in ["red", "blue", "green"] {
        ensure(&tenancy, team).await;
        store(&login(&tenancy, team), team).begin_turn(&Turn::new("c1"), "Hello", hello(), 0).await.unwrap();
    }
    tenancy.remove("red").await.unwrap();
    assert_eq!((rows("red"), rows("blue")), ("0".to_owned(), "1".to_owned()));
    assert_eq!(access(&tenancy, "red"), DatabaseAccess::Unknown);
    tenancy.remove("red").await.unwrap();

    postgres.stop();
    assert!(tenancy.remove("blue").await.is_err());
    assert!(tenancy.settle(&Teams(vec!["green"]), 90, &Retention::default()).await.is_err());
    postgres.restart();
    // Nobody remembers it: this is another process.
    let tenancy = start().await;
    tenancy.settle(&Teams(vec!["green"]), 90, &Retention::default()).await.unwrap();
    assert_eq!((rows("blue"), rows("green")), ("0".to_owned(), "1".to_owned()));
}

/// A census of one team without agents.
struct Red(Home);
impl Census for Red {
    fn heard(&self, _: &str) -> Option<Roll> {
        Some(Roll { home: self.0.clone(), agents: HashMap::new() })
    }
    async fn asked(&self, _: &str) -> Option<HashMap<String, String>> {
        Some(HashMap::new())
    }
    fn age(&self, _: &str) -> Duration {
        Duration::ZERO
    }
    fn teams(&self) -> Option<HashSet<String>> {
        Some([self.0.team.clone()].into())
    }
    async fn asked_teams(&self) -> Option<HashSet<String>> {
        self.teams()
    }
}

#[tokio::test]
async fn a_new_team_of_an_old_name_sees_nothing_of_what_is_owed() {
    let postgres = Postgres::start();
    let first = tenancy(&postgres.url(), Wanted::RolePerTeam);
    first.is_of("here".to_owned());
    first.migrate().await.unwrap();
    let holder = |uid: &str, created| Holder { agent_id: "ag_1".into(), uid: uid.into(), created, adopts: None, alone: true };
    first.admit(&home(&first, "red"), &holder("one", 0)).await.unwrap();
    ensure(&first, "red").await;
    let old = login(&first, "red");
    store(&old, "red").begin_turn(&Turn::new("c1"), "Hello", hello(), 0).await.unwrap();
    // The Team goes while the database is away; one of its name comes, and the manager is another.
    postgres.stop();
    assert!(first.remove("red").await.is_err());
    postgres.restart();
    let tenancy = tenancy(&postgres.url(), Wanted::RolePerTeam);
    tenancy.is_of("here".to_owned());
    tenancy.migrate().await.unwrap();
    let second = tenancy.home("red", "second", 9_000_000_000, None);
    let DatabaseState::Unavailable(why) = tenancy.ensure(&second).await else { panic!("old rows are there") };
    assert!(why.contains("earlier Team"), "{why}");
    assert_eq!(tenancy.access("red", "second"), DatabaseAccess::Unknown, "it has no login");
    assert!(tenancy.admit(&second, &holder("two", 9_000_000_000)).await.is_err());
    assert!(store(&old, "red").conversations(10, None, None).await.is_err(), "nor has the earlier one");

    let (census, teams) = (Red(second.clone()), ["red".to_owned()].into());
    Leavings::default().round(&tenancy, &census, &teams, Instant::now()).await.1.unwrap();
    assert_eq!(tenancy.ensure(&second).await, DatabaseState::Isolated);
    let DatabaseAccess::Url(new) = tenancy.access("red", "second") else { panic!("it has a login now") };
    assert_ne!(new.complete(), old.complete());
    assert!(store(&new, "red").conversations(10, None, None).await.unwrap().items.is_empty());
    assert_eq!(postgres.psql("SELECT count(*) FROM slipway.messages").trim(), "0");
    tenancy.admit(&second, &holder("two", 9_000_000_000)).await.unwrap();
}
