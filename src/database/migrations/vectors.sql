-- Made when the extension vector is there, whatever the version of the rest. VECTORS stands for its schema.
-- A column without a fixed dimension, since each agent chooses its embedding model; what is compared has the same
-- model and dimension. A row holds up to 2,000 dimensions in place instead of in pieces elsewhere.
CREATE TABLE IF NOT EXISTS slipway.memory_vectors (
    team text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    memory_id text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    dimensions integer NOT NULL,
    embedding VECTORS.vector NOT NULL,
    PRIMARY KEY (team, agent_id, memory_id),
    FOREIGN KEY (team, agent_id, memory_id) REFERENCES slipway.memories ON DELETE CASCADE
) WITH (toast_tuple_target = 8160);
