-- Another embedding model takes all vectors away. What is not read again, such as files that were uploaded and are gone, gets
-- its new vectors from the text of its chunks, which says all that is embedded.

-- Whether shown chunks may lack a vector of the present model.
ALTER TABLE slipway.bases ADD COLUMN unembedded boolean NOT NULL DEFAULT false;
-- Of bases whose model was replaced before.
UPDATE slipway.bases SET unembedded = true WHERE epoch > 0;

CREATE OR REPLACE FUNCTION slipway.replace_model(kb text, model text, dimensions integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, slipway, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        PERFORM 1 FROM slipway.bases t WHERE t.uid = b.uid FOR UPDATE;
        EXECUTE format('ALTER TABLE slipway.%I DROP COLUMN embedding, ADD COLUMN embedding halfvec', b.chunks);
        EXECUTE format('ALTER TABLE slipway.%I ALTER COLUMN embedding SET STORAGE MAIN', b.chunks);
        UPDATE slipway.bases t SET model = $2, dimensions = $3, epoch = t.epoch + 1, indexed = false, unembedded = true WHERE t.uid = b.uid;
        UPDATE slipway.documents d SET version = NULL WHERE d.base = b.uid;
    END $$;

-- Shown chunks behind a place that have no vector; how they were embedded is in their section and content. None once all have.
CREATE FUNCTION slipway.unembedded(kb text, after_revision text, after_ordinal integer, most integer)
    RETURNS TABLE (revision text, ordinal integer, section text, content text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, slipway, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        IF NOT b.unembedded THEN
            RETURN;
        END IF;
        RETURN QUERY EXECUTE format('
            SELECT c.revision::text, c.ordinal, c.section, c.content FROM slipway.%I c
            WHERE c.embedding IS NULL AND ($2 IS NULL OR (c.revision, c.ordinal) > ($2::uuid, $3))
              AND EXISTS (SELECT 1 FROM slipway.documents d WHERE d.base = $1 AND d.revision = c.revision)
            ORDER BY c.revision, c.ordinal LIMIT $4', b.chunks)
        USING b.uid, after_revision, after_ordinal, least(most, 1000);
    END $$;

-- Vectors of the present model for chunks that have none.
CREATE FUNCTION slipway.add_vectors(kb text, ingestion text, holder text, model text, revisions text[], ordinals integer[], embeddings slipway.halfvec[])
    RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, slipway, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        PERFORM slipway.held(b.uid, ingestion, holder);
        -- Asked with the row locked, so that a model which is replaced meanwhile is seen.
        IF NOT EXISTS (SELECT 1 FROM slipway.bases t WHERE t.uid = b.uid AND t.model = $4 FOR SHARE) THEN
            RAISE EXCEPTION 'the embedding model was replaced' USING ERRCODE = 'SK410';
        END IF;
        IF EXISTS (SELECT 1 FROM unnest(embeddings) e WHERE vector_dims(e) IS DISTINCT FROM b.dimensions) THEN
            RAISE EXCEPTION 'a vector has not as many dimensions as the knowledge base' USING ERRCODE = 'SK409';
        END IF;
        EXECUTE format('UPDATE slipway.%I c SET embedding = a.embedding FROM unnest($1::uuid[], $2, $3) AS a (revision, ordinal, embedding)
                        WHERE c.revision = a.revision AND c.ordinal = a.ordinal AND c.embedding IS NULL', b.chunks)
        USING revisions, ordinals, embeddings;
    END $$;

-- All shown chunks have vectors of this model.
CREATE FUNCTION slipway.all_embedded(kb text, ingestion text, holder text, model text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
    BEGIN
        PERFORM slipway.held(b.uid, ingestion, holder);
        UPDATE slipway.bases t SET unembedded = false WHERE t.uid = b.uid AND t.model = $4 AND t.unembedded;
    END $$;
