//! A platform's database with its sibling, and a team in it that has a knowledge base.

use anyhow::bail;
use slipway_database::knowledge::{BaseSpec, KnowledgeAdmin, KnowledgeBase, KnowledgeOptions, Quota};
use slipway_database::{Ensured, Home, Login, Passwords, Tenants, migrate};
use slipway_peers::Postgres;
use sqlx::{Connection, PgConnection};

pub(super) const BASE: &str = "kb_docs";
const QUOTA: u64 = 1 << 40;

pub(super) struct Tenant {
    _postgres: Postgres,
    pub team: String,
    /// Of the sibling database, with the team's login.
    pub url: String,
    sibling: String,
}

impl Tenant {
    /// On a server that keeps what it says it keeps.
    pub(super) async fn prepare(team: &str) -> anyhow::Result<Self> {
        let postgres = Postgres::durable();
        let url = postgres.url();
        migrate(&url, None, None).await?;
        let home = Home { team: team.to_owned(), uid: format!("uid-of-{team}"), created: 0, adopts: None, cluster: "here".to_owned() };
        let password = format!("a-long-password-of-team-{team}");
        let passwords = Passwords { before: format!("{password}-before"), own: password };
        let Ensured::Login(Login { user, password }) = Tenants::open(&url, None, None)?.ensure(&home, &passwords).await? else {
            bail!("the server makes no logins");
        };
        let admin = KnowledgeAdmin::open(&url, None, None)?;
        admin.migrate().await?;
        admin.admit(team, &home.uid, &user).await?;
        let spec = BaseSpec {
            uid: "base".to_owned(),
            team: team.to_owned(),
            team_uid: home.uid,
            kb_id: BASE.to_owned(),
            upload_quota: QUOTA,
            team_upload_quota: QUOTA,
            quota: Quota { documents: QUOTA, chunks: QUOTA },
        };
        admin.ensure_base(&spec).await?;
        let (own, sibling) =
            (postgres.url_of(&user, &password, admin.database()), postgres.url_of("postgres", "postgres", admin.database()));
        Ok(Self { _postgres: postgres, team: team.to_owned(), url: own, sibling })
    }

    pub(super) fn base(&self) -> anyhow::Result<KnowledgeBase> {
        let options = KnowledgeOptions {
            url: self.url.clone(),
            password: None,
            sslmode: None,
            team: self.team.clone(),
            kb_id: BASE.to_owned(),
            connections: 2,
        };
        Ok(KnowledgeBase::open(&options)?)
    }

    /// A connection of the owner to the sibling database.
    pub(super) async fn owner(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(&self.sibling).await?)
    }
}
