//! The manager's door: each team's login, and the end of teams and agents.
//!
//! A team's login belongs to a group that has the rights; row-level security shows it the rows of the team that
//! `slipway.tenants` gives to its name, and no others.

use std::fmt;

use sqlx::{Executor, Row};

use crate::connection::{Door, Work, ask, in_long_time, in_time, settings};
use crate::{Fault, Login, id, login, roles};

pub struct Tenants {
    pub(crate) door: Door,
}

/// What keeps teams apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// The database itself: each team has a login that sees its own rows.
    RolePerTeam,
    /// Runtimes use the platform's login and are trusted to ask for their own rows only.
    Shared {
        /// Why it is so.
        why: String,
    },
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RolePerTeam => f.write_str("each team has a database login of its own, which sees that team's rows alone"),
            Self::Shared { why } => write!(
                f,
                "all teams' agents share the platform's database login ({why}): whoever can read one agent's Secret, or runs code in its pod, \
                 can read and change the conversations, memories and usage of every team"
            ),
        }
    }
}

impl Tenants {
    /// Connects to nothing yet. The login is the one that migrates.
    pub fn open(url: &str, password: Option<&str>, sslmode: Option<&str>) -> Result<Self, Fault> {
        Ok(Self { door: Door::new(settings(url, password, sslmode)?, 2) })
    }

    pub async fn isolation(&self) -> Result<Isolation, Fault> {
        in_time(async {
            let mut work = self.door.begin().await?;
            let isolation = isolation(&mut work, self.door.user()).await?;
            work.commit().await?;
            Ok(isolation)
        })
        .await
    }

    /// Makes or mends a team's login. `None` under [`Isolation::Shared`], when there is only the platform's.
    pub async fn ensure(&self, team: &str, password: &str) -> Result<Option<Login>, Fault> {
        id::check("team", team)?;
        login::check(password)?;
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            if isolation(&mut work, self.door.user()).await? != Isolation::RolePerTeam {
                work.commit().await?;
                return Ok(None);
            }
            // One at a time: changes of roles do not wait for each other, they fail.
            work.execute("LOCK TABLE slipway.tenants IN SHARE ROW EXCLUSIVE MODE").await?;
            let database = roles::database(&mut work).await?;
            let (group, user) = (roles::group(&database), roles::team(&database, team));
            if !roles::exists(&mut work, &group).await? {
                run(&mut work, format!("CREATE ROLE {group} NOLOGIN")).await?;
            }
            roles::grant(&mut work, &group).await?;
            self.mend(&mut work, &group, &user, password).await?;
            ask("INSERT INTO slipway.tenants (role, team) VALUES ($1::text::name, $2) ON CONFLICT (team) DO UPDATE SET role = excluded.role")
                .bind(&user)
                .bind(team)
                .execute(&mut *work)
                .await?;
            work.commit().await?;
            Ok(Some(Login { user, password: password.to_owned() }))
        })
        .await
    }

    async fn mend(&self, work: &mut Work, group: &str, user: &str, password: &str) -> Result<(), Fault> {
        const FOUND: &str = "
            SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls
                   OR EXISTS (SELECT 1 FROM pg_auth_members m WHERE m.member = r.oid AND m.roleid <> to_regrole($2)) AS mighty,
                   EXISTS (SELECT 1 FROM pg_auth_members m WHERE m.member = r.oid AND m.roleid = to_regrole($2)) AS member
            FROM pg_roles r WHERE rolname = $1";
        let found = ask(FOUND).bind(user).bind(group).fetch_optional(&mut **work).await?;
        let verifier = login::verifier(password);
        let member = match found {
            None => {
                run(work, format!("CREATE ROLE {user} LOGIN PASSWORD '{verifier}'")).await?;
                false
            }
            Some(row) if row.try_get("mighty")? => {
                return Err(Fault::Refused(format!("the role {user} has more rights than a team's login has; somebody gave them to it")));
            }
            Some(row) => {
                let altered = run(work, format!("ALTER ROLE {user} LOGIN PASSWORD '{verifier}'")).await;
                altered.map_err(|fault| match fault {
                    Fault::Broken(_) => Fault::Refused(format!("the role {user} exists and {} may not alter it", self.door.user())),
                    other => other,
                })?;
                row.try_get("member")?
            }
        };
        if !member {
            run(work, format!("GRANT {group} TO {user}")).await?;
        }
        // For sessions of others than our runtimes, which set their own limits in each transaction.
        run(work, format!("ALTER ROLE {user} SET statement_timeout = '30s'; ALTER ROLE {user} SET idle_in_transaction_session_timeout = '30s'; ALTER ROLE {user} SET search_path = ''"))
            .await
    }
}

/// Names are made by `roles` and verifiers by `login`: neither holds anything to quote.
pub(crate) async fn run(work: &mut Work, statement: String) -> Result<(), Fault> {
    work.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(statement))).await?;
    Ok(())
}

pub(crate) async fn isolation(work: &mut Work, platform: &str) -> Result<Isolation, Fault> {
    let row = ask("SELECT rolsuper OR rolcreaterole AS may FROM pg_roles WHERE rolname = current_user").fetch_one(&mut **work).await?;
    if row.try_get("may")? {
        return Ok(Isolation::RolePerTeam);
    }
    Ok(Isolation::Shared { why: format!("{platform} may not create roles; ALTER ROLE {platform} CREATEROLE would let it") })
}
