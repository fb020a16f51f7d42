-- Full text weighed words of headings four times and long texts more than short ones, and took a text for a complete match that had
-- the stems of the words: what it found so, fused with the nearest vectors, was worse than these alone. Now all words of a text count
-- the same, less in a longer one, and a complete match has the words as they are written.

-- STABLE, so that everything in it reads one state of the base.
CREATE OR REPLACE FUNCTION slipway.search(kb text, query text, vector slipway.halfvec, top integer, least_score double precision,
                               sources text[], filenames text[], documents text[])
    RETURNS TABLE (chunk text, ordinal integer, page integer, section text, content text, tokens integer, document text, source text, key text,
                   uri text, filename text, score double precision, cosine double precision, vector_rank integer, text_rank integer)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, slipway, pg_temp SET client_min_messages = warning SET jit = off SET max_parallel_workers_per_gather = 0
    AS $$
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
        -- About how many chunks the base has.
        total double precision := (SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = format('slipway.%I', b.chunks)::regclass);
        revisions uuid[];
        many bigint;
        near_revisions uuid[] := '{}';
        near_ordinals integer[] := '{}';
        -- By its letters: the few words that are left of a question without its common words are together in many a text.
        whole tsquery := websearch_to_tsquery('simple', query);
        stems tsquery := websearch_to_tsquery('english', query);
        words tsquery[];
        weights double precision[];
        any_word tsquery;
        text_revisions uuid[] := '{}';
        text_ordinals integer[] := '{}';
        -- How many of these have all words of the query.
        text_complete bigint := 0;
        -- The weight of all that is searched: vectors and matches of all words 1, others a half, as docs/knowledge.md has measured.
        best double precision := 0;
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
        IF filtered THEN
            EXECUTE format('SELECT array_agg(d.revision), coalesce(sum(d.chunk_count), 0), count(*)
                            FROM (SELECT revision, chunk_count FROM slipway.documents d WHERE d.revision IS NOT NULL AND %s LIMIT 2001) d', condition)
            INTO revisions, many USING b.uid, sources, filenames, documents;
            IF many = 0 THEN
                RETURN;
            END IF;
            -- Few enough are compared one by one: an index looks at the more vectors, the fewer of them the filter lets through.
            IF cardinality(revisions) <= 2000 AND (NOT b.indexed OR many <= least(10000, greatest(1000, sqrt(10 * depth * total)))) THEN
                visible := 'c.revision = ANY ($5)';
                all_visible := visible;
            ELSE
                revisions := NULL;
            END IF;
        END IF;

        IF vector IS NOT NULL THEN
            best := 1;
            IF b.indexed AND revisions IS NULL THEN
                -- In whatever order an index gives them: it compares rounded vectors, so they are put in order after it. (+ 0 keeps
                -- the planner from taking them as sorted.)
                PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', greatest(100, depth)::text, true),
                        set_config('enable_seqscan', 'off', true);
                EXECUTE format('SELECT array_agg(n.revision ORDER BY n.distance + 0), array_agg(n.ordinal ORDER BY n.distance + 0)
                                FROM (SELECT c.revision, c.ordinal, c.embedding::halfvec(%1$s) <=> $6::halfvec(%1$s) AS distance FROM slipway.%2$I c
                                      WHERE %3$s ORDER BY c.embedding::halfvec(%1$s) <=> $6::halfvec(%1$s) LIMIT $7) n', b.dimensions, b.chunks, visible)
                INTO near_revisions, near_ordinals USING b.uid, sources, filenames, documents, revisions, vector, depth;
                PERFORM set_config('enable_seqscan', 'on', true);
            END IF;
            -- An index may stop before it has found as many as there are.
            IF coalesce(cardinality(near_revisions), 0) < depth THEN
                EXECUTE format('SELECT array_agg(n.revision ORDER BY n.distance), array_agg(n.ordinal ORDER BY n.distance)
                                FROM (SELECT c.revision, c.ordinal, c.embedding <=> $6 AS distance FROM slipway.%s c
                                      WHERE c.embedding IS NOT NULL AND %s ORDER BY distance LIMIT $7) n', quote_ident(b.chunks), all_visible)
                INTO near_revisions, near_ordinals USING b.uid, sources, filenames, documents, revisions, vector, depth;
            END IF;
        END IF;

        -- Words by how few chunks have them (|| takes them out of their compressed form once), and of those so many as about 3,000 chunks have.
        SELECT array_agg(w.word ORDER BY w.share), array_agg(ln(1 + 1 / w.share) ORDER BY w.share) INTO words, weights
        FROM (SELECT array_to_tsvector(ARRAY[q.word])::text::tsquery AS word, coalesce(f.share, 0.0005)::double precision AS share
              FROM unnest(tsvector_to_array(to_tsvector('english', query))) AS q (word)
              LEFT JOIN slipway.frequencies f ON f.base = b.uid AND f.word = q.word
              ORDER BY 2 LIMIT 24) w;
        IF numnode(whole) > 0 THEN
            IF words IS NOT NULL AND stems::text NOT LIKE '%!%' THEN
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
                                              (SELECT c.revision, c.ordinal, false, c.words || '''' FROM slipway.%1$I c
                                               WHERE c.words @@ $9 AND NOT c.words @@ $8 AND %2$s LIMIT 2000)) f) m
                                  ORDER BY place LIMIT $10) n', b.chunks, visible)
            INTO text_revisions, text_ordinals, text_complete
            USING b.uid, sources, filenames, documents, revisions, coalesce(words, '{}'), coalesce(weights, '{}'), whole, any_word, depth;
            PERFORM set_config('enable_seqscan', 'on', true);
            best := best + CASE WHEN text_complete > 0 THEN 1 ELSE 0.5 END;
        END IF;

        RETURN QUERY EXECUTE format('
            SELECT ''chunk_'' || replace(c.revision::text, ''-'', '''') || ''_'' || c.ordinal, c.ordinal, c.page, c.section, c.content, c.tokens,
                   d.id, d.source, d.key, d.uri, d.filename, f.score, 1 - (c.embedding <=> $5), f.near::integer, f.read::integer
            FROM (SELECT revision, ordinal, n.place AS near, r.place AS read,
                         ((coalesce(1.0 / (10 + n.place), 0) + coalesce(CASE WHEN r.place <= $9 THEN 1.0 ELSE 0.5 END / (10 + r.place), 0)) * 11 / $6)::double precision AS score
                  FROM unnest($1, $2) WITH ORDINALITY AS n (revision, ordinal, place)
                  FULL JOIN unnest($3, $4) WITH ORDINALITY AS r (revision, ordinal, place) USING (revision, ordinal)
                  ORDER BY score DESC, near NULLS LAST, read LIMIT $7) f
            JOIN slipway.%I c ON c.revision = f.revision AND c.ordinal = f.ordinal
            JOIN slipway.documents d ON d.revision = f.revision
            WHERE $8 IS NULL OR f.score >= $8
            ORDER BY f.score DESC, f.near NULLS LAST, f.read', b.chunks)
        USING near_revisions, near_ordinals, text_revisions, text_ordinals, vector, greatest(best, 0.5), places, least_score, text_complete;
    END $$;
