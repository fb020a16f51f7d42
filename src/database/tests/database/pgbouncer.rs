//! Everything once more through a PgBouncer in transaction mode, where no two transactions need share a connection.

use slipway_database::{Category, Embedding, Fault, NewMemory, Options, Store, Tenants, UsageMinute, migrate};
use slipway_peers::PgBouncer;

use crate::{Database, Raw, SERVER, home, options, passwords, talk};

#[tokio::test]
async fn many_stores_share_few_connections() {
    let bouncer = PgBouncer::start(&SERVER);
    let database = Database::empty();
    let admin_url = bouncer.url("postgres", "postgres", &database.name);
    migrate(&admin_url, None, None).await.unwrap();
    let tenants = Tenants::open(&admin_url, None, None).unwrap();
    let mut stores = Vec::new();
    for team in ["a", "b"] {
        let login = crate::login(tenants.ensure(&home(team), &passwords(team)).await.unwrap());
        let url = bouncer.url(&login.user, &login.password, &database.name);
        stores.extend((0..6).map(|n| Store::open(&options(&url, team, &format!("ag_{n}"))).unwrap()));
    }
    // Both connections of each, one store after the other: a login takes long in a build without optimisation.
    for store in &stores {
        let (one, two) = futures::future::join(store.ping(), store.ping()).await;
        one.and(two).unwrap();
    }
    let work = futures::future::join_all(stores.iter().map(|store| async move {
        for n in 0..15 {
            talk(store, &format!("conv_{n}"), "q", "a").await?;
            let embedding = Some(Embedding { model: "mini".into(), vector: vec![1.0, 0.0] });
            let memory = NewMemory { content: format!("memory {n}"), category: Category::Fact, source: "chat".into(), embedding };
            store.remember(memory).await?;
            store.search_memories("memory", None, 3).await?;
            store.record_usage(&[UsageMinute { requests: 1, ..UsageMinute::empty(jiff::Timestamp::UNIX_EPOCH, "p", "m") }]).await?;
        }
        Ok::<_, slipway_database::Fault>(store.conversations(100, None, None).await?.items.len())
    }));
    let mut admin = database.raw(&database.url).await;
    let mut most = 0;
    let open = format!("select count(*)::text from pg_stat_activity where datname = '{}' and usename like 'slipway_team_%'", database.name);
    let counting = async {
        loop {
            most = most.max(admin.one(&open).await.parse::<u32>().unwrap());
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        outcomes = work => {
            for outcome in outcomes {
                assert_eq!(outcome, Ok(15));
            }
        }
        () = counting => {}
    }
    assert!((2..=8).contains(&most), "12 stores with 24 connections had {most} of the server's");
    let mut admin = database.raw(&database.url).await;
    assert_eq!(admin.one("select sum(requests)::text from slipway.usage_by_run").await, "180");
    assert_eq!(admin.one("select count(*)::text from slipway.memories").await, "12", "15 that are alike are one");
}

/// The PgBouncer of these tests keeps no prepared statements.
#[tokio::test]
async fn who_says_wrongly_that_statements_are_kept_is_told_what_to_change() {
    let bouncer = PgBouncer::start(&SERVER);
    let database = Database::migrated().await;
    let login = database.login("a").await;
    let url = bouncer.url(&login.user, &login.password, &database.name);
    let stores = [0; 4].map(|_| Store::open(&Options { prepared_statements: true, ..options(&url, "a", "ag_1") }).unwrap());
    let talks = stores.iter().enumerate().map(|(n, store)| async move {
        let mut outcomes = Vec::new();
        for m in 0..10 {
            outcomes.push(talk(store, &format!("conv_{n}_{m}"), "q", "a").await);
        }
        outcomes
    });
    let outcomes: Vec<_> = futures::future::join_all(talks).await.into_iter().flatten().collect();
    let told = |outcome: &Result<(), Fault>| outcome.as_ref().is_err_and(|fault| fault.to_string().contains("database.preparedStatements"));
    assert!(outcomes.iter().any(told), "{outcomes:?}");
    assert!(outcomes.iter().all(|outcome| told(outcome) || matches!(outcome, Ok(()) | Err(Fault::Busy))), "{outcomes:?}");
}

#[tokio::test]
async fn a_teams_login_sees_its_own_rows_here_too() {
    let bouncer = PgBouncer::start(&SERVER);
    let database = Database::migrated().await;
    let mut urls = Vec::new();
    for team in ["a", "b"] {
        let login = database.login(team).await;
        let url = bouncer.url(&login.user, &login.password, &database.name);
        talk(&Store::open(&options(&url, team, "ag_1")).unwrap(), "conv_1", team, team).await.unwrap();
        urls.push(url);
    }
    for (url, team) in urls.iter().zip(["a", "b"]) {
        let mut raw = Raw::connect(&format!("{url}?statement-cache-capacity=0")).await;
        for _ in 0..20 {
            assert_eq!(raw.one("select string_agg(distinct content, ',') from slipway.messages").await, team);
        }
    }
}

#[tokio::test]
async fn agents_and_teams_end_here_too() {
    let bouncer = PgBouncer::start(&SERVER);
    let database = Database::migrated().await;
    let tenants = Tenants::open(&bouncer.url("postgres", "postgres", &database.name), None, None).unwrap();
    let login = crate::login(tenants.ensure(&home("a"), &passwords("a")).await.unwrap());
    let store = Store::open(&options(&bouncer.url(&login.user, &login.password, &database.name), "a", "ag_1")).unwrap();
    talk(&store, "conv_1", "q", "a").await.unwrap();
    assert_eq!(tenants.delete_agent("a", "ag_1").await.unwrap(), 3);
    assert_eq!(tenants.remove("a").await.unwrap(), 0);
}
