-- What was used, by minute and by what ran. Runtimes from before this step go on writing usage_minutes; what is read
-- is read from both.
CREATE TABLE slipway.usage_by_run (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    minute timestamptz NOT NULL,
    -- Empty where a runtime was not told.
    track text COLLATE "C" NOT NULL,
    -- What a release names in its status.runHash.
    run_hash text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    requests bigint NOT NULL,
    errors bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost_micros bigint NOT NULL,
    guard_blocks bigint NOT NULL,
    pii bigint NOT NULL,
    injections bigint NOT NULL,
    violations bigint NOT NULL,
    -- Requests by duration, within the bounds of LATENCY_BOUNDS_MS.
    latency bigint[] NOT NULL,
    PRIMARY KEY (team, agent_id, minute, track, run_hash, provider, model)
);
