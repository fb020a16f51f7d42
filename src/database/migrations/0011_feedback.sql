-- What people think of answers, and the questions whose answers were marked badly. Both belong to a conversation and go with it.
-- No team's login has a right on either table: an agent must not write its own marks. REST writes through give_feedback alone.

CREATE TABLE slipway.feedback (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    trace_id text COLLATE "C" NOT NULL CHECK (octet_length(trace_id) <= 128),
    -- The user name of the caller, as Kubernetes knows it.
    user_id text COLLATE "C" NOT NULL CHECK (octet_length(user_id) BETWEEN 1 AND 512),
    name text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 128),
    conversation_id text COLLATE "C" NOT NULL,
    -- The message that was marked, where the caller named one.
    message_id text COLLATE "C",
    value double precision NOT NULL,
    -- 1 for values from 0 to 1, 5 for values from 1 to 5.
    scale smallint NOT NULL,
    negative boolean NOT NULL,
    source text CHECK (octet_length(source) <= 128),
    comment text CHECK (octet_length(comment) <= 4096),
    created_at timestamptz NOT NULL,
    -- A second mark of the same name takes the place of the first.
    PRIMARY KEY (team, agent_id, trace_id, user_id, name),
    CHECK (scale = 1 AND value BETWEEN 0 AND 1 OR scale = 5 AND value BETWEEN 1 AND 5),
    FOREIGN KEY (team, agent_id, conversation_id) REFERENCES slipway.conversations ON DELETE CASCADE
);
-- The conversation comes first: with team and agent in front, a plan made while the table was empty takes it for the key.
CREATE INDEX feedback_by_conversation ON slipway.feedback (conversation_id, team, agent_id);
CREATE INDEX feedback_by_age ON slipway.feedback (created_at);

-- Cases that evaluations of the agent have besides those of the dataset. Nothing is expected of the answer.
CREATE TABLE slipway.feedback_cases (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    trace_id text COLLATE "C" NOT NULL,
    -- Who marked it first.
    user_id text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    input text NOT NULL CHECK (octet_length(input) BETWEEN 1 AND 32768),
    created_at timestamptz NOT NULL,
    -- A trace gives one case, whoever marks it again.
    PRIMARY KEY (team, agent_id, trace_id),
    FOREIGN KEY (team, agent_id, conversation_id) REFERENCES slipway.conversations ON DELETE CASCADE
);
CREATE INDEX feedback_cases_by_conversation ON slipway.feedback_cases (conversation_id, team, agent_id);

-- What was asked in a trace. Partial, so that the planner takes it for this question and for no other.
CREATE INDEX messages_by_trace ON slipway.messages (team, agent_id, trace_id) WHERE role = 'user' AND trace_id IS NOT NULL;

-- Records a mark, and appends the question to the agent's cases if the mark is negative. The question comes from the stored messages:
-- the caller says which trace is meant, never what was asked. `outcome` is `recorded`, `not_found` or `too_many`.
CREATE FUNCTION slipway.give_feedback(
    of_team text, of_agent text, of_uid text, by_user text, for_trace text, for_message text, for_conversation text,
    called text, given double precision, on_scale integer, given_source text, given_comment text
) RETURNS TABLE (outcome text, marked_trace text, appended boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    names_max CONSTANT integer := 32;
    cases_max CONSTANT integer := 500;
    case_bytes_max CONSTANT integer := 4194304;
    input_bytes_max CONSTANT integer := 32768;
    the_trace text := for_trace;
    the_scale integer := coalesce(on_scale, CASE WHEN given <= 1 THEN 1 ELSE 5 END);
    is_negative boolean;
    asked record;
    kept record;
BEGIN
    outcome := 'not_found';
    appended := false;
    IF NOT slipway.owned_by(of_team, of_agent, of_uid) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    IF for_message IS NOT NULL THEN
        SELECT m.trace_id INTO the_trace FROM slipway.messages m
        WHERE m.team = of_team AND m.agent_id = of_agent AND m.id = for_message AND m.trace_id IS NOT NULL
          AND (for_trace IS NULL OR m.trace_id = for_trace);
        IF NOT FOUND THEN
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    SELECT m.conversation_id, m.content INTO asked FROM slipway.messages m
    WHERE m.team = of_team AND m.agent_id = of_agent AND m.role = 'user' AND m.trace_id IS NOT NULL AND m.trace_id = the_trace
      AND (for_conversation IS NULL OR m.conversation_id = for_conversation)
    ORDER BY m.ordinal LIMIT 1;
    IF NOT FOUND THEN
        RETURN NEXT;
        RETURN;
    END IF;
    marked_trace := the_trace;
    IF (SELECT count(*) FROM slipway.feedback f
        WHERE f.team = of_team AND f.agent_id = of_agent AND f.trace_id = the_trace AND f.user_id = by_user AND f.name <> called) >= names_max
    THEN
        outcome := 'too_many';
        RETURN NEXT;
        RETURN;
    END IF;
    is_negative := CASE the_scale WHEN 1 THEN given < 0.6 ELSE given < 3 END;
    INSERT INTO slipway.feedback
        (team, agent_id, trace_id, user_id, name, conversation_id, message_id, value, scale, negative, source, comment, created_at)
    VALUES (of_team, of_agent, the_trace, by_user, called, asked.conversation_id, for_message, given, the_scale, is_negative, given_source,
            given_comment, clock_timestamp())
    ON CONFLICT (team, agent_id, trace_id, user_id, name) DO UPDATE
    SET conversation_id = excluded.conversation_id, message_id = excluded.message_id, value = excluded.value, scale = excluded.scale,
        negative = excluded.negative, source = excluded.source, comment = excluded.comment, created_at = excluded.created_at;
    IF is_negative AND octet_length(asked.content) BETWEEN 1 AND input_bytes_max THEN
        INSERT INTO slipway.feedback_cases (team, agent_id, trace_id, user_id, conversation_id, input, created_at)
        VALUES (of_team, of_agent, the_trace, by_user, asked.conversation_id, asked.content, clock_timestamp())
        ON CONFLICT (team, agent_id, trace_id) DO NOTHING;
        appended := FOUND;
        -- The oldest of the user who has the most goes, so that nobody displaces what others have marked.
        WHILE appended LOOP
            SELECT count(*) AS cases, sum(octet_length(c.input)) AS bytes INTO kept
            FROM slipway.feedback_cases c WHERE c.team = of_team AND c.agent_id = of_agent;
            EXIT WHEN kept.cases <= cases_max AND kept.bytes <= case_bytes_max;
            DELETE FROM slipway.feedback_cases c
            WHERE c.team = of_team AND c.agent_id = of_agent AND c.trace_id = (
                SELECT o.trace_id FROM slipway.feedback_cases o
                WHERE o.team = of_team AND o.agent_id = of_agent AND o.user_id = (
                    SELECT u.user_id FROM slipway.feedback_cases u WHERE u.team = of_team AND u.agent_id = of_agent
                    GROUP BY u.user_id
                    ORDER BY CASE WHEN kept.bytes > case_bytes_max THEN sum(octet_length(u.input)) ELSE count(*) END DESC, min(u.created_at)
                    LIMIT 1)
                ORDER BY o.created_at, o.trace_id LIMIT 1);
        END LOOP;
    END IF;
    outcome := 'recorded';
    RETURN NEXT;
END $$;
REVOKE ALL ON FUNCTION slipway.give_feedback(text, text, text, text, text, text, text, text, double precision, integer, text, text) FROM PUBLIC;
