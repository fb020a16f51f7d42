//! The manager's door: each team's login, and the end of teams and agents.
//!
//! A team's login belongs to a group that has the rights; row-level security shows it the rows of the team that
//! `slipway.tenants` gives to its name, and no others.

use std::fmt;

use sqlx::{Executor, Row};

use crate::connection::{Door, Work, ask, in_long_time, in_time, settings};
use crate::owners::Home;
use crate::{Fault, Login, Readings, id, login, roles, strangers};

/// The fewest connections that a team's login may have: five pods of two.
pub const FEWEST_CONNECTIONS: i64 = 10;
/// Connections that no team is given: two for each of a few managers, REST and history, and an administrator's.
const PLATFORM_CONNECTIONS: i64 = 12;

pub struct Tenants {
    pub(crate) door: Door,
}

/// What a Team's login may be given. Logins from before Teams were told apart by their UIDs keep their passwords.
pub struct Passwords {
    pub own: String,
    pub before: String,
}

/// What came of asking for a Team's login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ensured {
    Login(Login),
    /// There is only the platform's; see [`Isolation::Shared`].
    Shared,
    /// Rows of an earlier Team of that name are still there. Its login is shut out.
    Former,
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
                "all teams' agents share the platform's database login ({why}): anyone who can read one agent's Secret, or runs code in its pod, \
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

    /// What is read of many agents at once.
    pub fn readings(&self) -> Readings<'_> {
        Readings(&self.door)
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

    /// Makes or mends a Team's login. Another Team of that name has another login, and one that comes later gets its own
    /// only when nothing is left of what the earlier one's agents said: until then it is [`Ensured::Former`].
    pub async fn ensure(&self, home: &Home, passwords: &Passwords) -> Result<Ensured, Fault> {
        id::check("team", &home.team)?;
        login::check(&passwords.own)?;
        login::check(&passwords.before)?;
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            if isolation(&mut work, self.door.user()).await? != Isolation::RolePerTeam {
                work.commit().await?;
                return Ok(Ensured::Shared);
            }
            // One at a time: changes of roles do not wait for each other, they fail.
            work.execute("LOCK TABLE slipway.tenants IN SHARE ROW EXCLUSIVE MODE").await?;
            let database = roles::database(&mut work).await?;
            let group = roles::group(&database);
            if !roles::exists(&mut work, &group).await? {
                run(&mut work, format!("CREATE ROLE {group} NOLOGIN")).await?;
            }
            roles::grant(&mut work, &group).await?;
            adopt(&mut work, home).await?;
            let Some(user) = user(&mut work, home, &database).await? else {
                shut_out(&mut work, &home.team).await?;
                work.commit().await?;
                return Ok(Ensured::Former);
            };
            let password = if user == roles::team_before(&database, &home.team) { &passwords.before } else { &passwords.own };
            self.mend(&mut work, &group, &user, password).await?;
            ask("INSERT INTO slipway.tenants (role, team, uid, cluster, open_until) VALUES ($1::text::name, $2, $3, $4, NULL)
                 ON CONFLICT (team) DO UPDATE SET role = excluded.role, uid = excluded.uid, cluster = excluded.cluster, open_until = NULL")
            .bind(&user)
            .bind(&home.team)
            .bind(&home.uid)
            .bind(&home.cluster)
            .execute(&mut *work)
            .await?;
            work.commit().await?;
            Ok(Ensured::Login(Login { user, password: password.clone() }))
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
        let limit = connections(work).await?;
        run(work, format!("ALTER ROLE {user} CONNECTION LIMIT {limit}")).await?;
        // For sessions of others than our runtimes, which set their own limits in each transaction.
        run(work, format!("ALTER ROLE {user} SET statement_timeout = '30s'; ALTER ROLE {user} SET idle_in_transaction_session_timeout = '30s'; ALTER ROLE {user} SET search_path = ''"))
            .await
    }
}

/// How many connections one team's login may have: its share of what the server has without those that are kept for the
/// platform, and no fewer than a team needs that runs a few pods. So no team takes all of them, and the platform's own
/// are out of the reach of all teams together as long as these are no more than the server has shares for.
async fn connections(work: &mut Work) -> Result<i64, Fault> {
    const SHARE: &str = "
        SELECT greatest($1, (current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint - $2)
                            / greatest(1, (SELECT count(*) FROM slipway.tenants))) AS share";
    Ok(ask(SHARE).bind(FEWEST_CONNECTIONS).bind(PLATFORM_CONNECTIONS).fetch_one(&mut **work).await?.try_get("share")?)
}

/// What a Team takes over that an admin says is to have the rows of an earlier one.
async fn adopt(work: &mut Work, home: &Home) -> Result<(), Fault> {
    const LOGIN: &str = "
        UPDATE slipway.tenants SET uid = $2, cluster = $3, open_until = NULL WHERE team = $1 AND coalesce(nullif(uid, ''), team) = $4";
    const ROWS: &str = "
        UPDATE slipway.owners SET team_uid = $2, open_until = 'infinity', since = now() WHERE team = $1 AND team_uid = $3 AND $2 <> $3";
    let Some(former) = &home.adopts else { return Ok(()) };
    ask(LOGIN).bind(&home.team).bind(&home.uid).bind(&home.cluster).bind(former).execute(&mut **work).await?;
    ask(ROWS).bind(&home.team).bind(&home.uid).bind(former).execute(&mut **work).await?;
    Ok(())
}

/// The name of a Team's login; none while there is something of an earlier Team of its name.
async fn user(work: &mut Work, home: &Home, database: &str) -> Result<Option<String>, Fault> {
    const FOUND: &str = "
        SELECT role::text AS role, uid = $2 AS same, coalesce(uid IN ('', team) AND open_until >= to_timestamp($3), false) AS open
        FROM slipway.tenants WHERE team = $1";
    // Of a Team that was there when rows had no UIDs, they are its own.
    const TAKE: &str = "UPDATE slipway.owners SET team_uid = $2 WHERE team = $1 AND team_uid = $1 AND open_until >= to_timestamp($3)";
    let found = ask(FOUND).bind(&home.team).bind(&home.uid).bind(home.created).fetch_optional(&mut **work).await?;
    let role = match found {
        Some(row) if row.try_get("same")? => return Ok(Some(row.try_get("role")?)),
        Some(row) if row.try_get("open")? => row.try_get("role")?,
        Some(_) => return Ok(None),
        None => roles::team(database, &home.team, &home.uid),
    };
    ask(TAKE).bind(&home.team).bind(&home.uid).bind(home.created).execute(&mut **work).await?;
    Ok((!strangers::of_former_team(work, home).await?).then_some(role))
}

/// From here on the team's login opens no connection, and those it has see no rows. What is left of it is found by its
/// place in `tenants`, which says that it is to go.
pub(crate) async fn shut_out(work: &mut Work, team: &str) -> Result<(), Fault> {
    const MARK: &str = "UPDATE slipway.tenants SET team = 'gone ' || role WHERE team = $1 RETURNING role::text AS role";
    for row in ask(MARK).bind(team).fetch_all(&mut **work).await? {
        let user: String = row.try_get("role")?;
        if roles::exists(work, &user).await? {
            run(work, format!("ALTER ROLE {user} NOLOGIN")).await?;
        }
    }
    Ok(())
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
