-- What an extractor left out of a document, in words, listed with it: a scan with more pages than OCR reads looked complete.

ALTER TABLE slipway.documents
    -- An array of texts, of the revision that is shown. Null if there are none.
    ADD COLUMN notes jsonb;

-- Shows a document with the chunks of the draft, in place of what it had. Without a draft, says that it could not be read;
-- what it had stays until a later ingestion can read it, and its notes with it. A worker of a former version sends no notes.
CREATE OR REPLACE FUNCTION slipway.publish(kb text, ingestion text, holder text, draft text, id text, meta jsonb, content_hash bytea) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
        fresh slipway.drafts;
        former uuid;
        shown text;
    BEGIN
        IF draft IS NOT NULL THEN
            DELETE FROM slipway.drafts d WHERE d.revision = draft::uuid AND d.base = b.uid AND d.holder = $3 RETURNING d.* INTO fresh;
            -- Asked after the row is locked, so that a model which is replaced meanwhile is seen.
            IF fresh.revision IS NULL OR NOT EXISTS (SELECT 1 FROM slipway.bases t WHERE t.uid = b.uid AND t.epoch = fresh.epoch FOR SHARE) THEN
                RAISE EXCEPTION 'the document is no longer being written: it took too long, or the embedding model was replaced' USING ERRCODE = 'SK410';
            END IF;
            SELECT d.revision INTO former FROM slipway.documents d
            WHERE d.base = b.uid AND d.source = i.source AND d.key = meta->>'key' FOR UPDATE;
        END IF;
        INSERT INTO slipway.documents AS d (base, id, source, key, uri, filename, content_type, version, content_hash, status, error, pages, bytes,
                                            revision, chunk_count, seen_in, notes)
        VALUES (b.uid, $5, i.source, meta->>'key', meta->>'uri', meta->>'filename', meta->>'content_type',
                CASE WHEN draft IS NOT NULL THEN meta->>'version' END, $7, CASE WHEN draft IS NULL THEN 'error' ELSE 'ready' END,
                meta->>'error', (meta->>'pages')::integer, (meta->>'bytes')::bigint, fresh.revision, coalesce(fresh.chunk_count, 0), $3,
                CASE WHEN draft IS NOT NULL THEN meta->'notes' END)
        ON CONFLICT (base, source, key) DO UPDATE
        SET uri = excluded.uri, filename = excluded.filename, content_type = excluded.content_type, version = excluded.version,
            content_hash = CASE WHEN draft IS NULL THEN NULL ELSE excluded.content_hash END, status = excluded.status, error = excluded.error,
            pages = CASE WHEN draft IS NULL THEN d.pages ELSE excluded.pages END, bytes = excluded.bytes,
            revision = CASE WHEN draft IS NULL THEN d.revision ELSE excluded.revision END,
            chunk_count = CASE WHEN draft IS NULL THEN d.chunk_count ELSE excluded.chunk_count END,
            seen_in = excluded.seen_in, updated_at = clock_timestamp(), notes = CASE WHEN draft IS NULL THEN d.notes ELSE excluded.notes END
        RETURNING d.id INTO shown;
        IF former IS NOT NULL THEN
            INSERT INTO slipway.drafts (revision, base, epoch, expires_at) VALUES (former, b.uid, b.epoch, now());
            PERFORM slipway.sweep(kb, 2000);
        END IF;
        RETURN shown;
    END $$;
