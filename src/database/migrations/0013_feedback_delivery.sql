-- Marks go to MLflow as well, as far as it is there and has the trace.

-- When MLflow is to be sent the mark; null once it has it.
ALTER TABLE slipway.feedback ADD COLUMN due_at timestamptz DEFAULT now();
CREATE INDEX feedback_by_due ON slipway.feedback (due_at) WHERE due_at IS NOT NULL;

-- A mark that takes the place of another is sent again.
CREATE FUNCTION slipway.feedback_given() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.due_at := NEW.created_at;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION slipway.feedback_given() FROM PUBLIC;
CREATE TRIGGER feedback_given BEFORE UPDATE OF created_at ON slipway.feedback
    FOR EACH ROW EXECUTE FUNCTION slipway.feedback_given();

-- Notes what of a mark MLflow has. If the mark is another by now, it is sent again.
CREATE FUNCTION slipway.feedback_delivered(
    of_team text, of_agent text, of_trace text, by_user text, called text,
    sent double precision, on_scale integer, sent_source text, sent_comment text
) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
    UPDATE slipway.feedback f
    SET due_at = CASE
        WHEN f.value = sent AND f.scale = on_scale AND f.source IS NOT DISTINCT FROM sent_source AND f.comment IS NOT DISTINCT FROM sent_comment
        THEN NULL ELSE clock_timestamp() END
    WHERE f.team = of_team AND f.agent_id = of_agent AND f.trace_id = of_trace AND f.user_id = by_user AND f.name = called;
$$;
REVOKE ALL ON FUNCTION slipway.feedback_delivered(text, text, text, text, text, double precision, integer, text, text) FROM PUBLIC;
