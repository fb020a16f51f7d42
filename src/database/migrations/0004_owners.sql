-- Rows belong to the UID of an Agent and of a Team, since ids are made from names and names come back.

-- Whose the rows are that lie under a team's and an agent's id. No team's login has any right on it.
CREATE TABLE slipway.owners (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    -- The Agent's; of rows from before this step the agent's id.
    uid text COLLATE "C" NOT NULL,
    -- The Team's; of rows from before this step the team's id.
    team_uid text COLLATE "C" NOT NULL,
    -- The UID of the cluster in which both are; empty when it is not known.
    cluster text COLLATE "C" NOT NULL DEFAULT '',
    -- An Agent of that name that was created before then may take the rows over, whatever its UID.
    open_until timestamptz,
    since timestamptz NOT NULL DEFAULT now(),
    -- Of rows that were set aside, whose key is ('aside', uid): the key that they had.
    of_team text COLLATE "C",
    of_agent text COLLATE "C",
    PRIMARY KEY (team, agent_id)
);
INSERT INTO slipway.owners (team, agent_id, uid, team_uid, open_until)
SELECT team, agent_id, agent_id, team, now() FROM (
    SELECT DISTINCT team, agent_id FROM slipway.conversations
    UNION SELECT DISTINCT team, agent_id FROM slipway.memories
    UNION SELECT DISTINCT team, agent_id FROM slipway.usage_minutes) found;

-- The Team that a login was made for. A manager that knows nothing of UIDs leaves the columns to their defaults.
ALTER TABLE slipway.tenants ADD COLUMN uid text NOT NULL DEFAULT '';
ALTER TABLE slipway.tenants ADD COLUMN cluster text NOT NULL DEFAULT '';
ALTER TABLE slipway.tenants ADD COLUMN open_until timestamptz DEFAULT now();

-- A login that was shut out has no team: its place in tenants says so until the role is dropped.
CREATE OR REPLACE FUNCTION slipway.team() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = ''
    AS $$ SELECT team FROM slipway.tenants WHERE role = session_user AND team NOT LIKE 'gone %' $$;

-- Whether the Agent of that UID may be shown what lies under its id: for REST, which may have a login that reads no
-- more than rows. A team's login is told nothing of other teams.
CREATE FUNCTION slipway.owned_by(asked_team text, asked_agent text, asked_uid text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = ''
    AS $$
        SELECT NOT EXISTS (SELECT 1 FROM slipway.tenants WHERE role = session_user AND team <> asked_team)
           AND NOT EXISTS (SELECT 1 FROM slipway.owners o WHERE o.team = asked_team AND o.agent_id = asked_agent
                           AND o.uid <> asked_uid AND o.open_until IS NULL)
    $$;
