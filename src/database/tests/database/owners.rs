//! Rows belong to UIDs: who comes under an old name is shown nothing that was said before.

use slipway_database::{
    Category, Claim, Embedding, Ensured, Holder, Home, NewMemory, Reader, Store, Turn, UsageMinute, migrate, migrate_up_to,
};

use crate::{Database, Raw, SERVER, home, login, options, password, passwords, talk, user};

/// An Agent of the id `ag_1`, created at the end of time unless said otherwise: later than any row.
fn agent(uid: &str) -> Holder {
    Holder { agent_id: "ag_1".into(), uid: uid.into(), created: 9_000_000_000, adopts: None, alone: true }
}

/// A later Team of the same name.
fn second(team: &str) -> Home {
    Home { uid: format!("second-uid-of-{team}"), created: 9_000_000_000, ..home(team) }
}

fn elsewhere(home: Home) -> Home {
    Home { cluster: "another".into(), ..home }
}

async fn claim(database: &Database, home: &Home, holder: Holder) -> Claim {
    database.tenants().claim(home, &[holder]).await.unwrap()[0]
}

/// Something of every kind.
async fn live(store: &Store) {
    talk(store, "conv_1", "old question", "old answer").await.unwrap();
    store.begin_turn(&Turn::new("conv_1"), "t", user("old, under way"), 0).await.unwrap();
    let embedding = Some(Embedding { model: "mini".into(), vector: vec![1.0, 0.0] });
    store.remember(NewMemory { content: "old memory".into(), category: Category::Fact, source: "chat".into(), embedding }).await.unwrap();
    let usage = UsageMinute { cost_micros: 7, requests: 1, ..UsageMinute::empty(jiff::Timestamp::UNIX_EPOCH, "p", "m") };
    store.record_usage(&[usage]).await.unwrap();
}

/// What a runtime is shown: conversations, memories, cost.
async fn shown(store: &Store) -> (usize, i64, i64) {
    let conversations = store.conversations(10, None, None).await.unwrap().items.len();
    (conversations, store.memory_count().await.unwrap(), store.spent_since(jiff::Timestamp::UNIX_EPOCH).await.unwrap())
}

async fn count(admin: &mut Raw, filter: &str) -> u32 {
    let all =
        "select count(*)::text from (select team, agent_id from slipway.conversations union all select team, agent_id from slipway.messages
        union all select team, agent_id from slipway.memories union all select team, agent_id from slipway.memory_vectors
        union all select team, agent_id from slipway.usage_by_run union all select team, agent_id from slipway.owners) t where ";
    admin.one(&format!("{all}{filter}")).await.parse().unwrap()
}

#[tokio::test]
async fn an_agent_made_again_is_not_let_in_before_old_rows_are_gone() {
    let database = Database::migrated().await;
    assert_eq!(claim(&database, &home("a"), agent("first")).await, Claim::Held);
    let store = database.tenant("a", "ag_1").await;
    live(&store).await;
    assert_eq!(claim(&database, &home("a"), agent("first")).await, Claim::Held, "as often as it is asked");
    // While pods of the first still run, and while its rows are there.
    assert_eq!(claim(&database, &home("a"), Holder { alone: false, ..agent("second") }).await, Claim::Waits);
    assert_eq!(claim(&database, &home("a"), agent("second")).await, Claim::Taken { deleted: true });
    assert_eq!(shown(&store).await, (1, 1, 7), "nothing was done to them yet");
    database.tenants().delete_agent("a", "ag_1").await.unwrap();
    assert_eq!(claim(&database, &home("a"), agent("second")).await, Claim::Held);
    assert_eq!(shown(&store).await, (0, 0, 0));
    assert_eq!(claim(&database, &home("a"), agent("first")).await, Claim::Held, "with nothing there, names are nobody's");
}

#[tokio::test]
async fn rows_of_another_cluster_are_set_aside_and_handed_over() {
    let database = Database::migrated().await;
    claim(&database, &home("a"), agent("first")).await;
    let store = database.tenant("a", "ag_1").await;
    live(&store).await;
    let (here, tenants) = (elsewhere(home("a")), database.tenants());
    assert_eq!(claim(&database, &here, agent("second")).await, Claim::Taken { deleted: false });
    tenants.set_aside("a", "ag_1").await.unwrap();
    assert_eq!(claim(&database, &here, agent("second")).await, Claim::Held);
    assert_eq!(shown(&store).await, (0, 0, 0));
    let mut admin = database.raw(&database.url).await;
    // By the team's own login, whatever it asks for.
    let mut raw = Raw::connect(&database.url_of(&database.login("a").await)).await;
    let seen = raw.one("select count(*)::text from slipway.messages").await;
    assert_eq!((&*seen, count(&mut admin, "team = 'aside' and agent_id = 'first'").await), ("0", 8), "it is there, and out of reach");

    talk(&store, "conv_2", "new", "words").await.unwrap();
    let heir = Holder { adopts: Some("first".into()), ..agent("second") };
    let found = tenants.adoptable(&here, &[heir]).await.unwrap();
    assert_eq!(found, [("first".to_owned(), "ag_1".to_owned())]);
    tenants.bring_back("first", &here, "ag_1").await.unwrap();
    assert_eq!(shown(&store).await, (2, 1, 7));
    assert_eq!(store.history("conv_1", 10).await.unwrap()[1].content, "old answer");
    assert_eq!(count(&mut admin, "team = 'aside'").await, 0);
    assert!(tenants.adoptable(&here, &[Holder { adopts: Some("first".into()), ..agent("second") }]).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_was_set_aside_goes_after_a_week() {
    let database = Database::migrated().await;
    claim(&database, &home("a"), agent("first")).await;
    live(&database.tenant("a", "ag_1").await).await;
    let tenants = database.tenants();
    tenants.set_aside("a", "ag_1").await.unwrap();
    assert_eq!(tenants.expire().await.unwrap(), 0);
    let mut admin = database.raw(&database.url).await;
    admin.ask("update slipway.owners set since = now() - interval '8 days'").await.unwrap();
    assert!(tenants.expire().await.unwrap() > 0);
    assert_eq!(count(&mut admin, "true").await, 0);
}

#[tokio::test]
async fn an_admin_gives_an_agent_the_rows_before_it_begins() {
    let database = Database::migrated().await;
    claim(&database, &home("a"), agent("first")).await;
    let store = database.tenant("a", "ag_1").await;
    live(&store).await;
    let heir = |of: &str| Holder { adopts: Some(of.into()), ..agent("second") };
    assert_eq!(claim(&database, &elsewhere(home("a")), heir("somebody")).await, Claim::Taken { deleted: false });
    assert_eq!(claim(&database, &elsewhere(home("a")), heir("first")).await, Claim::Held);
    assert_eq!(shown(&store).await, (1, 1, 7));
}

#[tokio::test]
async fn an_agent_that_runs_keeps_its_rows_through_the_upgrade() {
    let database = Database::empty();
    migrate_up_to(&database.url, 3).await.unwrap();
    let mut admin = database.raw(&database.url).await;
    let conversation = "insert into slipway.conversations values ('a', 'ag_1', 'conv_1', 'old', now(), now(), 0)";
    admin.ask(conversation).await.unwrap();
    // As a manager made it that knew nothing of UIDs.
    admin.ask("insert into slipway.tenants (role, team) values ('slipway_team_of_old', 'a')").await.unwrap();
    SERVER.psql(&format!("create role slipway_team_of_old login password '{}'", password("a")));
    migrate(&database.url, None, None).await.unwrap();
    let ensured = database.tenants().ensure(&home("a"), &passwords("a")).await.unwrap();
    assert_eq!(login(ensured).user, "slipway_team_of_old");
    assert_eq!(claim(&database, &home("a"), Holder { created: 0, ..agent("first") }).await, Claim::Held);
    let store = database.tenant("a", "ag_1").await;
    assert_eq!(store.conversations(10, None, None).await.unwrap().items.len(), 1);
    assert_eq!(claim(&database, &home("a"), agent("second")).await, Claim::Taken { deleted: true }, "it is the first's from now on");

    // One that was made after the upgrade is not the Agent that left them, nor is such a Team.
    admin.ask(&conversation.replace("'a'", "'b'")).await.unwrap();
    assert_eq!(claim(&database, &home("b"), agent("late")).await, Claim::Taken { deleted: false });
}

#[tokio::test]
async fn a_later_team_has_another_login_and_waits_for_old_rows_to_go() {
    let database = Database::migrated().await;
    claim(&database, &home("a"), agent("first")).await;
    let old = database.login("a").await;
    let store = Store::open(&options(&database.url_of(&old), "a", "ag_1")).unwrap();
    live(&store).await;
    let (tenants, second) = (database.tenants(), second("a"));
    let mut open = Raw::connect(&database.url_of(&old)).await;
    // Again and again, and after a restart as well.
    for _ in 0..2 {
        assert_eq!(database.tenants().ensure(&second, &passwords("second")).await.unwrap(), Ensured::Former);
        assert!(Raw::try_connect(&database.url_of(&old)).await.is_err(), "the earlier team's login opens nothing");
        assert!(store.conversations(10, None, None).await.map_or(true, |page| page.items.is_empty()));
    }
    let row = |team: &str| format!("insert into slipway.conversations values ({team}, 'ag_1', 'late', 't', now(), now(), 0)");
    for team in ["'a'", "slipway.team()", "'gone ' || session_user"] {
        assert!(open.ask(&row(team)).await.is_err(), "a connection that was open writes nothing as {team}");
    }
    let strangers = tenants.strangers(&second, &[]).await.unwrap();
    assert!(strangers[0].of_former_team && strangers[0].was_here, "{strangers:?}");
    assert_eq!(tenants.teams_of("here").await.unwrap(), [("a".to_owned(), "uid-of-a".to_owned())]);
    tenants.remove("a").await.unwrap();
    let new = login(tenants.ensure(&second, &passwords("second")).await.unwrap());
    assert_ne!(new.user, old.user);
    let mut raw = Raw::connect(&database.url_of(&new)).await;
    assert_eq!(raw.one("select count(*)::text from slipway.messages").await, "0");
    let mut admin = database.raw(&database.url).await;
    assert_eq!(admin.one(&format!("select count(*)::text from pg_roles where rolname = '{}'", old.user)).await, "0");
}

#[tokio::test]
async fn a_restored_team_is_given_what_an_admin_says() {
    let database = Database::migrated().await;
    claim(&database, &home("a"), agent("first")).await;
    live(&database.tenant("a", "ag_1").await).await;
    let heir = Home { adopts: Some("uid-of-a".into()), ..elsewhere(second("a")) };
    let ensured = database.tenants().ensure(&heir, &passwords("second")).await.unwrap();
    // Agents come after their Team, and until then nobody deletes what is theirs.
    let strangers = database.tenants().strangers(&heir, &[]).await.unwrap();
    assert!(strangers[0].awaited && !strangers[0].of_former_team, "{strangers:?}");
    assert_eq!(claim(&database, &heir, agent("second")).await, Claim::Held);
    let store = Store::open(&options(&database.url_of(&login(ensured)), "a", "ag_1")).unwrap();
    assert_eq!(shown(&store).await, (1, 1, 7));
}

#[tokio::test]
async fn rest_shows_an_agent_nothing_of_an_earlier_one() {
    let database = Database::migrated().await;
    claim(&database, &home("a"), agent("first")).await;
    live(&database.tenant("a", "ag_1").await).await;
    let reader = Reader::open(&database.url, None, None).unwrap();
    for (uid, seen) in [("first", 1), ("second", 0)] {
        let records = reader.of("a", "ag_1", uid).unwrap();
        assert_eq!(records.conversations(10, None, None).await.unwrap().items.len(), seen, "{uid}");
        assert_eq!(records.memories(10, None).await.unwrap().items.len(), seen, "{uid}");
        assert_eq!(records.conversation("conv_1").await.unwrap().is_some(), seen == 1, "{uid}");
    }
}

#[tokio::test]
async fn one_team_cannot_take_all_connections_nor_keep_a_password_of_its_own() {
    let database = Database::migrated().await;
    let login = database.login("a").await;
    let url = database.url_of(&login);
    let mut raw = Raw::connect(&url).await;
    let limit: usize = raw.one("select rolconnlimit::text from pg_roles where rolname = session_user").await.parse().unwrap();
    let most: usize = raw.one("show max_connections").await.parse().unwrap();
    assert!((10..most - 10).contains(&limit), "{limit} of {most}");
    assert!(raw.ask(&format!("alter role {} connection limit -1", login.user)).await.is_err());
    // Its share becomes smaller as teams come.
    database.login("b").await;
    database.login("a").await;
    let shared: usize = raw.one("select rolconnlimit::text from pg_roles where rolname = session_user").await.parse().unwrap();
    assert!(shared < limit && shared >= 10, "{shared} of {limit}");
    database.raw(&database.url).await.ask(&format!("alter role {} connection limit 3", login.user)).await.unwrap();
    let mut held = Vec::new();
    let refused = loop {
        match Raw::try_connect(&url).await {
            Ok(connection) => held.push(connection),
            Err(error) => break error.to_string(),
        }
    };
    assert!(held.len() < 3 && refused.contains("too many connections"), "{} {refused}", held.len());

    raw.ask(&format!("alter role {} password 'another-one-of-its-own'", login.user)).await.unwrap();
    drop(held);
    assert!(Raw::try_connect(&url).await.is_err(), "the platform's password is none any more");
    database.login("a").await;
    Raw::connect(&url).await;
}
