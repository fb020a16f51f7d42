-- Files that were uploaded, in parts, until they have been ingested.
CREATE TABLE slipway.uploads (
    base text COLLATE "C" NOT NULL REFERENCES slipway.bases,
    id text COLLATE "C" NOT NULL,
    filename text NOT NULL,
    content_type text NOT NULL,
    bytes bigint NOT NULL DEFAULT 0,
    complete boolean NOT NULL DEFAULT false,
    touched_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (base, id)
);

CREATE TABLE slipway.upload_parts (
    base text COLLATE "C" NOT NULL,
    upload text COLLATE "C" NOT NULL,
    ordinal integer NOT NULL,
    data bytea NOT NULL CHECK (octet_length(data) BETWEEN 1 AND 1048576),
    PRIMARY KEY (base, upload, ordinal),
    FOREIGN KEY (base, upload) REFERENCES slipway.uploads ON DELETE CASCADE
);
ALTER TABLE slipway.upload_parts ALTER COLUMN data SET STORAGE EXTERNAL;

-- An upload that is not complete lives for an hour after its last part, one that nobody ingests for a day.
CREATE FUNCTION slipway.expire_uploads() RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
    AS $$ DELETE FROM slipway.uploads
          WHERE (base, id) IN (SELECT base, id FROM slipway.uploads
                               WHERE touched_at < now() - CASE WHEN complete THEN interval '1 day' ELSE interval '1 h' END
                               FOR UPDATE SKIP LOCKED) $$;

CREATE FUNCTION slipway.begin_upload(kb text, id text, filename text, content_type text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        DELETE FROM slipway.uploads u
        WHERE u.base = b.uid AND u.touched_at < now() - CASE WHEN u.complete THEN interval '1 day' ELSE interval '1 h' END;
        INSERT INTO slipway.uploads (base, id, filename, content_type) VALUES (b.uid, $2, $3, $4);
    END $$;

-- A part that is sent again takes its own place.
CREATE FUNCTION slipway.put_part(kb text, upload text, ordinal integer, data bytea) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        quota bigint;
        grows bigint;
    BEGIN
        -- A team's uploads count one after the other.
        SELECT t.upload_quota INTO quota FROM slipway.teams t WHERE t.team = b.team FOR UPDATE;
        grows := octet_length(data) - coalesce((SELECT octet_length(p.data) FROM slipway.upload_parts p
                                                WHERE p.base = b.uid AND p.upload = $2 AND p.ordinal = $3), 0);
        IF grows + (SELECT coalesce(sum(u.bytes), 0) FROM slipway.uploads u WHERE u.base = b.uid) > b.upload_quota THEN
            RAISE EXCEPTION 'the knowledge base has no room for more uploads until some have been ingested' USING ERRCODE = 'SK413';
        END IF;
        IF grows + (SELECT coalesce(sum(u.bytes), 0) FROM slipway.uploads u JOIN slipway.bases t ON t.uid = u.base WHERE t.team = b.team) > quota THEN
            RAISE EXCEPTION 'the team has no room for more uploads until some have been ingested' USING ERRCODE = 'SK413';
        END IF;
        UPDATE slipway.uploads u SET bytes = u.bytes + grows, touched_at = now() WHERE u.base = b.uid AND u.id = $2 AND NOT u.complete;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no such upload that takes parts' USING ERRCODE = 'SK404';
        END IF;
        INSERT INTO slipway.upload_parts AS p (base, upload, ordinal, data) VALUES (b.uid, $2, $3, $4)
        ON CONFLICT ON CONSTRAINT upload_parts_pkey DO UPDATE SET data = excluded.data;
    END $$;

CREATE FUNCTION slipway.finish_upload(kb text, upload text, parts integer, bytes bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        UPDATE slipway.uploads u SET complete = true, touched_at = now()
        WHERE u.base = b.uid AND u.id = $2 AND u.bytes = $4
          AND (SELECT count(*) = $3 AND coalesce(min(p.ordinal) = 0 AND max(p.ordinal) = $3 - 1, $3 = 0)
               FROM slipway.upload_parts p WHERE p.base = b.uid AND p.upload = $2);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the upload is not there or lacks parts' USING ERRCODE = 'SK404';
        END IF;
    END $$;

CREATE FUNCTION slipway.find_upload(kb text, upload text) RETURNS TABLE (filename text, content_type text, bytes bigint, complete boolean)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        RETURN QUERY SELECT u.filename, u.content_type, u.bytes, u.complete FROM slipway.uploads u WHERE u.base = b.uid AND u.id = $2;
    END $$;

CREATE FUNCTION slipway.read_part(kb text, upload text, ordinal integer) RETURNS bytea
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        RETURN (SELECT p.data FROM slipway.upload_parts p JOIN slipway.uploads u ON u.base = p.base AND u.id = p.upload
                WHERE p.base = b.uid AND p.upload = $2 AND p.ordinal = $3 AND u.complete);
    END $$;

CREATE FUNCTION slipway.remove_upload(kb text, upload text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        DELETE FROM slipway.uploads u WHERE u.base = b.uid AND u.id = $2;
        RETURN FOUND;
    END $$;
