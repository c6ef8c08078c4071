-- Parked calls and the answers that wait for their callers. Types that PostgreSQL has as well.

CREATE TABLE cards (
    id         TEXT   NOT NULL PRIMARY KEY,
    version    BIGINT NOT NULL,
    state      TEXT   NOT NULL,
    agent      TEXT   NOT NULL, -- in lower case
    run        TEXT   NOT NULL,
    key        TEXT   NOT NULL, -- digest of agent, run, server, tool and arguments
    doc        TEXT   NOT NULL, -- the card; the other columns only find it
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL
);

-- Two identical calls that race make one card.
CREATE UNIQUE INDEX cards_one_live ON cards (key) WHERE state IN ('parked', 'approved', 'executing');
CREATE INDEX cards_by_key ON cards (key, updated_ms);
CREATE INDEX cards_by_state ON cards (state, created_ms);
CREATE INDEX cards_by_run ON cards (agent, run, created_ms);

CREATE TABLE results (
    card_id    TEXT   NOT NULL PRIMARY KEY REFERENCES cards (id) ON DELETE CASCADE,
    kind       TEXT   NOT NULL,
    bytes      BLOB   NOT NULL,
    expires_ms BIGINT NOT NULL,
    delivered  BIGINT NOT NULL -- 1 once a caller has it
);

CREATE INDEX results_by_expiry ON results (expires_ms);
