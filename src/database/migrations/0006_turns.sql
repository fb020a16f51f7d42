-- The two steps of a turn, each one question: what src/database/turn.rs says of them holds. They see what their caller
-- may see. Within each, every statement sees what was committed before it, as it would by itself.

-- Writes down what the user said and takes the conversation, which is made if there is none.
-- Returns the newest `latest` messages, the oldest first, as far as `most_text` bytes go; or one row that is busy.
CREATE FUNCTION slipway.begin_turn(
    of_team text, of_agent text, in_conversation text, title_if_new text, turn text, lease double precision,
    said_id text, said text, said_trace text, partial_id text, latest bigint, most_text bigint
) RETURNS TABLE (
    busy boolean, id text, role text, content text, parts text, trace_id text, interrupted boolean, created bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s'
AS $$
#variable_conflict use_column
DECLARE
    said_before bigint;
    held record;
    repeated boolean := false;
BEGIN
    -- The update changes nothing; it locks the row, so that turns of one conversation queue up here.
    INSERT INTO slipway.conversations AS c (team, agent_id, id, title, created_at, updated_at)
    VALUES (of_team, of_agent, in_conversation, title_if_new, clock_timestamp(), clock_timestamp())
    ON CONFLICT (team, agent_id, id) DO UPDATE SET message_count = c.message_count
    RETURNING c.message_count INTO said_before;
    SELECT t.holder, t.partial, t.lease_until > clock_timestamp() AS alive INTO held FROM slipway.turns t
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
            VALUES (of_team, of_agent, in_conversation, said_before, partial_id, 'assistant', held.partial, true, clock_timestamp());
        END IF;
    END IF;
    IF NOT repeated THEN
        INSERT INTO slipway.messages (team, agent_id, conversation_id, ordinal, id, role, content, trace_id, created_at)
        VALUES (of_team, of_agent, in_conversation, said_before + 1, said_id, 'user', said, said_trace, clock_timestamp());
        UPDATE slipway.conversations c SET message_count = said_before + 1, updated_at = clock_timestamp()
        WHERE c.team = of_team AND c.agent_id = of_agent AND c.id = in_conversation;
    END IF;
    INSERT INTO slipway.turns (team, agent_id, conversation_id, holder, since, lease_until)
    VALUES (of_team, of_agent, in_conversation, turn, clock_timestamp(), clock_timestamp() + lease * interval '1 second')
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

-- Writes down the answer and lets the conversation go. Returns `kept`, `busy` when another turn has it, or `deleted`.
CREATE FUNCTION slipway.finish_turn(
    of_team text, of_agent text, in_conversation text, turn text,
    ids text[], roles text[], contents text[], all_parts text[], traces text[], breaks boolean[]
) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s'
AS $$
DECLARE
    said_before bigint;
BEGIN
    -- It may have waited for another turn, whose end only the next statement sees.
    SELECT c.message_count INTO said_before FROM slipway.conversations c
    WHERE c.team = of_team AND c.agent_id = of_agent AND c.id = in_conversation FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'deleted';
    END IF;
    DELETE FROM slipway.turns t
    WHERE t.team = of_team AND t.agent_id = of_agent AND t.conversation_id = in_conversation AND t.holder = turn;
    IF NOT FOUND THEN
        -- A first try may have gone through whose answer was lost.
        RETURN CASE WHEN cardinality(ids) = (SELECT count(*) FROM slipway.messages m
                                             WHERE m.team = of_team AND m.agent_id = of_agent AND m.id = ANY (ids))
               THEN 'kept' ELSE 'busy' END;
    END IF;
    IF cardinality(ids) > 0 THEN
        INSERT INTO slipway.messages
            (team, agent_id, conversation_id, ordinal, id, role, content, parts, trace_id, interrupted, created_at)
        SELECT of_team, of_agent, in_conversation, said_before + n, s.id, s.role, s.content, s.parts::json, s.trace_id, s.interrupted,
               clock_timestamp()
        FROM unnest(ids, roles, contents, all_parts, traces, breaks)
            WITH ORDINALITY AS s (id, role, content, parts, trace_id, interrupted, n);
        UPDATE slipway.conversations c SET message_count = said_before + cardinality(ids), updated_at = clock_timestamp()
        WHERE c.team = of_team AND c.agent_id = of_agent AND c.id = in_conversation;
    END IF;
    RETURN 'kept';
END $$;
