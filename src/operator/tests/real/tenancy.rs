//! Against a real PostgreSQL: each team gets a login of its own, which opens its own rows and no others.

use slipway_api::ids;
use slipway_database::{NewMessage, Options, Role, Store, Turn};
use slipway_operator::database::DatabaseUrl;
use slipway_operator::tenancy::{Access, Standing, Tenancy, Wanted};
use slipway_peers::Postgres;

const KEY: &[u8] = b"the platform's key, of tests";

fn tenancy(url: &str, wanted: Wanted) -> Tenancy {
    rustls::crypto::ring::default_provider().install_default().ok();
    Tenancy::open(&DatabaseUrl::parse(url).unwrap(), wanted, KEY).unwrap()
}

fn login(tenancy: &Tenancy, team: &str) -> DatabaseUrl {
    match tenancy.access(team) {
        Access::Url(url) => url,
        other => panic!("team {team} should have a login, but has {other:?}"),
    }
}

/// The agent's conversations with the login that a team was given, under the team's id, as runtimes are told it.
fn store(login: &DatabaseUrl, team: &str) -> Store {
    let (url, agent_id) = (login.complete().to_owned(), "ag_1".to_owned());
    Store::open(&Options { url, password: None, sslmode: None, team: ids::team(team), agent_id, migrate: false }).unwrap()
}

fn hello() -> NewMessage {
    NewMessage::new(Role::User, "hello")
}

#[tokio::test]
async fn each_team_has_a_login_that_opens_its_own_rows() {
    let postgres = Postgres::start();
    let tenancy_of_one = tenancy(&postgres.url(), Wanted::RolePerTeam);
    assert!(matches!(tenancy_of_one.ensure("red").await, Standing::Unavailable(_)), "there is no schema yet");
    assert_eq!(tenancy_of_one.access("red"), Access::Unknown);
    tenancy_of_one.migrate().await.unwrap();
    for team in ["red", "blue"] {
        assert_eq!(tenancy_of_one.ensure(team).await, Standing::Isolated);
    }
    let (red, blue) = (login(&tenancy_of_one, "red"), login(&tenancy_of_one, "blue"));
    assert_ne!(red.complete(), blue.complete());
    store(&red, "red").begin_turn(&Turn::new("c1"), "Hello", hello()).await.unwrap();
    assert_eq!(store(&red, "red").conversations(10, None, None).await.unwrap().items.len(), 1);
    let seen = store(&blue, "red").conversations(10, None, None).await;
    assert!(seen.is_err() || seen.unwrap().items.is_empty(), "blue's login must not read red's rows");

    // Another replica, or this one after a restart, arrives at the same login; pods keep theirs.
    let again = tenancy(&postgres.url(), Wanted::RolePerTeam);
    again.migrate().await.unwrap();
    again.ensure("red").await;
    assert_eq!(login(&again, "red").complete(), red.complete());
}

#[tokio::test]
async fn a_database_that_is_down_takes_no_login_away() {
    let postgres = Postgres::start();
    let tenancy = tenancy(&postgres.url(), Wanted::RolePerTeam);
    tenancy.migrate().await.unwrap();
    tenancy.ensure("red").await;
    let before = login(&tenancy, "red");
    postgres.stop();
    assert!(tenancy.migrate().await.is_err());
    let Standing::Unavailable(why) = tenancy.ensure("blue").await else { panic!("the database is down") };
    assert!(!why.contains("postgres://") && !why.contains("password"), "{why}");
    assert_eq!(login(&tenancy, "red").complete(), before.complete());
    postgres.restart();
    tenancy.migrate().await.unwrap();
    assert_eq!(tenancy.ensure("blue").await, Standing::Isolated);
}

#[tokio::test]
async fn a_login_that_may_not_make_others_is_shared_and_says_what_that_costs() {
    let postgres = Postgres::start();
    postgres.psql("CREATE ROLE plain LOGIN PASSWORD 'plain'");
    postgres.psql("CREATE DATABASE app OWNER plain");
    let url = postgres.url_of("plain", "plain", "app");
    let lesser = tenancy(&url, Wanted::RolePerTeam);
    lesser.migrate().await.unwrap();
    let Standing::Shared(why) = lesser.ensure("red").await else { panic!("this login cannot make others") };
    assert!(why.contains("CREATEROLE") && why.contains("every team"), "{why}");
    assert_eq!(login(&lesser, "red").complete(), DatabaseUrl::parse(&url).unwrap().complete());

    let asked_for = tenancy(&postgres.url(), Wanted::Shared);
    asked_for.migrate().await.unwrap();
    let Standing::Shared(why) = asked_for.ensure("red").await else { panic!("it was asked for") };
    assert!(why.contains("database.isolation"), "{why}");
}

#[tokio::test]
async fn a_team_that_is_gone_leaves_no_rows_even_if_the_database_was_down() {
    let postgres = Postgres::start();
    let tenancy = tenancy(&postgres.url(), Wanted::RolePerTeam);
    tenancy.migrate().await.unwrap();
    let rows =
        |team: &str| postgres.psql(&format!("SELECT count(*) FROM slipway.conversations WHERE team = 'tk_{team}'")).trim().to_owned();
    for team in ["red", "blue", "green"] {
        tenancy.ensure(team).await;
        store(&login(&tenancy, team), team).begin_turn(&Turn::new("c1"), "Hello", hello()).await.unwrap();
    }
    tenancy.remove("red").await.unwrap();
    assert_eq!((rows("red"), rows("blue")), ("0".to_owned(), "1".to_owned()));
    assert_eq!(tenancy.access("red"), Access::Unknown);
    tenancy.remove("red").await.unwrap();

    postgres.stop();
    for team in ["blue", "green"] {
        assert!(tenancy.remove(team).await.is_err());
        tenancy.owe(team);
    }
    tenancy.pay().await;
    postgres.restart();
    // A team of the same name that has come in the meantime has nothing to fear.
    assert_eq!(tenancy.ensure("green").await, Standing::Isolated);
    tenancy.pay().await;
    assert_eq!((rows("blue"), rows("green")), ("0".to_owned(), "1".to_owned()));
}
