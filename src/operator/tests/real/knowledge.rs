//! Against a real PostgreSQL: knowledge bases are their team's alone, tell how they are filled, and go with what they belong to.

use slipway_api::ids;
use slipway_database::Home;
use slipway_database::knowledge::{Begun, DocumentError, Ending, KnowledgeBase, KnowledgeOptions, Report};
use slipway_operator::database::DatabaseUrl;
use slipway_operator::settings::QuotaSettings;
use slipway_operator::tenancy::knowledge::Stage;
use slipway_operator::tenancy::{DatabaseAccess, DatabaseState, Tenancy, Wanted};
use slipway_peers::Postgres;

async fn tenancy(postgres: &Postgres) -> Tenancy {
    rustls::crypto::ring::default_provider().install_default().ok();
    let tenancy =
        Tenancy::open(&DatabaseUrl::parse(&postgres.url()).unwrap(), Wanted::RolePerTeam, b"the platform's key, of tests").unwrap();
    tenancy.migrate().await.unwrap();
    for team in ["red", "blue"] {
        assert_eq!(tenancy.ensure(&home(&tenancy, team)).await, DatabaseState::Isolated);
    }
    tenancy
}

/// By the UID of its name.
fn home(tenancy: &Tenancy, team: &str) -> Home {
    tenancy.home(team, team, 0, None)
}

/// A base as the pods of a team open it.
fn opened(tenancy: &Tenancy, team: &str, name: &str) -> KnowledgeBase {
    let DatabaseAccess::Url(login) = tenancy.access(team, team) else { panic!("team {team} should have a login") };
    let url = login.knowledge().replacen("://", &format!("://{}:{}@", login.user(), login.password().unwrap()), 1);
    let kb_id = ids::knowledge_base(name);
    KnowledgeBase::open(&KnowledgeOptions { url, password: None, sslmode: None, team: ids::team(team), kb_id, connections: 1 }).unwrap()
}

async fn uids(tenancy: &Tenancy) -> Vec<String> {
    tenancy.bases().await.unwrap().into_iter().map(|base| base.uid).collect()
}

#[tokio::test]
async fn a_base_is_its_teams_alone_and_goes_with_it() {
    let postgres = Postgres::start();
    let tenancy = tenancy(&postgres).await;
    for (team, uid) in [("red", "uid-red"), ("blue", "uid-blue")] {
        tenancy.ensure_base(&home(&tenancy, team), uid, "docs", QuotaSettings::default()).await.unwrap();
    }
    let (info, counts) = tenancy.base("uid-red").await.unwrap().unwrap();
    assert_eq!((info.team.as_str(), info.kb_id.as_str(), info.model, counts.ready), ("tk_red", "kb_docs", None, 0));
    let red = opened(&tenancy, "red", "docs");
    red.fix_model("builtin:m", 3).await.unwrap();
    let fixed = |info: slipway_database::knowledge::BaseInfo| (info.model, info.dimensions);
    assert_eq!(fixed(tenancy.base("uid-red").await.unwrap().unwrap().0), (Some("builtin:m".to_owned()), Some(3)));
    assert_eq!(opened(&tenancy, "blue", "docs").model().await.unwrap(), None, "blue's is another one of the same name");

    tenancy.drop_base("uid-red").await.unwrap();
    assert!(tenancy.base("uid-red").await.unwrap().is_none() && red.model().await.is_err());
    // A KnowledgeBase that is there has its place made again.
    tenancy.ensure_base(&home(&tenancy, "red"), "uid-red", "docs", QuotaSettings::default()).await.unwrap();
    assert_eq!(uids(&tenancy).await, ["uid-blue", "uid-red"]);
    tenancy.remove("red").await.unwrap();
    assert_eq!(uids(&tenancy).await, ["uid-blue"]);
}

#[tokio::test]
async fn the_progress_of_an_ingestion_is_what_its_pod_reports() {
    let postgres = Postgres::start();
    let tenancy = tenancy(&postgres).await;
    tenancy.ensure_base(&home(&tenancy, "red"), "uid-docs", "docs", QuotaSettings::default()).await.unwrap();
    let progress = async || tenancy.ingestion_progress("red", ("docs", "uid-docs"), "uid-of-it").await.unwrap();
    assert_eq!(progress().await, None, "its pod has not begun");
    let base = opened(&tenancy, "red", "docs");
    let Begun::Ingestion(ingestion) = base.begin_ingestion("uid-of-it", "files").await.unwrap() else { panic!("nobody else has it") };
    let mut report = Report { phase: "traversing".to_owned(), seen: 3, changed: 1, pages: 7, ..Report::default() };
    report.failed("a.pdf", "it has a password");
    assert!(ingestion.report(&report).await.unwrap());
    let seen = progress().await.unwrap();
    assert_eq!((seen.stage, seen.documents.seen, seen.documents.failed, seen.pages), (Stage::Running, 3, 1, 7));
    assert_eq!(seen.errors[0].message, "it has a password");
    report.errors.insert(0, DocumentError { key: String::new(), error: "the bucket is not there".to_owned() });
    assert!(ingestion.end(&report, Ending::Failed).await.unwrap());
    let seen = progress().await.unwrap();
    assert_eq!((seen.stage, seen.failure.as_deref(), seen.errors.len()), (Stage::Failed, Some("the bucket is not there"), 1));
    let Begun::Ingestion(again) = base.begin_ingestion("uid-of-it", "files").await.unwrap() else { panic!("it has ended") };
    assert!(again.end(&Report::default(), Ending::Succeeded).await.unwrap());
    assert_eq!(progress().await.unwrap().stage, Stage::Completed);
}

#[tokio::test]
async fn a_server_that_is_away_only_delays_the_end_of_a_base() {
    let postgres = Postgres::start();
    let tenancy = tenancy(&postgres).await;
    tenancy.ensure_base(&home(&tenancy, "red"), "uid-docs", "docs", QuotaSettings::default()).await.unwrap();
    postgres.stop();
    assert!(tenancy.drop_base("uid-docs").await.is_err());
    let why = tenancy.base("uid-docs").await.unwrap_err();
    assert!(!why.contains("postgres://") && !why.contains("password"), "{why}");
    postgres.restart();
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    tenancy.drop_base("uid-docs").await.unwrap();
    assert_eq!(uids(&tenancy).await, Vec::<String>::new());
}
