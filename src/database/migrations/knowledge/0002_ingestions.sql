-- One row is one Ingestion. While it runs it holds its source: another is refused until 60 s after its last heartbeat.
CREATE TABLE slipway.ingestions (
    base text COLLATE "C" NOT NULL REFERENCES slipway.bases ON DELETE CASCADE,
    uid text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    -- The process that runs it. One that another has taken over from writes nothing more.
    holder text COLLATE "C" NOT NULL,
    phase text NOT NULL,
    seen bigint NOT NULL DEFAULT 0,
    changed bigint NOT NULL DEFAULT 0,
    unchanged bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    removed bigint NOT NULL DEFAULT 0,
    pages bigint NOT NULL DEFAULT 0,
    chunks bigint NOT NULL DEFAULT 0,
    errors jsonb NOT NULL DEFAULT '[]',
    heartbeat timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    PRIMARY KEY (base, uid)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX ingestions_of_source ON slipway.ingestions (base, source) WHERE ended_at IS NULL;

-- outcome: begun, held (by another process, until then) or ended (it has succeeded before).
CREATE FUNCTION slipway.begin_ingestion(kb text, ingestion text, source text, holder text)
    RETURNS TABLE (outcome text, held_by text, held_for double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        former slipway.ingestions;
    BEGIN
        PERFORM 1 FROM slipway.bases t WHERE t.uid = b.uid FOR NO KEY UPDATE;
        IF EXISTS (SELECT 1 FROM slipway.ingestions i WHERE i.base = b.uid AND i.uid = $2 AND i.ended_at IS NOT NULL AND i.phase = 'succeeded') THEN
            RETURN QUERY SELECT 'ended', NULL::text, NULL::double precision;
            RETURN;
        END IF;
        SELECT i.* INTO former FROM slipway.ingestions i WHERE i.base = b.uid AND i.source = $3 AND i.ended_at IS NULL;
        IF FOUND AND former.holder <> $4 AND former.heartbeat > clock_timestamp() - interval '60 s' THEN
            RETURN QUERY SELECT 'held', former.uid,
                extract(epoch FROM former.heartbeat + interval '60 s' - clock_timestamp())::double precision;
            RETURN;
        END IF;
        UPDATE slipway.ingestions i
        SET ended_at = clock_timestamp(), phase = 'failed',
            errors = i.errors || jsonb_build_array(jsonb_build_object('key', '', 'error', 'the ingestion stopped without a word and another took its place'))
        WHERE i.base = b.uid AND i.source = $3 AND i.ended_at IS NULL AND i.uid <> $2;
        INSERT INTO slipway.ingestions AS i (base, uid, source, holder, phase) VALUES (b.uid, $2, $3, $4, 'traversing')
        ON CONFLICT (base, uid) DO UPDATE
        SET source = excluded.source, holder = excluded.holder, phase = excluded.phase, seen = 0, changed = 0, unchanged = 0, failed = 0,
            removed = 0, pages = 0, chunks = 0, errors = '[]', heartbeat = clock_timestamp(), ended_at = NULL;
        DELETE FROM slipway.ingestions i
        WHERE i.base = b.uid AND i.ended_at IS NOT NULL
          AND i.uid NOT IN (SELECT k.uid FROM slipway.ingestions k WHERE k.base = b.uid ORDER BY k.started_at DESC LIMIT 100);
        RETURN QUERY SELECT 'begun', NULL::text, NULL::double precision;
    END $$;

-- The ingestion, for as long as this process has it. The lock keeps another from taking over within this transaction.
CREATE FUNCTION slipway.held(base text, ingestion text, holder text) RETURNS slipway.ingestions
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        i slipway.ingestions;
    BEGIN
        SELECT t.* INTO i FROM slipway.ingestions t
        WHERE t.base = $1 AND t.uid = $2 AND t.holder = $3 AND t.ended_at IS NULL FOR SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'this process no longer has the ingestion: it has ended or another process has taken its place' USING ERRCODE = 'SK410';
        END IF;
        RETURN i;
    END $$;

-- Whether this process still has it.
CREATE FUNCTION slipway.report_ingestion(kb text, ingestion text, holder text, report jsonb, ends boolean) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        UPDATE slipway.ingestions i
        SET phase = coalesce(left(report->>'phase', 32), i.phase), seen = (report->>'seen')::bigint, changed = (report->>'changed')::bigint,
            unchanged = (report->>'unchanged')::bigint, failed = (report->>'failed')::bigint, removed = (report->>'removed')::bigint,
            pages = (report->>'pages')::bigint, chunks = (report->>'chunks')::bigint,
            errors = CASE WHEN pg_column_size(report->'errors') < 65536 THEN report->'errors' ELSE '[]' END,
            heartbeat = clock_timestamp(), ended_at = CASE WHEN ends THEN clock_timestamp() END
        WHERE i.base = b.uid AND i.uid = $2 AND i.holder = $3 AND i.ended_at IS NULL;
        RETURN FOUND;
    END $$;
