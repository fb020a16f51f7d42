-- A source that was read to its end and has next to nothing of what was indexed: a wrong prefix, an emptied folder, a volume
-- that is not mounted. That is not believed until somebody confirms it.

-- Removes at most a thousand documents of the ingestion's source that it has not seen; how many. None, unless it is
-- confirmed, of a source in which nothing was found, or less than a tenth of at least 20 documents: then removed is null.
-- Removing only makes fewer of those that are missing, so that what was believed once is believed to the end.
CREATE FUNCTION slipway.remove_unseen(kb text, ingestion text, holder text, confirmed boolean)
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

-- Ingestions of a former version, which cannot confirm.
CREATE OR REPLACE FUNCTION slipway.remove_unseen(kb text, ingestion text, holder text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        outcome record;
    BEGIN
        SELECT r.* INTO outcome FROM slipway.remove_unseen($1, $2, $3, false) r;
        IF outcome.removed IS NULL THEN
            RAISE EXCEPTION 'the source lists next to nothing of what is here; nothing was removed' USING ERRCODE = 'SK409';
        END IF;
        RETURN outcome.removed;
    END $$;
