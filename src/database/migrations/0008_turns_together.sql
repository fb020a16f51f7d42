-- The two steps of a turn for statements that take several turns and set their own lock timeout. begin_turn and finish_turn, which
-- earlier runtimes call, have their lock timeout again and pass on to these.

-- As begin_turn was, but for a new conversation, which has no turn and no earlier message: three statements instead of six.
CREATE FUNCTION slipway.take_turn(
    of_team text, of_agent text, in_conversation text, title_if_new text, turn text, lease double precision,
    said_id text, said text, said_trace text, partial_id text, latest bigint, most_text bigint
) RETURNS TABLE (
    busy boolean, id text, role text, content text, parts text, trace_id text, interrupted boolean, created bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz;
    is_new boolean;
    said_before bigint;
    held record;
    repeated boolean := false;
BEGIN
    -- The update changes nothing; it locks the row, so that turns of one conversation queue up here. A row that was updated
    -- has the lock in its xmax, one that was inserted has nothing there.
    INSERT INTO slipway.conversations AS c (team, agent_id, id, title, created_at, updated_at, message_count)
    VALUES (of_team, of_agent, in_conversation, title_if_new, clock_timestamp(), clock_timestamp(), 1)
    ON CONFLICT (team, agent_id, id) DO UPDATE SET message_count = c.message_count
    RETURNING c.xmax = 0, c.message_count INTO is_new, said_before;
    moment := clock_timestamp();
    IF is_new THEN
        INSERT INTO slipway.messages (team, agent_id, conversation_id, ordinal, id, role, content, trace_id, created_at)
        VALUES (of_team, of_agent, in_conversation, 1, said_id, 'user', said, said_trace, moment);
        INSERT INTO slipway.turns (team, agent_id, conversation_id, holder, since, lease_until)
        VALUES (of_team, of_agent, in_conversation, turn, moment, moment + lease * interval '1 second');
        IF latest > 0 AND octet_length(said) <= most_text THEN
            RETURN QUERY SELECT false, said_id, 'user', said, NULL::text, said_trace, false, (extract(epoch FROM moment) * 1000000)::bigint;
        END IF;
        RETURN;
    END IF;
    SELECT t.holder, t.partial, t.lease_until > moment AS alive INTO held FROM slipway.turns t
    WHERE t.team = of_team AND t.agent_id = of_agent AND t.conversation_id = in_conversation;
    IF FOUND THEN
        -- A first try may have gone through, however long ago.
        repeated := held.holder = turn
            AND EXISTS (SELECT FROM slipway.messages m WHERE m.team = of_team AND m.agent_id = of_agent AND m.id = said_id);
        IF NOT repeated AND held.alive THEN
            busy := true;
            RETURN NEXT;
            RETURN;
        END IF;
        IF NOT repeated AND held.partial <> '' THEN
            said_before := said_before + 1;
            INSERT INTO slipway.messages (team, agent_id, conversation_id, ordinal, id, role, content, interrupted, created_at)
            VALUES (of_team, of_agent, in_conversation, said_before, partial_id, 'assistant', held.partial, true, moment);
        END IF;
    END IF;
    IF NOT repeated THEN
        INSERT INTO slipway.messages (team, agent_id, conversation_id, ordinal, id, role, content, trace_id, created_at)
        VALUES (of_team, of_agent, in_conversation, said_before + 1, said_id, 'user', said, said_trace, moment);
        UPDATE slipway.conversations c SET message_count = said_before + 1, updated_at = moment
        WHERE c.team = of_team AND c.agent_id = of_agent AND c.id = in_conversation;
    END IF;
    INSERT INTO slipway.turns (team, agent_id, conversation_id, holder, since, lease_until)
    VALUES (of_team, of_agent, in_conversation, turn, moment, moment + lease * interval '1 second')
    ON CONFLICT (team, agent_id, conversation_id) DO UPDATE
    SET holder = excluded.holder, partial = '', since = excluded.since, lease_until = excluded.lease_until;
    IF latest > 0 THEN
        RETURN QUERY
            SELECT false, sized.id, sized.role, sized.content, sized.parts::text, sized.trace_id, sized.interrupted,
                   (extract(epoch FROM sized.created_at) * 1000000)::bigint
            FROM (SELECT *, sum(octet_length(newest.content) + coalesce(octet_length(newest.parts::text), 0))
                            OVER (ORDER BY newest.ordinal DESC) AS so_far
                  FROM (SELECT m.* FROM slipway.messages m
                        WHERE m.team = of_team AND m.agent_id = of_agent AND m.conversation_id = in_conversation
                        ORDER BY m.ordinal DESC LIMIT latest) newest) sized
            WHERE sized.so_far <= most_text
            ORDER BY sized.ordinal;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION slipway.begin_turn(
    of_team text, of_agent text, in_conversation text, title_if_new text, turn text, lease double precision,
    said_id text, said text, said_trace text, partial_id text, latest bigint, most_text bigint
) RETURNS TABLE (
    busy boolean, id text, role text, content text, parts text, trace_id text, interrupted boolean, created bigint
)
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s'
AS $$
    SELECT * FROM slipway.take_turn(of_team, of_agent, in_conversation, title_if_new, turn, lease, said_id, said, said_trace,
                                    partial_id, latest, most_text)
$$;

ALTER FUNCTION slipway.finish_turn(text, text, text, text, text[], text[], text[], text[], text[], boolean[]) RENAME TO end_turn;

CREATE FUNCTION slipway.finish_turn(
    of_team text, of_agent text, in_conversation text, turn text,
    ids text[], roles text[], contents text[], all_parts text[], traces text[], breaks boolean[]
) RETURNS text
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s'
AS $$ SELECT slipway.end_turn(of_team, of_agent, in_conversation, turn, ids, roles, contents, all_parts, traces, breaks) $$;
