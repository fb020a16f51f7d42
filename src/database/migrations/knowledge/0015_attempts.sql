-- Documents whose reading may be what ended the process that read them, such as for want of memory: each pod of a Job would meet
-- them again, and so would the next ingestion.
CREATE TABLE slipway.attempts (
    base text COLLATE "C" NOT NULL REFERENCES slipway.bases ON DELETE CASCADE,
    source text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    -- Of the bytes and of how they are read. With any other the document is as good as new.
    content_hash bytea NOT NULL CHECK (octet_length(content_hash) = 32),
    -- How often it was begun without an end.
    attempts integer NOT NULL,
    -- The Ingestion and the process that began it last. That process reads it now, or has ended. Null if it took its attempt back.
    ingestion text COLLATE "C" NOT NULL,
    holder text COLLATE "C",
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (base, source, key)
) WITH (fillfactor = 70);

-- Whether a document may be read: not after two attempts without an end, unless this Ingestion reads such documents again, of which it
-- has two attempts as well. A base keeps a hundred.
CREATE FUNCTION slipway.begin_attempt(kb text, ingestion text, holder text, key text, content_hash bytea, again boolean) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
        former slipway.attempts;
        number integer := 1;
    BEGIN
        SELECT a.* INTO former FROM slipway.attempts a WHERE a.base = b.uid AND a.source = i.source AND a.key = $4 FOR UPDATE;
        IF former.content_hash = $5 THEN
            IF former.holder = $3 THEN
                RETURN true;
            ELSIF former.attempts < 2 THEN
                number := former.attempts + 1;
            ELSIF NOT coalesce(again, false) OR former.ingestion = $2 THEN
                RETURN false;
            END IF;
        END IF;
        INSERT INTO slipway.attempts (base, source, key, content_hash, attempts, ingestion, holder)
        VALUES (b.uid, i.source, $4, $5, number, $2, $3)
        ON CONFLICT ON CONSTRAINT attempts_pkey DO UPDATE
        SET content_hash = excluded.content_hash, attempts = excluded.attempts, ingestion = excluded.ingestion, holder = excluded.holder,
            begun_at = excluded.begun_at;
        DELETE FROM slipway.attempts a
        WHERE a.base = b.uid AND (a.source, a.key) NOT IN (SELECT k.source, k.key FROM slipway.attempts k WHERE k.base = b.uid
                                                           ORDER BY k.begun_at DESC LIMIT 100);
        RETURN true;
    END $$;

-- The documents of the source that were begun without an end.
CREATE FUNCTION slipway.list_attempts(kb text, ingestion text, holder text) RETURNS TABLE (key text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        RETURN QUERY
            SELECT a.key FROM slipway.ingestions t JOIN slipway.attempts a ON a.base = t.base AND a.source = t.source
            WHERE t.base = b.uid AND t.uid = $2 AND t.holder = $3 AND t.ended_at IS NULL;
    END $$;

-- A process that knows why it ends says that it is not what it reads.
CREATE FUNCTION slipway.withdraw_attempts(kb text, holder text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        DELETE FROM slipway.attempts a WHERE a.base = b.uid AND a.holder = $2 AND a.attempts <= 1;
        UPDATE slipway.attempts a SET attempts = a.attempts - 1, holder = NULL WHERE a.base = b.uid AND a.holder = $2;
    END $$;

-- What an ingestion that ends leaves unfinished need not wait until it expires, and is not what ended it.
CREATE OR REPLACE FUNCTION slipway.discard_drafts(kb text, holder text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        UPDATE slipway.drafts d SET expires_at = now() WHERE d.base = b.uid AND d.holder = $2;
        PERFORM slipway.withdraw_attempts($1, $2);
    END $$;

-- Shows a document with the chunks of the draft, in place of what it had. Without a draft, says that it could not be read;
-- what it had stays until a later ingestion can read it, and its notes with it. A worker of a former version sends no notes, and counts
-- no attempts. Either way this one has come to an end.
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
        DELETE FROM slipway.attempts a WHERE a.base = b.uid AND a.source = i.source AND a.key = meta->>'key' AND a.holder = $3;
        IF former IS NOT NULL THEN
            INSERT INTO slipway.drafts (revision, base, epoch, expires_at) VALUES (former, b.uid, b.epoch, now());
            PERFORM slipway.sweep(kb, 2000);
        END IF;
        RETURN shown;
    END $$;
