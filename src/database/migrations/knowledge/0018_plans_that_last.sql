-- What a search reads in a base's own table, functions of that base read: their statements are planned once a session, where those of
-- slipway.search were planned anew by each search.

-- Of an index of vectors: the nearest that the filter lets through.
CREATE FUNCTION slipway.make_nearest(name name, dimensions integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, slipway, pg_temp
    AS $make$
    BEGIN
        EXECUTE format($format$
            CREATE OR REPLACE FUNCTION slipway.%1$I(base text, sources text[], filenames text[], documents text[], vector slipway.halfvec, depth integer,
                                                    OUT revisions uuid[], OUT ordinals integer[], OUT distances double precision[])
                LANGUAGE plpgsql STABLE
                SET search_path = pg_catalog, slipway, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
                AS $$
                BEGIN
                    SELECT array_agg(n.revision), array_agg(n.ordinal), array_agg(n.distance) INTO revisions, ordinals, distances
                    FROM (SELECT c.revision, c.ordinal, c.embedding::halfvec(%3$s) <=> vector::halfvec(%3$s) AS distance FROM slipway.%2$I c
                          WHERE (SELECT true FROM slipway.documents d
                                 WHERE d.revision = c.revision AND d.base = $1 AND ($2 IS NULL OR d.source = ANY ($2))
                                   AND ($3 IS NULL OR d.filename = ANY ($3)) AND ($4 IS NULL OR d.id = ANY ($4)))
                          ORDER BY c.embedding::halfvec(%3$s) <=> vector::halfvec(%3$s) LIMIT depth) n;
                END $$ $format$, name || '_nearest', name, dimensions);
        EXECUTE format('REVOKE ALL ON FUNCTION slipway.%I FROM PUBLIC', name || '_nearest');
    END $make$;

-- Chunks that were found, with what is said of them.
CREATE FUNCTION slipway.make_found(name name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, slipway, pg_temp
    AS $make$
    BEGIN
        EXECUTE format($format$
            CREATE OR REPLACE FUNCTION slipway.%1$I(revisions uuid[], ordinals integer[], scores double precision[], near integer[], read integer[],
                                                    ids text[], sources text[], keys text[], uris text[], filenames text[], vector slipway.halfvec)
                RETURNS TABLE (chunk text, ordinal integer, page integer, section text, content text, tokens integer, document text, source text, key text,
                               uri text, filename text, score double precision, cosine double precision, vector_rank integer, text_rank integer)
                LANGUAGE plpgsql STABLE SET search_path = pg_catalog, slipway, pg_temp
                AS $$
                #variable_conflict use_column
                BEGIN
                    RETURN QUERY
                    SELECT 'chunk_' || replace(c.revision::text, '-', '') || '_' || c.ordinal, c.ordinal, c.page, c.section, c.content, c.tokens,
                           f.id, f.source, f.key, f.uri, f.filename, f.score, 1 - (c.embedding <=> $11), f.near, f.read
                    FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS f (revision, ordinal, score, near, read, id, source, key, uri, filename)
                    JOIN slipway.%2$I c ON c.revision = f.revision AND c.ordinal = f.ordinal
                    ORDER BY f.score DESC, f.near NULLS LAST, f.read;
                END $$ $format$, name || '_found', name);
        EXECUTE format('REVOKE ALL ON FUNCTION slipway.%I FROM PUBLIC', name || '_found');
    END $make$;

-- As before, and the base's functions.
CREATE OR REPLACE FUNCTION slipway.make_chunks(name name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, slipway, pg_temp
    AS $$
    BEGIN
        EXECUTE format('
            CREATE TABLE slipway.%1$I (
                revision uuid NOT NULL,
                ordinal integer NOT NULL,
                page integer,
                tokens integer NOT NULL,
                starts bigint NOT NULL,
                ends bigint NOT NULL,
                hash bytea NOT NULL,
                section text NOT NULL,
                content text NOT NULL,
                embedding halfvec,
                words tsvector NOT NULL GENERATED ALWAYS AS (
                    setweight(to_tsvector(''simple'', section) || to_tsvector(''english'', section), ''B'')
                    || to_tsvector(''simple'', content) || to_tsvector(''english'', content)) STORED,
                PRIMARY KEY (revision, ordinal))', name);
        EXECUTE format('ALTER TABLE slipway.%I ALTER COLUMN embedding SET STORAGE MAIN', name);
        EXECUTE format('CREATE INDEX %I ON slipway.%I USING hash (hash)', name || '_hash', name);
        EXECUTE format('CREATE INDEX %I ON slipway.%I USING gin (words)', name || '_words', name);
        PERFORM slipway.make_found(name);
    END $$;

-- As before, and the index's function.
CREATE OR REPLACE FUNCTION slipway.build(kb text, threshold bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, slipway, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        many bigint;
        statement text;
    BEGIN
        PERFORM 1 FROM slipway.builds t WHERE t.base = b.uid FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        IF b.dimensions IS NOT NULL AND to_regclass(format('slipway.%I', b.chunks || '_near')) IS NULL THEN
            EXECUTE format('SELECT count(*) FROM slipway.%I WHERE embedding IS NOT NULL', b.chunks) INTO many;
            IF many >= threshold THEN
                -- As much memory as the graph takes, within bounds: beyond it a build is slower by far.
                PERFORM set_config('maintenance_work_mem',
                                   greatest(65536, least(1048576, many * (b.dimensions * 2 + 600) / 1024 * 5 / 4))::text || 'kB', true);
                statement := format('CREATE INDEX %I ON slipway.%I USING hnsw ((embedding::halfvec(%s)) halfvec_cosine_ops) WITH (m = 16, ef_construction = 128)',
                                    b.chunks || '_near', b.chunks, b.dimensions);
                BEGIN
                    EXECUTE statement;
                EXCEPTION WHEN disk_full OR out_of_memory THEN
                    -- Workers build in shared memory, of which containers may have little.
                    PERFORM set_config('max_parallel_maintenance_workers', '0', true);
                    EXECUTE statement;
                END;
                PERFORM slipway.make_nearest(b.chunks, b.dimensions);
                UPDATE slipway.bases t SET indexed = true WHERE t.uid = b.uid AND t.epoch = b.epoch;
            END IF;
        END IF;
        PERFORM gin_clean_pending_list(format('slipway.%I', b.chunks || '_words')::regclass);
        EXECUTE format('ANALYZE slipway.%I (revision, words)', b.chunks);
        DELETE FROM slipway.frequencies f WHERE f.base = b.uid;
        INSERT INTO slipway.frequencies (base, word, share)
            SELECT b.uid, w.word, w.share
            FROM pg_stats s, unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) AS w (word, share)
            WHERE s.schemaname = 'slipway' AND s.tablename = b.chunks AND s.attname = 'words' AND w.word IS NOT NULL AND w.share > 0.001;
        RETURN true;
    END $$;

-- STABLE, so that everything in it reads one state of the base.
CREATE OR REPLACE FUNCTION slipway.search(kb text, query text, vector slipway.halfvec, top integer, least_score double precision,
                               sources text[], filenames text[], documents text[])
    RETURNS TABLE (chunk text, ordinal integer, page integer, section text, content text, tokens integer, document text, source text, key text,
                   uri text, filename text, score double precision, cosine double precision, vector_rank integer, text_rank integer)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, slipway, pg_temp SET client_min_messages = warning SET jit = off SET max_parallel_workers_per_gather = 0
    AS $$
    #variable_conflict use_column
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        places integer := least(greatest(top, 1), 100);
        -- Candidates of each half, of which alone no more are needed than are returned.
        depth integer := CASE WHEN vector IS NULL OR trim(query) = '' THEN places ELSE greatest(50, 2 * places) END;
        filtered boolean := sources IS NOT NULL OR filenames IS NOT NULL OR documents IS NOT NULL;
        -- Of a document d, whether it is looked in.
        condition text := 'd.base = $1';
        -- Of a chunk c, whether it is shown: asked of few, and of all.
        visible text;
        all_visible text;
        -- How many documents and chunks the base has.
        all_documents double precision;
        total double precision;
        revisions uuid[];
        most integer;
        many bigint;
        few double precision;
        near_revisions uuid[] := '{}';
        near_ordinals integer[] := '{}';
        distances double precision[] := '{}';
        -- By its letters: the few words that are left of a question without its common words are together in many a text.
        whole tsquery := CASE WHEN trim(query) <> '' THEN websearch_to_tsquery('simple', query) END;
        has_words boolean := coalesce(numnode(whole), 0) > 0;
        words tsquery[];
        weights double precision[];
        any_word tsquery;
        text_revisions uuid[] := '{}';
        text_ordinals integer[] := '{}';
        -- How many of these have all words of the query.
        text_complete bigint := 0;
        -- The weight of all that is searched: vectors and matches of all words 1, others a half, as docs/knowledge.md has measured.
        best double precision := 0;
        hits record;
    BEGIN
        IF vector IS NOT NULL AND vector_dims(vector) IS DISTINCT FROM b.dimensions THEN
            IF b.dimensions IS NOT NULL THEN
                RAISE EXCEPTION 'the vector has not as many dimensions as the knowledge base' USING ERRCODE = 'SK409';
            END IF;
            vector := NULL;
        END IF;
        IF sources IS NOT NULL THEN
            condition := condition || ' AND d.source = ANY ($2)';
        END IF;
        IF filenames IS NOT NULL THEN
            condition := condition || ' AND d.filename = ANY ($3)';
        END IF;
        IF documents IS NOT NULL THEN
            condition := condition || ' AND d.id = ANY ($4)';
        END IF;
        visible := format('(SELECT true FROM slipway.documents d WHERE d.revision = c.revision AND %s)', condition);
        all_visible := format('c.revision IN (SELECT d.revision FROM slipway.documents d WHERE %s)', condition);
        IF filtered OR has_words THEN
            SELECT t.documents, t.chunks INTO all_documents, total FROM slipway.contents t WHERE t.base = b.uid;
        END IF;
        IF filtered THEN
            -- Few enough are compared one by one: an index looks at the more vectors, the fewer of them the filter lets through. Half as
            -- many documents again as have so many chunks tell when they are too many.
            few := CASE WHEN b.indexed THEN least(20000, greatest(1000, sqrt(50 * depth * total))) ELSE 'Infinity' END;
            FOREACH most IN ARRAY ARRAY[ceil(least(2000, 1.5 * few * all_documents / greatest(total, 1)))::integer, 2000] LOOP
                SELECT array_agg(d.revision), coalesce(sum(d.chunk_count), 0) INTO revisions, many
                FROM (SELECT d.revision, d.chunk_count FROM slipway.documents d
                      WHERE d.base = b.uid AND d.revision IS NOT NULL AND (sources IS NULL OR d.source = ANY (sources))
                        AND (filenames IS NULL OR d.filename = ANY (filenames)) AND (documents IS NULL OR d.id = ANY (documents))
                      LIMIT most + 1) d;
                EXIT WHEN coalesce(cardinality(revisions), 0) <= most OR many > few;
            END LOOP;
            IF many = 0 THEN
                RETURN;
            END IF;
            IF cardinality(revisions) <= most AND many <= few THEN
                visible := 'c.revision = ANY ($5)';
                all_visible := visible;
            ELSE
                revisions := NULL;
            END IF;
        END IF;

        IF vector IS NOT NULL THEN
            best := 1;
            IF b.indexed AND revisions IS NULL THEN
                PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', greatest(100, depth)::text, true);
                EXECUTE format('SELECT * FROM slipway.%I($1, $2, $3, $4, $5, $6)', b.chunks || '_nearest')
                INTO near_revisions, near_ordinals, distances USING b.uid, sources, filenames, documents, vector, depth;
            END IF;
            -- An index may stop before it has found as many as there are.
            IF coalesce(cardinality(near_revisions), 0) < depth THEN
                EXECUTE format('SELECT array_agg(n.revision), array_agg(n.ordinal), array_agg(n.distance)
                                FROM (SELECT c.revision, c.ordinal, c.embedding <=> $6 AS distance FROM slipway.%s c
                                      WHERE c.embedding IS NOT NULL AND %s ORDER BY distance LIMIT $7) n', quote_ident(b.chunks), all_visible)
                INTO near_revisions, near_ordinals, distances USING b.uid, sources, filenames, documents, revisions, vector, depth;
            END IF;
        END IF;

        IF has_words THEN
            -- Words by how few chunks have them (|| takes them out of their compressed form once), and of those as many as match about 3,000 chunks.
            SELECT array_agg(w.word ORDER BY w.share), array_agg(ln(1 + 1 / w.share) ORDER BY w.share) INTO words, weights
            FROM (SELECT array_to_tsvector(ARRAY[q.word])::text::tsquery AS word, coalesce(f.share, 0.0005)::double precision AS share
                  FROM unnest(tsvector_to_array(to_tsvector('english', query))) AS q (word)
                  LEFT JOIN slipway.frequencies f ON f.base = b.uid AND f.word = q.word
                  ORDER BY 2 LIMIT 24) w;
            IF words IS NOT NULL AND websearch_to_tsquery('english', query)::text NOT LIKE '%!%' THEN
                SELECT string_agg(w.word::text, ' | ')::tsquery INTO any_word
                FROM (SELECT u.word, u.place, sum(1 / (exp(u.weight) - 1)) OVER (ORDER BY u.place) AS share
                      FROM unnest(words, weights) WITH ORDINALITY AS u (word, weight, place)) w
                WHERE w.place = 1 OR w.share * total <= 3000;
            END IF;
            PERFORM set_config('enable_seqscan', 'off', true);
            EXECUTE format('SELECT array_agg(n.revision ORDER BY n.place), array_agg(n.ordinal ORDER BY n.place), count(*) FILTER (WHERE n.complete)
                            FROM (SELECT m.revision, m.ordinal, m.complete, row_number() OVER (ORDER BY m.complete DESC, m.weight DESC NULLS LAST, m.revision, m.ordinal) AS place
                                  FROM (SELECT f.revision, f.ordinal, f.complete,
                                               (SELECT sum(w.weight * ts_rank(''{0.1, 0.1, 0.1, 0.1}'', f.words, w.word, 1)) FROM unnest($6, $7) AS w (word, weight)) AS weight
                                        FROM ((SELECT c.revision, c.ordinal, true AS complete, c.words || '''' AS words FROM slipway.%1$I c
                                               WHERE c.words @@ $8 AND %2$s LIMIT 2000)
                                              UNION ALL
                                              (SELECT o.revision, o.ordinal, false, o.words
                                               FROM (SELECT c.revision, c.ordinal, c.words || '''' AS words FROM slipway.%1$I c
                                                     WHERE c.words @@ $9 AND %2$s OFFSET 0) o
                                               WHERE NOT o.words @@ $8 LIMIT 2000)) f) m
                                  ORDER BY place LIMIT $10) n', b.chunks, visible)
            INTO text_revisions, text_ordinals, text_complete
            USING b.uid, sources, filenames, documents, revisions, coalesce(words, '{}'), coalesce(weights, '{}'), whole, any_word, depth;
            PERFORM set_config('enable_seqscan', 'on', true);
            best := best + CASE WHEN text_complete > 0 THEN 1 ELSE 0.5 END;
        END IF;

        -- An index gives vectors in about their order.
        SELECT array_agg(f.revision) AS revisions, array_agg(f.ordinal) AS ordinals, array_agg(f.score) AS scores, array_agg(f.near) AS near,
               array_agg(f.read) AS read, array_agg(d.id) AS ids, array_agg(d.source) AS sources, array_agg(d.key) AS keys,
               array_agg(d.uri) AS uris, array_agg(d.filename) AS filenames
        INTO hits
        FROM (SELECT m.revision, m.ordinal, m.near::integer, m.read::integer,
                     ((coalesce(1.0 / (10 + m.near), 0) + coalesce(CASE WHEN m.read <= text_complete THEN 1.0 ELSE 0.5 END / (10 + m.read), 0))
                      * 11 / greatest(best, 0.5))::double precision AS score
              FROM (SELECT coalesce(n.revision, r.revision) AS revision, coalesce(n.ordinal, r.ordinal) AS ordinal, n.place AS near, r.place AS read
                    FROM (SELECT u.revision, u.ordinal, row_number() OVER (ORDER BY u.distance) AS place
                          FROM unnest(near_revisions, near_ordinals, distances) AS u (revision, ordinal, distance)) n
                    FULL JOIN unnest(text_revisions, text_ordinals) WITH ORDINALITY AS r (revision, ordinal, place)
                           ON r.revision = n.revision AND r.ordinal = n.ordinal) m
              ORDER BY score DESC, near NULLS LAST, read LIMIT places) f
        JOIN slipway.documents d ON d.revision = f.revision
        WHERE least_score IS NULL OR f.score >= least_score;
        RETURN QUERY EXECUTE format('SELECT * FROM slipway.%I($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)', b.chunks || '_found')
        USING hits.revisions, hits.ordinals, hits.scores, hits.near, hits.read, hits.ids, hits.sources, hits.keys, hits.uris, hits.filenames, vector;
    END $$;

SELECT slipway.make_found(b.chunks) FROM slipway.bases b WHERE to_regclass(format('slipway.%I', b.chunks)) IS NOT NULL;
SELECT slipway.make_nearest(b.chunks, b.dimensions) FROM slipway.bases b WHERE b.indexed AND to_regclass(format('slipway.%I', b.chunks)) IS NOT NULL;
