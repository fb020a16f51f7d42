-- Traces in which errors and attempts at prompt injection of a minute can be seen, as evidence of alerts. Null where there were none, or
-- the runtime was of an earlier version. Rows that are there have none, so that the bound need not be checked of them.
ALTER TABLE slipway.usage_by_run
    ADD COLUMN last_failed_trace text COLLATE "C",
    ADD COLUMN last_injection_trace text COLLATE "C",
    ADD CONSTRAINT usage_by_run_traces
        CHECK (octet_length(last_failed_trace) <= 128 AND octet_length(last_injection_trace) <= 128) NOT VALID;

-- The five newest of each, of the newest 1,000 rows of an agent. A statement is about 250 agents at most (`Readings::traces`).
CREATE FUNCTION slipway.traces_since(teams text[], agents text[], uids text[], since timestamptz) RETURNS TABLE (
    nth bigint, failed text[], injections text[]
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT k.nth,
           coalesce((array_agg(f.last_failed_trace ORDER BY f.minute DESC) FILTER (WHERE f.last_failed_trace IS NOT NULL))[1:5], '{}'),
           coalesce((array_agg(f.last_injection_trace ORDER BY f.minute DESC) FILTER (WHERE f.last_injection_trace IS NOT NULL))[1:5], '{}')
    FROM unnest(teams, agents, uids) WITH ORDINALITY AS k (team, agent_id, uid, nth), LATERAL (
        SELECT u.minute, u.last_failed_trace, u.last_injection_trace FROM slipway.usage_by_run u
        WHERE u.team = k.team AND u.agent_id = k.agent_id AND u.minute >= since ORDER BY u.minute DESC LIMIT 1000) f
    WHERE NOT EXISTS (SELECT FROM slipway.owners o WHERE o.team = k.team AND o.agent_id = k.agent_id
                      AND o.uid <> k.uid AND o.open_until IS NULL)
    GROUP BY k.nth ORDER BY k.nth;
END $$;
REVOKE ALL ON FUNCTION slipway.traces_since(text[], text[], text[], timestamptz) FROM PUBLIC;
