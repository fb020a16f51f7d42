-- A pod has in its environment which model was wanted when its Job was made. Tried again later, it does not undo what is wanted
-- since: it would take all vectors away, and the next one would again.

ALTER TABLE slipway.bases
    -- Of the KnowledgeBase's spec that the model is from.
    ADD COLUMN model_generation bigint NOT NULL DEFAULT 0,
    ADD COLUMN model_since timestamptz NOT NULL DEFAULT '-infinity';

-- outcome: kept (also if it is the first one), replaced, or outdated, where a later generation wanted another, or another ingestion
-- of the same generation since this one began. former is the model that the base had.
CREATE FUNCTION slipway.use_model(kb text, ingestion text, holder text, model text, dimensions integer, generation bigint)
    RETURNS TABLE (outcome text, former text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, slipway, pg_temp
    AS $$
    DECLARE
        b slipway.bases := slipway.own_base(kb);
        i slipway.ingestions;
    BEGIN
        -- The base before the ingestion, as begin_ingestion locks them.
        SELECT t.* INTO b FROM slipway.bases t WHERE t.uid = b.uid FOR UPDATE;
        i := slipway.held(b.uid, $2, $3);
        IF b.model = $4 AND b.dimensions = $5 THEN
            UPDATE slipway.bases t SET model_generation = greatest(t.model_generation, $6) WHERE t.uid = b.uid AND t.model_generation < $6;
            RETURN QUERY SELECT 'kept', b.model;
            RETURN;
        END IF;
        IF b.model IS NOT NULL AND ($6 < b.model_generation OR ($6 = b.model_generation AND b.model_since > i.started_at)) THEN
            RETURN QUERY SELECT 'outdated', b.model;
            RETURN;
        END IF;
        IF b.model IS NULL THEN
            PERFORM slipway.fix_model($1, $4, $5);
        ELSE
            PERFORM slipway.replace_model($1, $4, $5);
        END IF;
        UPDATE slipway.bases t SET model_generation = $6, model_since = clock_timestamp() WHERE t.uid = b.uid;
        RETURN QUERY SELECT CASE WHEN b.model IS NULL THEN 'kept' ELSE 'replaced' END, b.model;
    END $$;
