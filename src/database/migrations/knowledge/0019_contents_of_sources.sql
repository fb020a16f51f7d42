-- What a base has, counted by source: a search that is filtered by sources knows at once whether their chunks are few enough to be compared one by one.

LOCK TABLE slipway.documents IN SHARE ROW EXCLUSIVE MODE;
DELETE FROM slipway.contents;
ALTER TABLE slipway.contents DROP CONSTRAINT contents_pkey, ADD COLUMN source text COLLATE "C" NOT NULL, ADD PRIMARY KEY (base, source);
INSERT INTO slipway.contents (base, source, documents, chunks) SELECT base, source, count(*), sum(chunk_count) FROM slipway.documents GROUP BY base, source;

CREATE OR REPLACE FUNCTION slipway.count_content() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO slipway.contents AS c (base, source, documents, chunks)
                SELECT n.base, n.source, count(*), sum(n.chunk_count) FROM new_rows n GROUP BY n.base, n.source
            ON CONFLICT (base, source) DO UPDATE SET documents = c.documents + excluded.documents, chunks = c.chunks + excluded.chunks;
        ELSIF TG_OP = 'DELETE' THEN
            UPDATE slipway.contents c SET documents = c.documents - o.documents, chunks = c.chunks - o.chunks
            FROM (SELECT base, source, count(*) AS documents, sum(chunk_count) AS chunks FROM old_rows GROUP BY base, source) o
            WHERE c.base = o.base AND c.source = o.source;
        ELSE
            UPDATE slipway.contents c SET chunks = c.chunks + n.chunks - o.chunks
            FROM (SELECT base, source, sum(chunk_count) AS chunks FROM new_rows GROUP BY base, source) n
            JOIN (SELECT base, source, sum(chunk_count) AS chunks FROM old_rows GROUP BY base, source) o USING (base, source)
            WHERE c.base = n.base AND c.source = n.source AND n.chunks <> o.chunks;
        END IF;
        RETURN NULL;
    END $$;

-- As before, with more candidates for each edge: docs/performance.md has the recall behind a filter with 128 and with 160.
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
                statement := format('CREATE INDEX %I ON slipway.%I USING hnsw ((embedding::halfvec(%s)) halfvec_cosine_ops) WITH (m = 16, ef_construction = 160)',
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
        -- How many chunks the base has, and the sources that are searched.
        total double precision;
        of_sources bigint;
        -- Chunks that are compared one by one are at most so many, of at most so many documents.
        few double precision;
        most CONSTANT integer := 2000;
        revisions uuid[];
        many bigint;
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
            SELECT coalesce(sum(t.chunks), 0), coalesce(sum(t.chunks) FILTER (WHERE sources IS NULL OR t.source = ANY (sources)), 0)
            INTO total, of_sources FROM slipway.contents t WHERE t.base = b.uid;
        END IF;
        IF filtered THEN
            -- An index looks at the more vectors, the fewer of them the filter lets through.
            few := CASE WHEN b.indexed THEN least(20000, greatest(1000, sqrt(50 * depth * total))) ELSE 'Infinity' END;
            IF of_sources <= few OR filenames IS NOT NULL OR documents IS NOT NULL THEN
                SELECT array_agg(d.revision), coalesce(sum(d.chunk_count), 0) INTO revisions, many
                FROM (SELECT d.revision, d.chunk_count FROM slipway.documents d
                      WHERE d.base = b.uid AND d.revision IS NOT NULL AND (sources IS NULL OR d.source = ANY (sources))
                        AND (filenames IS NULL OR d.filename = ANY (filenames)) AND (documents IS NULL OR d.id = ANY (documents))
                      LIMIT most + 1) d;
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
