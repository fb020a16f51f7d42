-- Who may see which rows, and conversations with their messages.

-- A team's login, and the team whose rows it sees. No team's login may read this table; it asks slipway.team().
CREATE TABLE slipway.tenants (
    role name PRIMARY KEY,
    team text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- By session_user and not current_user: within a function of its owner's rights the latter is the owner, and
-- SET ROLE changes it.
CREATE FUNCTION slipway.team() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = ''
    AS $$ SELECT team FROM slipway.tenants WHERE role = session_user $$;
REVOKE ALL ON FUNCTION slipway.team() FROM PUBLIC;

CREATE TABLE slipway.conversations (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    title text NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- Also the ordinal of the newest message: messages come one after another and none goes alone.
    message_count bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (team, agent_id, id)
);
CREATE INDEX conversations_by_age ON slipway.conversations (team, agent_id, updated_at DESC, id DESC);

CREATE TABLE slipway.messages (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    ordinal bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    role text NOT NULL CHECK (role IN ('user', 'assistant', 'tool')),
    content text NOT NULL,
    -- json, not jsonb: given back as it was written, and U+0000 within it is allowed.
    parts json,
    trace_id text,
    interrupted boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (team, agent_id, conversation_id, ordinal),
    UNIQUE (team, agent_id, id),
    FOREIGN KEY (team, agent_id, conversation_id) REFERENCES slipway.conversations ON DELETE CASCADE
);

-- Answers being made. Apart from conversations, since its rows change several times a second.
CREATE TABLE slipway.turns (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    holder text NOT NULL,
    partial text NOT NULL DEFAULT '',
    since timestamptz NOT NULL,
    lease_until timestamptz NOT NULL,
    PRIMARY KEY (team, agent_id, conversation_id),
    FOREIGN KEY (team, agent_id, conversation_id) REFERENCES slipway.conversations ON DELETE CASCADE
) WITH (fillfactor = 50);
