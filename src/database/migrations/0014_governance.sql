-- What scorecards, radar and alerts are made of: usage summed up by spans of time, violations of policies, readiness, alerts; and budgets
-- that an agent's replicas share.

-- Null where the runtime was of an earlier version; `measured` are the requests that the others are of. `latency_ms` is the sum of those
-- that are in `latency`. `unpriced` are requests, and calls of models behind the scenes, of which no price is known, so that the cost
-- lacks them; `cancelled` are requests for whose end nobody waited.
ALTER TABLE slipway.usage_by_run
    ADD COLUMN measured bigint,
    ADD COLUMN latency_ms bigint,
    ADD COLUMN audited bigint,
    ADD COLUMN retrieved bigint,
    ADD COLUMN cited bigint,
    ADD COLUMN unpriced bigint,
    ADD COLUMN cancelled bigint;

-- Usage of all models together, by spans of 10 minutes, an hour and six hours, so that a day that begins at any minute is the sum of a
-- few rows. Triggers keep it; no team's login may write it.
CREATE TABLE slipway.usage_spans (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    -- In minutes.
    span smallint NOT NULL,
    start timestamptz NOT NULL,
    track text COLLATE "C" NOT NULL,
    run_hash text COLLATE "C" NOT NULL,
    requests bigint NOT NULL,
    errors bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost_micros bigint NOT NULL,
    guard_blocks bigint NOT NULL,
    pii bigint NOT NULL,
    injections bigint NOT NULL,
    violations bigint NOT NULL,
    measured bigint NOT NULL,
    latency_ms bigint NOT NULL,
    audited bigint NOT NULL,
    retrieved bigint NOT NULL,
    cited bigint NOT NULL,
    unpriced bigint NOT NULL,
    cancelled bigint NOT NULL,
    -- As in usage_by_run.
    latency bigint[] NOT NULL,
    last_minute timestamptz NOT NULL,
    PRIMARY KEY (team, agent_id, span, start, track, run_hash)
) WITH (fillfactor = 70);

-- Agents with usage from before this step that is not in usage_spans yet.
CREATE TABLE slipway.usage_backfill (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (team, agent_id)
);

-- The functions that sum up have the counters' names many times in them, so that these are put in here. Both tables of minutes have an
-- AFTER INSERT trigger, which adds the new rows, and an AFTER UPDATE trigger, which adds the new ones and takes off the old ones. Rows
-- that are deleted are too old, or go with their agent, and change no sum.
DO $make$
DECLARE
    counters CONSTANT text[] := '{requests,errors,input_tokens,output_tokens,cost_micros,guard_blocks,pii,injections,violations}';
    measures CONSTANT text[] := '{measured,latency_ms,audited,retrieved,cited,unpriced,cancelled}';
    columns CONSTANT text := array_to_string(counters || measures, ', ');
    sums text;
    merged text;
    -- The same columns of both tables of minutes, and 1 or -1 as `n`.
    of_table text;
    source text;
    summing text;
    t text;
BEGIN
    SELECT string_agg(format('coalesce(sum(n * %s), 0)::bigint', c), ', ' ORDER BY place) INTO sums
    FROM unnest(counters || measures) WITH ORDINALITY AS u (c, place);
    sums := sums || ', ARRAY[' || (SELECT string_agg(format('coalesce(sum(n * latency[%s]), 0)::bigint', i), ', ' ORDER BY i)
                                   FROM generate_series(1, 16) i) || ']';
    SELECT string_agg(format('%1$s = s.%1$s + excluded.%1$s', c), ', ' ORDER BY place) INTO merged
    FROM unnest(counters || measures) WITH ORDINALITY AS u (c, place);
    merged := merged || ', latency = ARRAY[' || (SELECT string_agg(format('s.latency[%1$s] + excluded.latency[%1$s]', i), ', ' ORDER BY i)
                                                 FROM generate_series(1, 16) i) || ']';
    -- Rows are locked in the order of the key, so that two replicas never wait for each other.
    summing := format($f$
        INSERT INTO slipway.usage_spans AS s (team, agent_id, span, start, track, run_hash, %s, latency, last_minute)
        SELECT team, agent_id, width.span, date_bin(width.span * interval '1 minute', minute, timestamptz '2000-01-01 00:00Z') AS start,
               track, run_hash, %s, max(minute)
        FROM (%%s) used, (VALUES (10::smallint), (60::smallint), (360::smallint)) AS width (span)
        %%s
        GROUP BY team, agent_id, width.span, start, track, run_hash
        ORDER BY team, agent_id, width.span, start, track, run_hash$f$, columns, sums);
    FOREACH t IN ARRAY '{usage_minutes,usage_by_run}'::text[] LOOP
        of_table := CASE t WHEN 'usage_minutes'
            THEN '''''::text AS track, ''''::text AS run_hash, ' || array_to_string(counters, ', ')
                 || (SELECT string_agg(', 0::bigint AS ' || m, '' ORDER BY place) FROM unnest(measures) WITH ORDINALITY AS u (m, place))
            ELSE 'track, run_hash, ' || columns END;
        of_table := 'team, agent_id, minute, ' || of_table || ', latency';
        EXECUTE format($f$
            CREATE FUNCTION slipway.%1$s_added() RETURNS trigger
            LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
            AS $$ BEGIN %2$s
                ON CONFLICT (team, agent_id, span, start, track, run_hash) DO UPDATE SET %3$s,
                    last_minute = greatest(s.last_minute, excluded.last_minute);
                RETURN NULL; END $$;
            REVOKE ALL ON FUNCTION slipway.%1$s_added() FROM PUBLIC;
            CREATE TRIGGER %1$s_added AFTER INSERT ON slipway.%1$s REFERENCING NEW TABLE AS added
                FOR EACH STATEMENT EXECUTE FUNCTION slipway.%1$s_added()$f$,
            t, format(summing, format('SELECT 1 AS n, %s FROM added', of_table), ''), merged);
        EXECUTE format($f$
            CREATE FUNCTION slipway.%1$s_changed() RETURNS trigger
            LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
            AS $$ BEGIN %2$s
                ON CONFLICT (team, agent_id, span, start, track, run_hash) DO UPDATE SET %3$s,
                    last_minute = greatest(s.last_minute, excluded.last_minute);
                RETURN NULL; END $$;
            REVOKE ALL ON FUNCTION slipway.%1$s_changed() FROM PUBLIC;
            CREATE TRIGGER %1$s_changed AFTER UPDATE ON slipway.%1$s REFERENCING OLD TABLE AS before NEW TABLE AS after
                FOR EACH STATEMENT EXECUTE FUNCTION slipway.%1$s_changed()$f$,
            t, format(summing, format('SELECT 1 AS n, %1$s FROM after UNION ALL SELECT -1, %1$s FROM before', of_table), ''), merged);
        source := concat_ws(' UNION ALL ', source,
            format('SELECT %s FROM slipway.%s WHERE team = of_team AND agent_id = of_agent', of_table, t));
    END LOOP;
    -- First by ten minutes, so that the longer spans are made of few rows.
    source := format('SELECT 1 AS n, team, agent_id, max(minute) AS minute, track, run_hash, %s, %s AS latency FROM (%s) minutes
                      GROUP BY team, agent_id, date_bin(interval ''10 minutes'', minute, timestamptz ''2000-01-01 00:00Z''), track, run_hash',
        (SELECT string_agg(format('coalesce(sum(%1$s), 0)::bigint AS %1$s', c), ', ') FROM unnest(counters || measures) c),
        'ARRAY[' || (SELECT string_agg(format('coalesce(sum(latency[%s]), 0)::bigint', i), ', ' ORDER BY i) FROM generate_series(1, 16) i) || ']',
        source);
    -- For a transaction of REPEATABLE READ: what is written meanwhile makes it fail and be tried again.
    EXECUTE format($f$
        CREATE FUNCTION slipway.sum_usage(of_team text, of_agent text) RETURNS void
        LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
        AS $$ BEGIN
            DELETE FROM slipway.usage_spans s WHERE s.team = of_team AND s.agent_id = of_agent;
            %s ON CONFLICT DO NOTHING;
            DELETE FROM slipway.usage_backfill b WHERE b.team = of_team AND b.agent_id = of_agent;
        END $$;
        REVOKE ALL ON FUNCTION slipway.sum_usage(text, text) FROM PUBLIC$f$,
        format(summing, source, 'WHERE width.span = 60 OR minute >= now() - interval ''8 days'''));
END $make$;

-- From agent to agent by the keys, whatever the number of rows. What is written from now on is summed up by the triggers.
INSERT INTO slipway.usage_backfill (team, agent_id)
WITH RECURSIVE old AS (
    (SELECT team, agent_id FROM slipway.usage_minutes ORDER BY team, agent_id LIMIT 1)
    UNION ALL
    SELECT next.* FROM old, LATERAL (SELECT u.team, u.agent_id FROM slipway.usage_minutes u
        WHERE (u.team, u.agent_id) > (old.team, old.agent_id) ORDER BY u.team, u.agent_id LIMIT 1) next),
new AS (
    (SELECT team, agent_id FROM slipway.usage_by_run ORDER BY team, agent_id LIMIT 1)
    UNION ALL
    SELECT next.* FROM new, LATERAL (SELECT u.team, u.agent_id FROM slipway.usage_by_run u
        WHERE (u.team, u.agent_id) > (new.team, new.agent_id) ORDER BY u.team, u.agent_id LIMIT 1) next)
SELECT team, agent_id FROM old UNION SELECT team, agent_id FROM new;

-- Violations of policies, by minute.
CREATE TABLE slipway.policy_violations (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    minute timestamptz NOT NULL,
    track text COLLATE "C" NOT NULL CHECK (octet_length(track) <= 128),
    run_hash text COLLATE "C" NOT NULL CHECK (octet_length(run_hash) <= 128),
    -- Its id.
    policy text COLLATE "C" NOT NULL CHECK (octet_length(policy) <= 128),
    -- The rule's type.
    rule text COLLATE "C" NOT NULL CHECK (octet_length(rule) <= 128),
    stage text COLLATE "C" NOT NULL CHECK (stage IN ('input', 'output', 'limit', 'tool', 'model')),
    blocked boolean NOT NULL,
    count bigint NOT NULL CHECK (count BETWEEN 0 AND 1000000000),
    -- Hashes of the first 64.
    conversations bigint[] NOT NULL CHECK (cardinality(conversations) <= 64),
    last_trace text COLLATE "C" CHECK (octet_length(last_trace) <= 128),
    PRIMARY KEY (team, agent_id, minute, track, run_hash, policy, rule, stage, blocked)
);

-- The same by hour, without conversations. Runtimes write both in one statement.
CREATE TABLE slipway.violation_hours (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    hour timestamptz NOT NULL,
    track text COLLATE "C" NOT NULL CHECK (octet_length(track) <= 128),
    run_hash text COLLATE "C" NOT NULL CHECK (octet_length(run_hash) <= 128),
    policy text COLLATE "C" NOT NULL CHECK (octet_length(policy) <= 128),
    rule text COLLATE "C" NOT NULL CHECK (octet_length(rule) <= 128),
    stage text COLLATE "C" NOT NULL CHECK (stage IN ('input', 'output', 'limit', 'tool', 'model')),
    blocked boolean NOT NULL,
    count bigint NOT NULL CHECK (count >= 0),
    last_minute timestamptz NOT NULL,
    last_trace text COLLATE "C" CHECK (octet_length(last_trace) <= 128),
    PRIMARY KEY (team, agent_id, hour, track, run_hash, policy, rule, stage, blocked)
) WITH (fillfactor = 70);

-- How often an agent was found ready, by hour. The manager writes it; no team's login has a right on it.
CREATE TABLE slipway.readiness_hours (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    hour timestamptz NOT NULL,
    -- The Agent's: one of the same name that comes later has its own.
    uid text COLLATE "C" NOT NULL,
    samples integer NOT NULL,
    ready integer NOT NULL,
    -- Of the newest sample: an agent has one a minute.
    last_minute timestamptz NOT NULL,
    last_ready timestamptz,
    PRIMARY KEY (team, agent_id, hour, uid)
) WITH (fillfactor = 70);

-- What is or was wrong with agents. The manager writes it; no team's login has a right on it.
CREATE TABLE slipway.alerts (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE,
    uid text COLLATE "C" NOT NULL,
    metric text COLLATE "C" NOT NULL CHECK (octet_length(metric) <= 128),
    -- Empty if it is no policy's.
    policy text COLLATE "C" NOT NULL CHECK (octet_length(policy) <= 128),
    severity text NOT NULL CHECK (severity IN ('warning', 'critical')),
    message text NOT NULL CHECK (octet_length(message) <= 1024),
    value double precision,
    threshold double precision,
    traces text[] NOT NULL CHECK (cardinality(traces) <= 10),
    created_at timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    resolved_at timestamptz,
    PRIMARY KEY (team, agent_id, id)
);
CREATE UNIQUE INDEX alerts_open ON slipway.alerts (team, agent_id, uid, metric, policy) WHERE resolved_at IS NULL;

-- An agent's budgets. Its replicas queue up for the row; it has the requests that were leased in each of the last seconds.
CREATE TABLE slipway.budgets (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    -- The second, since 1970, of the last of the counts.
    newest bigint NOT NULL DEFAULT 0,
    counts integer[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (team, agent_id)
) WITH (fillfactor = 50);

-- What of a day's budget each replica may spend, and has.
CREATE TABLE slipway.budget_leases (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    -- Of UTC, since 1970.
    day bigint NOT NULL,
    holder text COLLATE "C" NOT NULL,
    -- Both are sums of the day, in millionths of a US dollar.
    may_spend bigint NOT NULL,
    spent bigint NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (team, agent_id, day, holder)
) WITH (fillfactor = 50);

-- Leases slices of an agent's budgets, with the rights of who asks. A limit that is null is not asked about. The clock is read once the
-- row is held, so that the order of the replicas is that of time.
-- Spending: what is left is the limit without what was spent and without what others may still spend. What was spent is the greater of
-- what replicas have said and what usage says, which has what runtimes of earlier versions spend, and comes late. A replica gets half of
-- what is left at most, so that there is something for the next, and keeps what it has and has not spent: its turns under way may need it.
-- Requests: one that is leased may begin within `rate_lasting` seconds, and so counts for 60 s and these.
CREATE FUNCTION slipway.lease_budget(
    of_team text, of_agent text, by_holder text,
    spent_day bigint, has_spent bigint, most bigint, want bigint, lasting double precision,
    rate_most bigint, rate_want bigint, rate_lasting integer
) RETURNS TABLE (
    day bigint, may_spend bigint, spent bigint, day_left double precision, requests bigint, retry_after double precision
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    last_second bigint;
    leased integer[];
    at timestamptz;
    epoch double precision;
    second bigint;
    width integer := 61 + rate_lasting;
    passed bigint;
    used bigint;
    given bigint;
    today bigint;
    midnight timestamptz;
    own bigint := 0;
    promised bigint;
    kept bigint;
    rest bigint;
    known bigint;
BEGIN
    LOOP
        SELECT b.newest, b.counts INTO last_second, leased FROM slipway.budgets b WHERE b.team = of_team AND b.agent_id = of_agent FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO slipway.budgets (team, agent_id) VALUES (of_team, of_agent) ON CONFLICT DO NOTHING;
    END LOOP;
    at := clock_timestamp();
    epoch := extract(epoch FROM at);
    IF rate_most IS NOT NULL THEN
        -- A clock that was set back counts in the newest second.
        second := greatest(floor(epoch)::bigint, last_second);
        passed := second - last_second;
        IF passed >= width OR cardinality(leased) <> width THEN
            leased := array_fill(0, ARRAY[width]);
        ELSIF passed > 0 THEN
            leased := leased[passed + 1:] || array_fill(0, ARRAY[passed::integer]);
        END IF;
        SELECT sum(c) INTO used FROM unnest(leased) c;
        requests := greatest(least(rate_want, rate_most - used, 1000000), 0);
        retry_after := 0;
        IF requests < rate_want THEN
            SELECT min(o.place) - (epoch - floor(epoch)) INTO retry_after
            FROM (SELECT place, sum(c) OVER (ORDER BY place) AS gone FROM unnest(leased) WITH ORDINALITY AS u (c, place)) o
            WHERE used + requests - o.gone < rate_most;
            retry_after := coalesce(retry_after, width);
        END IF;
        IF requests > 0 THEN
            leased[width] := leased[width] + requests;
            UPDATE slipway.budgets b SET newest = second, counts = leased WHERE b.team = of_team AND b.agent_id = of_agent;
        END IF;
    END IF;
    IF most IS NOT NULL THEN
        today := floor(epoch / 86400)::bigint;
        midnight := 'epoch'::timestamptz + today * interval '86400 seconds';
        IF spent_day = today THEN
            own := has_spent;
        END IF;
        SELECT coalesce(sum(l.spent) FILTER (WHERE l.holder <> by_holder), 0),
               coalesce(sum(greatest(l.may_spend - l.spent, 0)) FILTER (WHERE l.holder <> by_holder AND l.until > at), 0),
               coalesce(sum(l.may_spend - greatest(l.spent, own)) FILTER (WHERE l.holder = by_holder AND l.until > at), 0)
        INTO used, promised, kept FROM slipway.budget_leases l
        WHERE l.team = of_team AND l.agent_id = of_agent AND l.day = today;
        -- Six hours begin at midnight, too.
        SELECT coalesce(sum(s.cost_micros), 0) INTO known FROM slipway.usage_spans s
        WHERE s.team = of_team AND s.agent_id = of_agent AND s.span = 360 AND s.start >= midnight;
        IF EXISTS (SELECT FROM slipway.usage_backfill b WHERE b.team = of_team AND b.agent_id = of_agent) THEN
            SELECT coalesce(sum(m.cost_micros), 0) INTO known FROM (
                SELECT u.cost_micros FROM slipway.usage_minutes u WHERE u.team = of_team AND u.agent_id = of_agent AND u.minute >= midnight
                UNION ALL
                SELECT u.cost_micros FROM slipway.usage_by_run u WHERE u.team = of_team AND u.agent_id = of_agent AND u.minute >= midnight) m;
        END IF;
        used := greatest(used + own, known);
        rest := greatest(most - used - promised, 0);
        given := least(want, greatest(least(kept, rest), (rest + 1) / 2));
        INSERT INTO slipway.budget_leases AS l (team, agent_id, day, holder, may_spend, spent, until)
        VALUES (of_team, of_agent, today, by_holder, own + given, own, at + lasting * interval '1 second')
        ON CONFLICT (team, agent_id, day, holder) DO UPDATE
        SET spent = greatest(l.spent, excluded.spent), may_spend = greatest(l.spent, excluded.spent) + given, until = excluded.until
        RETURNING l.may_spend INTO may_spend;
        DELETE FROM slipway.budget_leases l WHERE l.team = of_team AND l.agent_id = of_agent AND l.day < today;
        day := today;
        spent := used;
        day_left := (today + 1) * 86400 - epoch;
    END IF;
    RETURN NEXT;
END $$;

CREATE FUNCTION slipway.bounded(total numeric) RETURNS bigint LANGUAGE sql IMMUTABLE
    AS $$ SELECT coalesce(greatest(least(total, 1000000000000000), 0), 0)::bigint $$;

-- Readings of many agents at once, for REST and the manager. Of an agent, nothing is shown that an earlier one of its id left; see
-- slipway.owned_by. Of one agent no more than so many rows are read and no count is greater than 10^15, so that none can keep the others
-- from being read, whatever its team's login has written.
-- Minutes up to the next ten, tens up to the next hour, hours up to the next six, then sixes.
DO $make$
DECLARE
    columns CONSTANT text[] := '{requests,errors,input_tokens,output_tokens,cost_micros,guard_blocks,pii,injections,violations,
                                 measured,latency_ms,audited,retrieved,cited,unpriced,cancelled}';
    counters CONSTANT text := array_to_string(columns[:9], ', ');
    all_of CONSTANT text := array_to_string(columns, ', ');
    sums text;
    reading text;
BEGIN
    SELECT string_agg(format('slipway.bounded(sum(%s))', c), ', ' ORDER BY place) INTO sums
    FROM unnest(columns) WITH ORDINALITY AS u (c, place);
    sums := sums || ', ARRAY[' || (SELECT string_agg(format('slipway.bounded(sum(latency[%s]))', i), ', ' ORDER BY i)
                                   FROM generate_series(1, 16) i) || ']';
    reading := format($f$
        RETURN QUERY SELECT k.nth, u.* FROM unnest(teams, agents, uids) WITH ORDINALITY AS k (team, agent_id, uid, nth), LATERAL (
            SELECT %%1$s, %1$s, (extract(epoch FROM least(max(at), now())) * 1000000)::bigint, %%2$s FROM (
                (SELECT track, run_hash, %2$s, latency, minute AS at FROM slipway.usage_by_run m
                 WHERE m.team = k.team AND m.agent_id = k.agent_id AND m.minute >= since AND m.minute < tens LIMIT 1000)
                UNION ALL
                (SELECT '', '', %3$s, 0, 0, 0, 0, 0, 0, 0, latency, minute FROM slipway.usage_minutes m
                 WHERE m.team = k.team AND m.agent_id = k.agent_id AND m.minute >= since AND m.minute < tens LIMIT 1000)
                UNION ALL
                (SELECT track, run_hash, %2$s, latency, last_minute FROM slipway.usage_spans s
                 WHERE s.team = k.team AND s.agent_id = k.agent_id AND s.span = 10 AND s.start >= tens AND s.start < hours LIMIT 1000)
                UNION ALL
                (SELECT track, run_hash, %2$s, latency, last_minute FROM slipway.usage_spans s
                 WHERE s.team = k.team AND s.agent_id = k.agent_id AND s.span = 60 AND s.start >= hours AND s.start < sixes LIMIT 1000)
                UNION ALL
                (SELECT track, run_hash, %2$s, latency, last_minute FROM slipway.usage_spans s
                 WHERE s.team = k.team AND s.agent_id = k.agent_id AND s.span = 360 AND s.start >= sixes LIMIT 1000)) used
            %%3$s) u
        WHERE NOT EXISTS (SELECT FROM slipway.owners o WHERE o.team = k.team AND o.agent_id = k.agent_id
                          AND o.uid <> k.uid AND o.open_until IS NULL)
        ORDER BY k.nth;$f$, sums, all_of, counters);
    EXECUTE format($f$
        CREATE FUNCTION slipway.usage_since(teams text[], agents text[], uids text[], since timestamptz, by_run boolean) RETURNS TABLE (
            nth bigint, track text, run_hash text,
            requests bigint, errors bigint, input_tokens bigint, output_tokens bigint, cost_micros bigint, guard_blocks bigint, pii bigint,
            injections bigint, violations bigint, measured bigint, latency_ms bigint, audited bigint, retrieved bigint, cited bigint,
            unpriced bigint, cancelled bigint, latency bigint[], last_minute bigint, partial boolean
        )
        LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
        AS $$
        #variable_conflict use_column
        DECLARE
            first CONSTANT timestamptz := timestamptz '2000-01-01 00:00Z';
            tens CONSTANT timestamptz := date_bin(interval '10 minutes', since + interval '599 seconds', first);
            hours CONSTANT timestamptz := date_bin(interval '1 hour', tens + interval '3599 seconds', first);
            sixes CONSTANT timestamptz := date_bin(interval '6 hours', hours + interval '21599 seconds', first);
        BEGIN
            IF EXISTS (SELECT FROM slipway.usage_backfill b, unnest(teams, agents) AS k (team, agent_id)
                       WHERE b.team = k.team AND b.agent_id = k.agent_id) THEN
                RAISE EXCEPTION 'usage from before the upgrade is still being summed up' USING ERRCODE = 'SK503';
            END IF;
            IF by_run THEN %s ELSE %s END IF;
        END $$$f$,
        format(reading, 'left(track, 128), left(run_hash, 128)', 'sum(count(*)) OVER () >= 1000',
               'GROUP BY left(track, 128), left(run_hash, 128) ORDER BY 1, 2'),
        format(reading, $q$''::text, ''::text$q$, 'count(*) >= 1000', 'HAVING count(*) > 0'));
END $make$;
REVOKE ALL ON FUNCTION slipway.usage_since(text[], text[], text[], timestamptz, boolean) FROM PUBLIC;

-- Minutes up to the next hour, hours from there: of a rule that was broken in every minute of a day that is 60 rows of minutes at most and
-- 24 of hours, where minutes alone would be 1,440. A statement is about 250 agents at most (`Readings::violations`): 21,000 rows with one
-- such rule each, and a million where all agents reach both limits, whatever their teams' logins have written. Only an agent that reaches
-- a limit can be `partial`: 33 such rules.
CREATE FUNCTION slipway.violations_since(teams text[], agents text[], uids text[], since timestamptz) RETURNS TABLE (
    nth bigint, track text, run_hash text, policy text, rule text, stage text, blocked boolean,
    count bigint, last_minute bigint, last_trace text, partial boolean
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    hours CONSTANT timestamptz := date_trunc('hour', since + interval '3599 seconds', 'UTC');
BEGIN
    RETURN QUERY
    SELECT k.nth, f.track, f.run_hash, f.policy, f.rule, f.stage, f.blocked, slipway.bounded(sum(f.count)),
           (extract(epoch FROM least(greatest(max(f.seen), since), now())) * 1000000)::bigint,
           (array_agg(f.last_trace ORDER BY f.seen DESC) FILTER (WHERE f.last_trace IS NOT NULL))[1],
           sum(count(*)) OVER (PARTITION BY k.nth) >= 2000
    FROM unnest(teams, agents, uids) WITH ORDINALITY AS k (team, agent_id, uid, nth), LATERAL (
        (SELECT v.track, v.run_hash, v.policy, v.rule, v.stage, v.blocked, v.count, v.minute AS seen, v.last_trace
         FROM slipway.policy_violations v
         WHERE v.team = k.team AND v.agent_id = k.agent_id AND v.minute >= since AND v.minute < hours ORDER BY v.minute DESC LIMIT 2000)
        UNION ALL
        (SELECT h.track, h.run_hash, h.policy, h.rule, h.stage, h.blocked, h.count, h.last_minute, h.last_trace
         FROM slipway.violation_hours h
         WHERE h.team = k.team AND h.agent_id = k.agent_id AND h.hour >= hours ORDER BY h.hour DESC LIMIT 2000)) f
    WHERE NOT EXISTS (SELECT FROM slipway.owners o WHERE o.team = k.team AND o.agent_id = k.agent_id
                      AND o.uid <> k.uid AND o.open_until IS NULL)
    GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1, 2, 3, 4, 5, 6, 7;
END $$;
REVOKE ALL ON FUNCTION slipway.violations_since(text[], text[], text[], timestamptz) FROM PUBLIC;

-- For rollbacks: how often answers on the stable track broke these policies, by what ran, from the hour of `since` on. A week of an agent
-- is 168 rows for each rule that is broken every hour. Of an agent 10,000 rows are looked at, of all policies, rules and stages: 59 such
-- rules. Of one that has more the older ones are missing, which `partial` says. A statement is about 50 agents at most.
CREATE FUNCTION slipway.violations_by_run(teams text[], agents text[], uids text[], policies text[], since timestamptz) RETURNS TABLE (
    nth bigint, run_hash text, policy text, count bigint, partial boolean
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT k.nth, f.run_hash, f.policy, slipway.bounded(sum(f.count)), bool_or(f.partial)
    FROM unnest(teams, agents, uids) WITH ORDINALITY AS k (team, agent_id, uid, nth), LATERAL (
        SELECT h.track, h.run_hash, h.policy, h.stage, h.count, count(*) OVER () >= 10000 AS partial
        FROM (SELECT * FROM slipway.violation_hours h
              WHERE h.team = k.team AND h.agent_id = k.agent_id AND h.hour >= date_trunc('hour', since, 'UTC')
              ORDER BY h.hour DESC LIMIT 10000) h) f
    WHERE f.stage = 'output' AND f.track = 'stable' AND f.policy = ANY (policies)
      AND NOT EXISTS (SELECT FROM slipway.owners o WHERE o.team = k.team AND o.agent_id = k.agent_id
                      AND o.uid <> k.uid AND o.open_until IS NULL)
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
END $$;
REVOKE ALL ON FUNCTION slipway.violations_by_run(text[], text[], text[], text[], timestamptz) FROM PUBLIC;

-- In how many conversations such answers of one release broke each policy, as far as they were told apart: at least so many. Of an agent
-- the newest 50,000 minutes of all rules are looked at, and of those that are wanted 10,000 counted.
CREATE FUNCTION slipway.violating_conversations(
    teams text[], agents text[], uids text[], of_run text, policies text[], since timestamptz
) RETURNS TABLE (nth bigint, policy text, conversations bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT k.nth, f.policy, count(*)
    FROM unnest(teams, agents, uids) WITH ORDINALITY AS k (team, agent_id, uid, nth), LATERAL (
        SELECT DISTINCT v.policy, c.hash
        FROM (SELECT v.policy, v.conversations
              FROM (SELECT * FROM slipway.policy_violations v
                    WHERE v.team = k.team AND v.agent_id = k.agent_id AND v.minute >= date_trunc('hour', since, 'UTC')
                    ORDER BY v.minute DESC LIMIT 50000) v
              WHERE v.stage = 'output' AND v.track = 'stable' AND v.run_hash = of_run AND v.policy = ANY (policies)
              LIMIT 10000) v,
             unnest(v.conversations) AS c (hash)) f
    WHERE NOT EXISTS (SELECT FROM slipway.owners o WHERE o.team = k.team AND o.agent_id = k.agent_id
                      AND o.uid <> k.uid AND o.open_until IS NULL)
    GROUP BY 1, 2 ORDER BY 1, 2;
END $$;
REVOKE ALL ON FUNCTION slipway.violating_conversations(text[], text[], text[], text, text[], timestamptz) FROM PUBLIC;

CREATE FUNCTION slipway.readiness_since(teams text[], agents text[], uids text[], since timestamptz) RETURNS TABLE (
    nth bigint, samples bigint, ready bigint, last_ready bigint
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT k.nth, sum(r.samples)::bigint, sum(r.ready)::bigint, (extract(epoch FROM max(r.last_ready)) * 1000000)::bigint
    FROM unnest(teams, agents, uids) WITH ORDINALITY AS k (team, agent_id, uid, nth)
    JOIN slipway.readiness_hours r ON r.team = k.team AND r.agent_id = k.agent_id AND r.uid = k.uid
                                  AND r.hour >= date_trunc('hour', since, 'UTC')
    GROUP BY k.nth ORDER BY k.nth;
END $$;
REVOKE ALL ON FUNCTION slipway.readiness_since(text[], text[], text[], timestamptz) FROM PUBLIC;

-- Newest first, as ids are; those before the id `older` alone, if it is given.
CREATE FUNCTION slipway.alerts_of(teams text[], agents text[], uids text[], open boolean, older text, most bigint) RETURNS TABLE (
    id text, team text, agent_id text, uid text, metric text, policy text, severity text, message text, value double precision,
    threshold double precision, traces text[], created bigint, seen bigint, resolved bigint
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT a.id, a.team, a.agent_id, a.uid, a.metric, a.policy, a.severity, a.message, a.value, a.threshold, a.traces,
           (extract(epoch FROM a.created_at) * 1000000)::bigint, (extract(epoch FROM a.last_seen) * 1000000)::bigint,
           (extract(epoch FROM a.resolved_at) * 1000000)::bigint
    FROM unnest(teams, agents, uids) AS k (team, agent_id, uid), LATERAL (
        (SELECT * FROM slipway.alerts a
         WHERE open AND a.team = k.team AND a.agent_id = k.agent_id AND a.uid = k.uid AND a.resolved_at IS NULL
           AND (older IS NULL OR a.id < older) ORDER BY a.id DESC LIMIT most)
        UNION ALL
        (SELECT * FROM slipway.alerts a
         WHERE NOT open AND a.team = k.team AND a.agent_id = k.agent_id AND a.uid = k.uid
           AND (older IS NULL OR a.id < older) ORDER BY a.id DESC LIMIT most)) a
    ORDER BY a.id DESC LIMIT most;
END $$;
REVOKE ALL ON FUNCTION slipway.alerts_of(text[], text[], text[], boolean, text, bigint) FROM PUBLIC;
