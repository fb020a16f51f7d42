-- A document keeps its key, and often its version, when it is renamed: then its row takes the new name, and nothing of it is
-- read or embedded again. Another extension may be read in another way, and needs work.

CREATE FUNCTION slipway.extension(filename text) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
    AS $$ SELECT lower(coalesce(substring(filename FROM '\.[^.]*$'), '')) $$;

-- Which of the documents that a source lists need work, with the hash of the content that is shown of them, if its format is
-- still the same. The others are marked as seen.
CREATE FUNCTION slipway.changed(kb text, ingestion text, holder text, keys text[], versions text[], filenames text[], uris text[])
    RETURNS TABLE (key text, content_hash bytea)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
    BEGIN
        UPDATE slipway.documents d
        SET seen_in = $3, filename = a.filename, uri = a.uri,
            updated_at = CASE WHEN (d.filename, d.uri) = (a.filename, a.uri) THEN d.updated_at ELSE clock_timestamp() END
        FROM unnest(keys, versions, filenames, uris) AS a (key, version, filename, uri)
        WHERE d.base = b.uid AND d.source = i.source AND d.key = a.key AND d.status = 'ready' AND d.version = a.version
          AND slipway.extension(d.filename) = slipway.extension(a.filename)
          AND (d.seen_in IS DISTINCT FROM $3 OR (d.filename, d.uri) <> (a.filename, a.uri));
        RETURN QUERY
            SELECT a.key, CASE WHEN d.status = 'ready' AND d.version IS NOT NULL
                                AND slipway.extension(d.filename) = slipway.extension(a.filename) THEN d.content_hash END
            FROM unnest(keys, versions, filenames) WITH ORDINALITY AS a (key, version, filename, place)
            LEFT JOIN slipway.documents d ON d.base = b.uid AND d.source = i.source AND d.key = a.key
            WHERE NOT coalesce(d.status = 'ready' AND d.version = a.version AND slipway.extension(d.filename) = slipway.extension(a.filename), false)
            ORDER BY a.place;
    END $$;

-- Documents whose content has been found unchanged under another version.
CREATE FUNCTION slipway.mark_seen(kb text, ingestion text, holder text, keys text[], versions text[], filenames text[], uris text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
        marked bigint;
    BEGIN
        UPDATE slipway.documents d
        SET seen_in = $3, filename = a.filename, uri = a.uri,
            version = CASE WHEN d.status = 'ready' AND d.version IS NOT NULL THEN coalesce(a.version, d.version) ELSE d.version END
        FROM unnest(keys, versions, filenames, uris) AS a (key, version, filename, uri)
        WHERE d.base = b.uid AND d.source = i.source AND d.key = a.key;
        GET DIAGNOSTICS marked = ROW_COUNT;
        RETURN marked;
    END $$;
