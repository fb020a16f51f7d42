-- Knowledge bases, and which login reaches which of them. Logins of teams have no right on any table: they call
-- functions, which run with the owner's rights and find the team by themselves.

-- A team's login. uid is the Team's: another Team of the same name reaches no base of the former.
CREATE TABLE slipway.tenants (
    team text COLLATE "C" PRIMARY KEY,
    role name NOT NULL UNIQUE,
    uid text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- By session_user and not current_user, which SET ROLE and functions change. Where all teams share the owner's login, a setting
-- of the transaction names the team; of any other login that setting is not looked at.
CREATE FUNCTION slipway.team() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT CASE WHEN session_user = current_user THEN nullif(current_setting('slipway.team', true), '')
                      ELSE (SELECT team FROM slipway.tenants WHERE role = session_user) END $$;

CREATE TABLE slipway.teams (
    team text COLLATE "C" PRIMARY KEY,
    upload_quota bigint NOT NULL
);

CREATE TABLE slipway.bases (
    uid text COLLATE "C" PRIMARY KEY,
    team text COLLATE "C" NOT NULL REFERENCES slipway.teams,
    team_uid text COLLATE "C" NOT NULL,
    kb_id text COLLATE "C" NOT NULL,
    -- The table that has its chunks. Not attached to a parent: a long transaction that writes to one base would then hold
    -- up the making and dropping of all others. Its name is a hash, since every login may list tables.
    chunks name NOT NULL UNIQUE,
    model text COLLATE "C",
    dimensions integer CHECK (dimensions BETWEEN 1 AND 4000),
    -- Counts replacements of the model, so that no vector of a former one is shown.
    epoch integer NOT NULL DEFAULT 0,
    indexed boolean NOT NULL DEFAULT false,
    upload_quota bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Set when it is to be dropped; from then on nobody finds it.
    gone_since timestamptz
);
CREATE UNIQUE INDEX bases_by_name ON slipway.bases (team, kb_id) WHERE gone_since IS NULL;

-- A row to lock while a base's index is built.
CREATE TABLE slipway.builds (
    base text COLLATE "C" PRIMARY KEY REFERENCES slipway.bases ON DELETE CASCADE
);

-- The team's base of that name.
CREATE FUNCTION slipway.own_base(kb text) RETURNS slipway.bases
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases;
    BEGIN
        SELECT * INTO b FROM slipway.bases
        WHERE team = slipway.team() AND kb_id = kb AND gone_since IS NULL
          AND (session_user = current_user OR team_uid = (SELECT uid FROM slipway.tenants WHERE role = session_user));
        IF NOT FOUND THEN
            RAISE EXCEPTION 'this team has no such knowledge base' USING ERRCODE = 'SK404';
        END IF;
        RETURN b;
    END $$;

-- A later step that adds a column to chunks adds it to each table that bases.chunks names, and to this function.
-- Vectors stay in the row: a search without an index reads them all, and text lies elsewhere if the row is long.
CREATE FUNCTION slipway.make_chunks(name name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, slipway, pg_temp
    AS $$
    BEGIN
        EXECUTE format('
            CREATE TABLE slipway.%1$I (
                revision uuid NOT NULL,
                ordinal integer NOT NULL,
                page integer,
                tokens integer NOT NULL,
                starts bigint NOT NULL,
                ends bigint NOT NULL,
                hash bytea NOT NULL,
                section text NOT NULL,
                content text NOT NULL,
                embedding halfvec,
                words tsvector NOT NULL GENERATED ALWAYS AS (
                    setweight(to_tsvector(''simple'', section) || to_tsvector(''english'', section), ''B'')
                    || to_tsvector(''simple'', content) || to_tsvector(''english'', content)) STORED,
                PRIMARY KEY (revision, ordinal))', name);
        EXECUTE format('ALTER TABLE slipway.%I ALTER COLUMN embedding SET STORAGE MAIN', name);
        EXECUTE format('CREATE INDEX %I ON slipway.%I USING hash (hash)', name || '_hash', name);
        EXECUTE format('CREATE INDEX %I ON slipway.%I USING gin (words)', name || '_words', name);
    END $$;

CREATE FUNCTION slipway.base(kb text) RETURNS TABLE (uid text, model text, dimensions integer, indexed boolean)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT b.uid, b.model, b.dimensions, b.indexed FROM slipway.own_base(kb) b $$;

-- The first model stays.
CREATE FUNCTION slipway.fix_model(kb text, model text, dimensions integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        same boolean;
    BEGIN
        UPDATE slipway.bases t SET model = $2, dimensions = $3 WHERE t.uid = b.uid AND t.model IS NULL;
        SELECT t.model = $2 AND t.dimensions = $3 INTO same FROM slipway.bases t WHERE t.uid = b.uid;
        IF NOT coalesce(same, false) THEN
            RAISE EXCEPTION 'the knowledge base has vectors of another embedding model; a change of models needs all documents to be embedded again'
                USING ERRCODE = 'SK409';
        END IF;
    END $$;
