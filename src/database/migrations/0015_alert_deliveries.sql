-- Messages about alerts, on their way to the integrations that ask for them. The manager writes and reads them; no team's login has a
-- right on the table. A row stays after its end for as long as its alert is open, as who has heard of a beginning hears of the end.
CREATE TABLE slipway.alert_deliveries (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    -- The UID of the Integration.
    integration text COLLATE "C" NOT NULL,
    alert_id text COLLATE "C" NOT NULL,
    stage text COLLATE "C" NOT NULL CHECK (stage IN ('raised', 'risen', 'resolved')),
    -- The same for each attempt.
    message_id text NOT NULL CHECK (octet_length(message_id) <= 64),
    -- Empty from its end on.
    payload text NOT NULL CHECK (octet_length(payload) <= 8192),
    created_at timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    -- Of the first attempt that failed and of the last one, whether anything was sent or not.
    failed_at timestamptz,
    tried_at timestamptz,
    last_error text CHECK (octet_length(last_error) <= 512),
    -- When it was delivered or given up.
    ended_at timestamptz,
    gave_up boolean NOT NULL DEFAULT false,
    PRIMARY KEY (team, agent_id, integration, alert_id, stage)
);
CREATE INDEX alert_deliveries_due ON slipway.alert_deliveries (integration, due_at) WHERE ended_at IS NULL;
CREATE INDEX alert_deliveries_ended ON slipway.alert_deliveries (integration, gave_up, ended_at) WHERE ended_at IS NOT NULL;
