-- Where the list of changes of a source was left, so that an ingestion need not list all of the source again.
CREATE TABLE slipway.places (
    base text COLLATE "C" NOT NULL REFERENCES slipway.bases ON DELETE CASCADE,
    source text COLLATE "C" NOT NULL,
    -- Of what was read, and how. After any other the whole source is read. Null from the beginning of a traversal until all that it
    -- found is stored.
    configuration bytea,
    -- Of the base when the traversal began: another embedding model needs all documents.
    epoch integer NOT NULL,
    place text CHECK (octet_length(place) <= 1024),
    -- When the last traversal began.
    traversed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (base, source)
) WITH (fillfactor = 70);

-- All of the source is about to be read. Whatever comes of that, there is no going on from an earlier place. A base keeps a hundred.
CREATE FUNCTION slipway.begin_traversal(kb text, ingestion text, holder text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
    BEGIN
        INSERT INTO slipway.places AS p (base, source, epoch) VALUES (b.uid, i.source, b.epoch)
        ON CONFLICT ON CONSTRAINT places_pkey DO UPDATE
        SET configuration = NULL, place = NULL, epoch = excluded.epoch, traversed_at = excluded.traversed_at;
        DELETE FROM slipway.places p
        WHERE p.base = b.uid AND p.source NOT IN (SELECT k.source FROM slipway.places k WHERE k.base = b.uid ORDER BY k.traversed_at DESC LIMIT 100);
    END $$;

-- The place, and the seconds since the last complete traversal began. None where all has to be read.
CREATE FUNCTION slipway.find_place(kb text, ingestion text, holder text, configuration bytea)
    RETURNS TABLE (place text, age double precision)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        RETURN QUERY
            SELECT p.place, extract(epoch FROM clock_timestamp() - p.traversed_at)::double precision
            FROM slipway.ingestions i JOIN slipway.places p ON p.base = i.base AND p.source = i.source
            WHERE i.base = b.uid AND i.uid = $2 AND i.holder = $3 AND i.ended_at IS NULL AND p.configuration = $4 AND p.epoch = b.epoch;
    END $$;

-- Keeps a place for the next ingestion. Not where documents were deleted by hand meanwhile, which took the row away, so that they
-- come back.
CREATE FUNCTION slipway.keep_place(kb text, ingestion text, holder text, configuration bytea, place text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
    BEGIN
        UPDATE slipway.places p SET configuration = $4, place = $5
        WHERE p.base = b.uid AND p.source = i.source AND p.epoch = b.epoch AND (p.configuration IS NULL OR p.configuration = $4);
    END $$;

-- Removes documents of the ingestion's source that the source says are gone. Doubtful as remove_unseen is, where next to nothing
-- of the source would be left: then removed is null, and a traversal has to tell.
CREATE FUNCTION slipway.remove_gone(kb text, ingestion text, holder text, keys text[])
    RETURNS TABLE (removed bigint, found bigint, missing bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
        went bigint;
        there bigint;
        lost bigint;
    BEGIN
        SELECT count(*) FILTER (WHERE d.key <> ALL ($4)), count(*) FILTER (WHERE d.key = ANY ($4) AND d.revision IS NOT NULL)
        INTO there, lost FROM slipway.documents d WHERE d.base = b.uid AND d.source = i.source;
        IF lost > 0 AND (there = 0 OR (there + lost >= 20 AND there * 10 < there + lost)) THEN
            RETURN QUERY SELECT NULL::bigint, there, lost;
            RETURN;
        END IF;
        WITH gone AS (
            DELETE FROM slipway.documents d WHERE d.base = b.uid AND d.source = i.source AND d.key = ANY ($4) RETURNING d.revision
        ), kept AS (
            INSERT INTO slipway.drafts (revision, base, epoch, expires_at) SELECT g.revision, b.uid, b.epoch, now() FROM gone g WHERE g.revision IS NOT NULL
        )
        SELECT count(*) INTO went FROM gone;
        RETURN QUERY SELECT went, there, lost;
    END $$;

-- What somebody deletes comes back with the next ingestion of its source, if that still has it: that one reads all.
CREATE OR REPLACE FUNCTION slipway.remove_documents(kb text, source text, keys text[], ids text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        removed bigint;
    BEGIN
        WITH gone AS (
            DELETE FROM slipway.documents d
            WHERE d.base = b.uid AND d.id IN (
                SELECT u.id FROM slipway.documents u WHERE u.base = b.uid AND u.id = ANY ($4)
                UNION ALL SELECT u.id FROM slipway.documents u WHERE u.base = b.uid AND u.source = $2 AND u.key = ANY ($3)
                UNION ALL (SELECT u.id FROM slipway.documents u WHERE u.base = b.uid AND u.source = $2 AND $3 IS NULL LIMIT 1000))
            RETURNING d.revision, d.source
        ), kept AS (
            INSERT INTO slipway.drafts (revision, base, epoch, expires_at) SELECT g.revision, b.uid, b.epoch, now() FROM gone g WHERE g.revision IS NOT NULL
        ), forgotten AS (
            DELETE FROM slipway.places p WHERE p.base = b.uid AND p.source IN (SELECT g.source FROM gone g)
        )
        SELECT count(*) INTO removed FROM gone;
        RETURN removed;
    END $$;

-- Ingestions of a former version do not say that they traverse. After one, which may have had other settings, all is read again.
CREATE OR REPLACE FUNCTION slipway.remove_unseen(kb text, ingestion text, holder text, confirmed boolean)
    RETURNS TABLE (removed bigint, found bigint, missing bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
        went bigint;
        there bigint;
        lost bigint;
    BEGIN
        DELETE FROM slipway.places p WHERE p.base = b.uid AND p.source = i.source AND p.configuration IS NOT NULL;
        -- What was never indexed is no loss.
        SELECT count(*) FILTER (WHERE d.seen_in = $3), count(*) FILTER (WHERE d.seen_in IS DISTINCT FROM $3 AND d.revision IS NOT NULL)
        INTO there, lost FROM slipway.documents d WHERE d.base = b.uid AND d.source = i.source;
        IF NOT coalesce(confirmed, false) AND lost > 0 AND (there = 0 OR (there + lost >= 20 AND there * 10 < there + lost)) THEN
            RETURN QUERY SELECT NULL::bigint, there, lost;
            RETURN;
        END IF;
        WITH gone AS (
            DELETE FROM slipway.documents d
            WHERE d.base = b.uid AND d.id IN (SELECT u.id FROM slipway.documents u WHERE u.base = b.uid AND u.source = i.source
                                              AND u.seen_in IS DISTINCT FROM $3 LIMIT 1000)
            RETURNING d.revision
        ), kept AS (
            INSERT INTO slipway.drafts (revision, base, epoch, expires_at) SELECT g.revision, b.uid, b.epoch, now() FROM gone g WHERE g.revision IS NOT NULL
        )
        SELECT count(*) INTO went FROM gone;
        RETURN QUERY SELECT went, there, lost;
    END $$;

-- Former versions named a source that has no name after its login too. What they read of it belongs to it under its present name, or
-- nobody would notice any more what has changed and gone there. At most a thousand documents at a time; how many.
CREATE FUNCTION slipway.adopt_documents(kb text, ingestion text, holder text, former text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
        adopted bigint;
    BEGIN
        -- One of a former version that still writes them has them to itself.
        IF $4 = i.source OR EXISTS (SELECT 1 FROM slipway.ingestions t
                                    WHERE t.base = b.uid AND t.source = $4 AND t.ended_at IS NULL AND t.heartbeat > clock_timestamp() - interval '60 s') THEN
            RETURN 0;
        END IF;
        WITH theirs AS (
            SELECT d.id, EXISTS (SELECT 1 FROM slipway.documents o WHERE o.base = b.uid AND o.source = i.source AND o.key = d.key) AS is_twice
            FROM slipway.documents d WHERE d.base = b.uid AND d.source = $4 LIMIT 1000
        ), gone AS (
            DELETE FROM slipway.documents d USING theirs t WHERE d.base = b.uid AND d.id = t.id AND t.is_twice RETURNING d.revision
        ), kept AS (
            INSERT INTO slipway.drafts (revision, base, epoch, expires_at) SELECT g.revision, b.uid, b.epoch, now() FROM gone g WHERE g.revision IS NOT NULL
        ), moved AS (
            UPDATE slipway.documents d SET source = i.source FROM theirs t WHERE d.base = b.uid AND d.id = t.id AND NOT t.is_twice RETURNING d.id
        )
        SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM moved) INTO adopted;
        RETURN adopted;
    END $$;
