-- How many documents and chunks all knowledge bases of a team may have.

ALTER TABLE slipway.teams ADD COLUMN document_quota bigint, ADD COLUMN chunk_quota bigint;

-- What a base has, counted as documents come and go. A row of its own, so that counting holds up nobody who looks for a base.
CREATE TABLE slipway.contents (
    base text COLLATE "C" PRIMARY KEY REFERENCES slipway.bases ON DELETE CASCADE,
    documents bigint NOT NULL DEFAULT 0,
    chunks bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE FUNCTION slipway.count_content() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO slipway.contents AS c (base, documents, chunks) SELECT n.base, count(*), sum(n.chunk_count) FROM new_rows n GROUP BY n.base
            ON CONFLICT (base) DO UPDATE SET documents = c.documents + excluded.documents, chunks = c.chunks + excluded.chunks;
        ELSIF TG_OP = 'DELETE' THEN
            UPDATE slipway.contents c SET documents = c.documents - o.documents, chunks = c.chunks - o.chunks
            FROM (SELECT base, count(*) AS documents, sum(chunk_count) AS chunks FROM old_rows GROUP BY base) o WHERE c.base = o.base;
        ELSE
            UPDATE slipway.contents c SET chunks = c.chunks + n.chunks - o.chunks
            FROM (SELECT base, sum(chunk_count) AS chunks FROM new_rows GROUP BY base) n,
                 (SELECT base, sum(chunk_count) AS chunks FROM old_rows GROUP BY base) o
            WHERE c.base = n.base AND o.base = n.base AND n.chunks <> o.chunks;
        END IF;
        RETURN NULL;
    END $$;

LOCK TABLE slipway.documents IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO slipway.contents (base, documents, chunks) SELECT base, count(*), sum(chunk_count) FROM slipway.documents GROUP BY base;
CREATE TRIGGER count_inserted AFTER INSERT ON slipway.documents REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION slipway.count_content();
CREATE TRIGGER count_updated AFTER UPDATE ON slipway.documents REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION slipway.count_content();
CREATE TRIGGER count_deleted AFTER DELETE ON slipway.documents REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION slipway.count_content();

-- Refuses what a team has no room for: so many more documents and chunks. Its row is locked, so that two that write at once do
-- not both take the last place.
CREATE FUNCTION slipway.check_room(team text, documents bigint, chunks bigint) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        quota slipway.teams;
        has_documents bigint;
        has_chunks bigint;
    BEGIN
        IF documents <= 0 AND chunks <= 0 THEN
            RETURN;
        END IF;
        SELECT t.* INTO quota FROM slipway.teams t WHERE t.team = $1 FOR NO KEY UPDATE;
        SELECT coalesce(sum(c.documents), 0), coalesce(sum(c.chunks), 0) INTO has_documents, has_chunks
        FROM slipway.contents c JOIN slipway.bases t ON t.uid = c.base WHERE t.team = $1 AND t.gone_since IS NULL;
        IF $2 > 0 AND has_documents + $2 > quota.document_quota THEN
            RAISE EXCEPTION 'the knowledge bases of the team have % documents, and may have % (chart value worker.quota.documents): remove some, or have the quota raised', has_documents, quota.document_quota USING ERRCODE = 'SK413';
        END IF;
        IF $3 > 0 AND has_chunks + $3 > quota.chunk_quota THEN
            RAISE EXCEPTION 'the knowledge bases of the team have % chunks, and with this document more than the % that they may have (chart value worker.quota.chunks): remove documents, or have the quota raised', has_chunks, quota.chunk_quota USING ERRCODE = 'SK413';
        END IF;
    END $$;

-- A document that alone is larger than what the team may have is not written to its end.
CREATE FUNCTION slipway.check_draft() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        quota bigint := (SELECT t.chunk_quota FROM slipway.bases b JOIN slipway.teams t USING (team) WHERE b.uid = NEW.base);
    BEGIN
        IF NEW.chunk_count > quota THEN
            RAISE EXCEPTION 'the document alone has more than the % chunks that all knowledge bases of the team may have (chart value worker.quota.chunks)', quota USING ERRCODE = 'SK413';
        END IF;
        RETURN NULL;
    END $$;
CREATE TRIGGER check_draft AFTER UPDATE OF chunk_count ON slipway.drafts FOR EACH ROW EXECUTE FUNCTION slipway.check_draft();

-- A document takes the room of what it replaces.
CREATE FUNCTION slipway.check_document() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        former integer := (SELECT d.chunk_count FROM slipway.documents d WHERE d.base = NEW.base AND d.source = NEW.source AND d.key = NEW.key);
    BEGIN
        PERFORM slipway.check_room((SELECT b.team FROM slipway.bases b WHERE b.uid = NEW.base),
                                   CASE WHEN former IS NULL THEN 1 ELSE 0 END, NEW.chunk_count - coalesce(former, 0));
        RETURN NEW;
    END $$;
CREATE TRIGGER check_document BEFORE INSERT ON slipway.documents FOR EACH ROW EXECUTE FUNCTION slipway.check_document();

-- A file that could not be stored is not taken. One of a name that is there takes its place.
CREATE OR REPLACE FUNCTION slipway.begin_upload(kb text, id text, filename text, content_type text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM slipway.documents d WHERE d.base = b.uid AND d.source = 'uploads' AND d.key = $3) THEN
            PERFORM slipway.check_room(b.team, 1, 1);
        END IF;
        DELETE FROM slipway.uploads u
        WHERE u.base = b.uid AND u.touched_at < now() - CASE WHEN u.complete THEN interval '1 day' ELSE interval '1 h' END;
        INSERT INTO slipway.uploads (base, id, filename, content_type) VALUES (b.uid, $2, $3, $4);
    END $$;
