-- The plans of a turn's statements do not depend on when they are made. A connection keeps them, and a table that is empty, or was
-- when it was last vacuumed, as `turns` mostly is, looks as if it were best read from end to end. Every statement is answered from
-- a key, in its order, and a plan made for certain values would be the same, so that none is made.
ALTER FUNCTION slipway.take_turn(text, text, text, text, text, double precision, text, text, text, text, bigint, bigint)
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION slipway.end_turn(text, text, text, text, text[], text[], text[], text[], text[], boolean[])
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan;
