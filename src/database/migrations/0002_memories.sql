-- What agents remember. Vectors are in a table of their own, made where pgvector is to be had.
CREATE TABLE slipway.memories (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    content text NOT NULL,
    category text NOT NULL CHECK (category IN ('fact', 'preference', 'instruction', 'observation')),
    source text NOT NULL,
    -- SHA-256 of the text without case, punctuation at its end and superfluous space.
    digest bytea NOT NULL,
    -- The words as they stand, for languages other than English and for names, and their English stems. No GIN
    -- index: under row-level security it could not be used, and one agent's rows are read faster than it would be.
    document tsvector NOT NULL GENERATED ALWAYS AS (to_tsvector('simple', content) || to_tsvector('english', content)) STORED,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (team, agent_id, id),
    UNIQUE (team, agent_id, digest)
);
