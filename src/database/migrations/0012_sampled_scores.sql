-- What scorers found in answers of production that were sampled. Neither what was said nor a judge's words are in it.
CREATE TABLE slipway.sampled_scores (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    -- When the answer was there, by the runtime's clock, so that a write that is repeated changes nothing.
    created_at timestamptz NOT NULL,
    trace_id text COLLATE "C" NOT NULL,
    scorer text COLLATE "C" NOT NULL,
    -- Empty where a runtime was not told.
    track text COLLATE "C" NOT NULL,
    -- What a release names in its status.runHash.
    run_hash text COLLATE "C" NOT NULL,
    -- provider:/model; empty where words were compared.
    judge text COLLATE "C" NOT NULL,
    -- None where the judge gave nothing that can be used.
    value double precision CHECK (value BETWEEN 0 AND 1),
    judge_tokens bigint NOT NULL,
    PRIMARY KEY (team, agent_id, created_at, trace_id, scorer)
);
CREATE INDEX sampled_scores_by_age ON slipway.sampled_scores (created_at);

-- How many answers of an agent were taken to be scored in a day of UTC, by all of its pods together.
CREATE TABLE slipway.sampled_days (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    day date NOT NULL,
    turns integer NOT NULL,
    PRIMARY KEY (team, agent_id, day)
);
