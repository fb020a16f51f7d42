-- Who asks says how long to wait for a lock: what goes with others gives up soon, to be tried by itself.
ALTER FUNCTION slipway.begin_turn(text, text, text, text, text, double precision, text, text, text, text, bigint, bigint) RESET lock_timeout;
ALTER FUNCTION slipway.finish_turn(text, text, text, text, text[], text[], text[], text[], text[], boolean[]) RESET lock_timeout;
