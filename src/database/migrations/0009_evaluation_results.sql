-- What came of each case of an evaluation, written as it is scored, so that a run that broke off goes on.
CREATE TABLE slipway.evaluation_results (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    -- The id of the EvaluationRun.
    run text COLLATE "C" NOT NULL,
    -- The case's place in the dataset, counted from 0.
    place integer NOT NULL CHECK (place >= 0),
    -- Of the case and of what it is judged by: a result of another case in this place does not count.
    digest bytea NOT NULL,
    -- json, not jsonb: U+0000 within it is allowed.
    result json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- A case has one result, whoever scores it again.
    PRIMARY KEY (team, agent_id, run, place)
);
CREATE INDEX evaluation_results_by_age ON slipway.evaluation_results (created_at);
