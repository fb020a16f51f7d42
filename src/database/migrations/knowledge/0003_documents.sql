-- Documents. A document's chunks are those of its revision; chunks of any other revision are shown to nobody. So a document
-- of any length is written in short transactions, and one row's change shows all of it at once.
CREATE TABLE slipway.documents (
    base text COLLATE "C" NOT NULL REFERENCES slipway.bases,
    id text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    uri text NOT NULL,
    filename text COLLATE "C" NOT NULL,
    content_type text NOT NULL,
    version text COLLATE "C",
    content_hash bytea,
    status text NOT NULL CHECK (status IN ('ready', 'error')),
    error text,
    pages integer,
    bytes bigint NOT NULL,
    revision uuid,
    chunk_count integer NOT NULL DEFAULT 0,
    -- The holder of the last ingestion that found it at its source.
    seen_in text COLLATE "C",
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (base, id)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX documents_by_key ON slipway.documents (base, source, key);
CREATE INDEX documents_by_filename ON slipway.documents (base, filename);
CREATE UNIQUE INDEX documents_by_revision ON slipway.documents (revision) WHERE revision IS NOT NULL;

-- Revisions that no document shows: being written, or to be deleted once they expire.
CREATE TABLE slipway.drafts (
    revision uuid PRIMARY KEY,
    base text COLLATE "C" NOT NULL REFERENCES slipway.bases ON DELETE CASCADE,
    holder text COLLATE "C",
    epoch integer NOT NULL,
    chunk_count integer NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL
);
CREATE INDEX drafts_by_age ON slipway.drafts (base, expires_at);

CREATE FUNCTION slipway.begin_draft(kb text, ingestion text, holder text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        fresh uuid := gen_random_uuid();
    BEGIN
        PERFORM slipway.held(b.uid, ingestion, holder);
        INSERT INTO slipway.drafts (revision, base, holder, epoch, expires_at) VALUES (fresh, b.uid, $3, b.epoch, now() + interval '1 h');
        RETURN fresh::text;
    END $$;

CREATE FUNCTION slipway.add_chunks(kb text, ingestion text, holder text, revision text, ordinals integer[], pages integer[], tokens integer[],
                                   starts bigint[], ends bigint[], hashes bytea[], sections text[], contents text[], embeddings slipway.halfvec[])
    RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, slipway, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        PERFORM slipway.held(b.uid, ingestion, holder);
        UPDATE slipway.drafts d SET chunk_count = d.chunk_count + cardinality(ordinals), expires_at = now() + interval '1 h'
        WHERE d.revision = $4::uuid AND d.base = b.uid AND d.holder = $3 AND d.epoch = b.epoch;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the document is no longer being written: it took too long, or the embedding model was replaced' USING ERRCODE = 'SK410';
        END IF;
        IF EXISTS (SELECT 1 FROM unnest(embeddings) e WHERE vector_dims(e) IS DISTINCT FROM b.dimensions AND e IS NOT NULL) THEN
            RAISE EXCEPTION 'a vector has not as many dimensions as the knowledge base' USING ERRCODE = 'SK409';
        END IF;
        EXECUTE format('INSERT INTO slipway.%I (revision, ordinal, page, tokens, starts, ends, hash, section, content, embedding)
                        SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10)', b.chunks)
        USING revision::uuid, ordinals, pages, tokens, starts, ends, hashes, sections, contents, embeddings;
    END $$;

-- Shows a document with the chunks of the draft, in place of what it had. Without a draft, says that it could not be read;
-- what it had stays until a later ingestion can read it.
CREATE FUNCTION slipway.publish(kb text, ingestion text, holder text, draft text, id text, meta jsonb, content_hash bytea) RETURNS text
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
                                            revision, chunk_count, seen_in)
        VALUES (b.uid, $5, i.source, meta->>'key', meta->>'uri', meta->>'filename', meta->>'content_type',
                CASE WHEN draft IS NOT NULL THEN meta->>'version' END, $7, CASE WHEN draft IS NULL THEN 'error' ELSE 'ready' END,
                meta->>'error', (meta->>'pages')::integer, (meta->>'bytes')::bigint, fresh.revision, coalesce(fresh.chunk_count, 0), $3)
        ON CONFLICT (base, source, key) DO UPDATE
        SET uri = excluded.uri, filename = excluded.filename, content_type = excluded.content_type, version = excluded.version,
            content_hash = CASE WHEN draft IS NULL THEN NULL ELSE excluded.content_hash END, status = excluded.status, error = excluded.error,
            pages = CASE WHEN draft IS NULL THEN d.pages ELSE excluded.pages END, bytes = excluded.bytes,
            revision = CASE WHEN draft IS NULL THEN d.revision ELSE excluded.revision END,
            chunk_count = CASE WHEN draft IS NULL THEN d.chunk_count ELSE excluded.chunk_count END,
            seen_in = excluded.seen_in, updated_at = clock_timestamp()
        RETURNING d.id INTO shown;
        IF former IS NOT NULL THEN
            INSERT INTO slipway.drafts (revision, base, epoch, expires_at) VALUES (former, b.uid, b.epoch, now());
            PERFORM slipway.sweep(kb, 2000);
        END IF;
        RETURN shown;
    END $$;

-- Deletes at most so many chunks that are shown no more. Whether there may be others.
CREATE FUNCTION slipway.sweep(kb text, most integer) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        places integer := least(most, 10000);
        old uuid;
        deleted integer;
    BEGIN
        LOOP
            SELECT d.revision INTO old FROM slipway.drafts d WHERE d.base = b.uid AND d.expires_at <= now() LIMIT 1 FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                RETURN false;
            END IF;
            EXECUTE format('DELETE FROM slipway.%1$I WHERE ctid = ANY (ARRAY(SELECT ctid FROM slipway.%1$I WHERE revision = $1 LIMIT $2))', b.chunks)
            USING old, places;
            GET DIAGNOSTICS deleted = ROW_COUNT;
            IF deleted >= places THEN
                RETURN true;
            END IF;
            places := places - deleted;
            DELETE FROM slipway.drafts d WHERE d.revision = old;
        END LOOP;
    END $$;

-- What an ingestion that ends leaves unfinished need not wait until it expires.
CREATE FUNCTION slipway.discard_drafts(kb text, holder text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        UPDATE slipway.drafts d SET expires_at = now() WHERE d.base = b.uid AND d.holder = $2;
    END $$;

-- Which of the documents that a source lists need work, with the hash of the content that is shown of them. The others are
-- marked as seen.
CREATE FUNCTION slipway.changed(kb text, ingestion text, holder text, keys text[], versions text[])
    RETURNS TABLE (key text, content_hash bytea)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
    BEGIN
        UPDATE slipway.documents d SET seen_in = $3 FROM unnest(keys, versions) AS a (key, version)
        WHERE d.base = b.uid AND d.source = i.source AND d.key = a.key AND d.status = 'ready' AND d.version = a.version
          AND d.seen_in IS DISTINCT FROM $3;
        RETURN QUERY
            SELECT a.key, CASE WHEN d.status = 'ready' AND d.version IS NOT NULL THEN d.content_hash END
            FROM unnest(keys, versions) WITH ORDINALITY AS a (key, version, place)
            LEFT JOIN slipway.documents d ON d.base = b.uid AND d.source = i.source AND d.key = a.key
            WHERE NOT coalesce(d.status = 'ready' AND d.version = a.version, false)
            ORDER BY a.place;
    END $$;

-- Documents whose content has been found unchanged under another version.
CREATE FUNCTION slipway.mark_seen(kb text, ingestion text, holder text, keys text[], versions text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
        marked bigint;
    BEGIN
        UPDATE slipway.documents d
        SET seen_in = $3, version = CASE WHEN d.status = 'ready' AND d.version IS NOT NULL THEN coalesce(a.version, d.version) ELSE d.version END
        FROM unnest(keys, versions) AS a (key, version)
        WHERE d.base = b.uid AND d.source = i.source AND d.key = a.key;
        GET DIAGNOSTICS marked = ROW_COUNT;
        RETURN marked;
    END $$;

-- Removes at most a thousand documents of the ingestion's source that it has not seen; how many.
CREATE FUNCTION slipway.remove_unseen(kb text, ingestion text, holder text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions := slipway.held(b.uid, ingestion, holder);
        removed bigint;
    BEGIN
        WITH gone AS (
            DELETE FROM slipway.documents d
            WHERE d.base = b.uid AND d.id IN (SELECT u.id FROM slipway.documents u WHERE u.base = b.uid AND u.source = i.source
                                              AND u.seen_in IS DISTINCT FROM $3 LIMIT 1000)
            RETURNING d.revision
        ), kept AS (
            INSERT INTO slipway.drafts (revision, base, epoch, expires_at) SELECT g.revision, b.uid, b.epoch, now() FROM gone g WHERE g.revision IS NOT NULL
        )
        SELECT count(*) INTO removed FROM gone;
        RETURN removed;
    END $$;

-- Removes documents by their ids, of the ingestion's source by their keys, or at most a thousand of a source; how many.
CREATE FUNCTION slipway.remove_documents(kb text, source text, keys text[], ids text[]) RETURNS bigint
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
            RETURNING d.revision
        ), kept AS (
            INSERT INTO slipway.drafts (revision, base, epoch, expires_at) SELECT g.revision, b.uid, b.epoch, now() FROM gone g WHERE g.revision IS NOT NULL
        )
        SELECT count(*) INTO removed FROM gone;
        RETURN removed;
    END $$;

-- Vectors that the base already has, by the hash of what was embedded.
CREATE FUNCTION slipway.vectors_of(kb text, hashes bytea[]) RETURNS TABLE (hash bytea, embedding slipway.halfvec)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, slipway, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        RETURN QUERY EXECUTE format('SELECT h.hash, c.embedding FROM (SELECT DISTINCT unnest($1) AS hash) h,
            LATERAL (SELECT c.embedding FROM slipway.%I c WHERE c.hash = h.hash AND c.embedding IS NOT NULL LIMIT 1) c', b.chunks)
        USING hashes;
    END $$;

-- A column is dropped in an instant, however many vectors there are. Until documents are ingested again they are found in
-- full text.
CREATE FUNCTION slipway.replace_model(kb text, model text, dimensions integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, slipway, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        PERFORM 1 FROM slipway.bases t WHERE t.uid = b.uid FOR UPDATE;
        EXECUTE format('ALTER TABLE slipway.%I DROP COLUMN embedding, ADD COLUMN embedding halfvec', b.chunks);
        EXECUTE format('ALTER TABLE slipway.%I ALTER COLUMN embedding SET STORAGE MAIN', b.chunks);
        UPDATE slipway.bases t SET model = $2, dimensions = $3, epoch = t.epoch + 1, indexed = false WHERE t.uid = b.uid;
        UPDATE slipway.documents d SET version = NULL WHERE d.base = b.uid;
    END $$;

CREATE FUNCTION slipway.list_documents(kb text, before text, most integer) RETURNS SETOF slipway.documents
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        RETURN QUERY SELECT d.* FROM slipway.documents d WHERE d.base = b.uid AND (before IS NULL OR d.id < before) ORDER BY d.id DESC LIMIT least(most, 1001);
    END $$;

CREATE FUNCTION slipway.count_documents(kb text) RETURNS TABLE (ready bigint, failed bigint, chunks bigint, bytes bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        RETURN QUERY SELECT count(*) FILTER (WHERE d.status = 'ready'), count(*) FILTER (WHERE d.status = 'error'),
                            coalesce(sum(d.chunk_count), 0)::bigint, coalesce(sum(d.bytes), 0)::bigint
                     FROM slipway.documents d WHERE d.base = b.uid;
    END $$;
