-- A conversation is looked up by its key several times a turn, by statements and by foreign keys. The tables have no statistics,
-- as these would tell of other teams' rows, and so the index by age looked as good for that to the planner, which read all of an
-- agent's conversations through it. An index of another collation serves the one query that names this collation.
DROP INDEX slipway.conversations_by_age;
CREATE INDEX conversations_newest ON slipway.conversations
    (team COLLATE "POSIX", agent_id COLLATE "POSIX", updated_at DESC, id DESC);

-- A plan that was made while the table was empty reads it from end to end, and it grows with each turn until it is vacuumed.
ALTER FUNCTION slipway.take_turn(text, text, text, text, text, double precision, text, text, text, text, bigint, bigint)
    SET enable_seqscan = off;
ALTER FUNCTION slipway.end_turn(text, text, text, text, text[], text[], text[], text[], text[], boolean[])
    SET enable_seqscan = off;
