//! The platform's database, and that of knowledge bases beside it, by connections of their own. Faults of the database crate hold
//! neither URL nor password.

use slipway_database::Fault;
use tokio::time::timeout;

use super::{Finding, PROBE_TIMEOUT, Status};
use crate::platform::PlatformSettings;

pub(super) async fn database(installed: &PlatformSettings) -> Finding {
    let reader = match installed.reader() {
        Ok(Some(reader)) => reader,
        Ok(None) => return Finding::new(Status::NotConfigured, "there is no database; agents keep what they know in memory"),
        Err(fault) => return Finding::new(Status::Error, fault.to_string()),
    };
    answered(timeout(PROBE_TIMEOUT, reader.ping()).await.ok(), |()| "the database answers and has a schema that fits".to_owned())
}

pub(super) async fn knowledge(installed: &PlatformSettings) -> Finding {
    let reader = match installed.knowledge_reader() {
        Ok(Some(reader)) => reader,
        Ok(None) => return Finding::new(Status::NotConfigured, "there is no database, and so there are no knowledge bases"),
        Err(fault) => return Finding::new(Status::Error, fault.to_string()),
    };
    answered(timeout(PROBE_TIMEOUT, reader.ping()).await.ok(), |vector| match vector {
        Some(version) => format!("the database of knowledge bases answers and has a schema that fits, with pgvector {version}"),
        None => "the database of knowledge bases is there; REST's login may not look into it".to_owned(),
    })
}

/// None: no answer came in time.
fn answered<T>(answer: Option<Result<T, Fault>>, words: impl FnOnce(T) -> String) -> Finding {
    Finding::of(match answer {
        Some(Ok(found)) => Ok(words(found)),
        Some(Err(fault)) => Err(fault.to_string()),
        None => Err(format!("the database does not answer within {} s", PROBE_TIMEOUT.as_secs())),
    })
}

#[cfg(test)]
mod tests {
    use slipway_database::knowledge::KnowledgeAdmin;
    use slipway_peers::Postgres;

    use super::*;

    fn at(url: &str) -> PlatformSettings {
        PlatformSettings::new(None, Some(url))
    }

    #[tokio::test]
    async fn the_database_is_really_asked_and_no_password_told() {
        assert_eq!(database(&PlatformSettings::default()).await.status, Status::NotConfigured);
        let postgres = Postgres::start();
        let empty = database(&at(&postgres.url())).await;
        assert!(empty.status == Status::Error && empty.message.contains("schema"), "{empty:?}");
        slipway_database::migrate(&postgres.url(), None, None).await.unwrap();
        let good = database(&at(&postgres.url())).await;
        assert_eq!(good.status, Status::Ok, "{good:?}");
        let wrong = database(&at(&postgres.url_of("postgres", "hunter2", "postgres"))).await;
        assert!(wrong.status == Status::Error && wrong.message.contains("login") && !wrong.message.contains("hunter2"), "{wrong:?}");
        postgres.psql(
            "CREATE ROLE rest LOGIN PASSWORD 'hunter2'; GRANT USAGE ON SCHEMA slipway TO rest; GRANT SELECT ON slipway.migrations TO rest",
        );
        let few = database(&at(&postgres.url_of("rest", "hunter2", "postgres"))).await;
        assert!(
            few.status == Status::Error && few.message.contains("slipway.conversations") && !few.message.contains("hunter2"),
            "{few:?}"
        );
        postgres.stop();
        assert_eq!(database(&at(&postgres.url())).await.status, Status::Error);
    }

    #[tokio::test]
    async fn the_database_of_knowledge_bases_is_looked_into() {
        assert_eq!(knowledge(&PlatformSettings::default()).await.status, Status::NotConfigured);
        let postgres = Postgres::start();
        let none = knowledge(&at(&postgres.url())).await;
        assert!(none.status == Status::Error && none.message.contains("postgres_knowledge"), "{none:?}");
        slipway_database::migrate(&postgres.url(), None, None).await.unwrap();
        KnowledgeAdmin::open(&postgres.url(), None, None).unwrap().migrate().await.unwrap();
        let good = knowledge(&at(&postgres.url())).await;
        assert!(good.status == Status::Ok && good.message.contains("pgvector 0."), "{good:?}");
        postgres.psql("CREATE ROLE rest LOGIN PASSWORD 'hunter2'");
        let closed = knowledge(&at(&postgres.url_of("rest", "hunter2", "postgres"))).await;
        assert!(closed.status == Status::Ok && closed.message.contains("may not look into it"), "{closed:?}");
    }
}
