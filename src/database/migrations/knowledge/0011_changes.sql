-- Where the list of changes of a source was left, so that an ingestion need not list all of the source again.
CREATE TABLE slipway.places (
    base text COLLATE "C" NOT NULL REFERENCES slipway.bases ON DELETE CASCADE,
    source text COLLATE "C" NOT NULL,
    -- Of what was read, and how. After any other the whole source is read.
    configuration bytea NOT NULL,
    -- Of the base when all was read: another embedding model needs all documents.
    epoch integer NOT NULL,
    place text NOT NULL CHECK (octet_length(place) <= 1024),
    -- When the source was read to its end the last time.
    traversed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (base, source)
) WITH (fillfactor = 70);

-- The place and the seconds since the last complete traversal. None where all has to be read.
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

-- Keeps a place for the next ingestion. Without a traversal only one that is there moves on: documents that were deleted by
-- hand meanwhile took it away, so that they come back. A base keeps a hundred.
CREATE FUNCTION slipway.keep_place(kb text, ingestion text, holder text, configuration bytea, place text, traversed boolean) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
    BEGIN
        IF NOT traversed THEN
            UPDATE slipway.places p SET place = $5
            WHERE p.base = b.uid AND p.source = i.source AND p.configuration = $4 AND p.epoch = b.epoch;
            RETURN;
        END IF;
        INSERT INTO slipway.places AS p (base, source, configuration, epoch, place) VALUES (b.uid, i.source, $4, b.epoch, $5)
        ON CONFLICT ON CONSTRAINT places_pkey DO UPDATE
        SET configuration = excluded.configuration, epoch = excluded.epoch, place = excluded.place, traversed_at = clock_timestamp();
        DELETE FROM slipway.places p
        WHERE p.base = b.uid AND p.source NOT IN (SELECT k.source FROM slipway.places k WHERE k.base = b.uid ORDER BY k.traversed_at DESC LIMIT 100);
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
