-- Parked calls, runs and what belongs to them. The tables of PostgreSQL have the same columns,
-- and there is one more that says which gateway writes.

CREATE TABLE runs (
    id         TEXT    NOT NULL PRIMARY KEY,
    agent      TEXT    NOT NULL, -- as spelled
    parent     TEXT,
    depth      INTEGER NOT NULL, -- 0 without a parent
    unnamed    INTEGER NOT NULL, -- 1 for the run that a credential has without asking
    token      BLOB,             -- SHA-256
    narrow     TEXT,
    unattended INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    left_ms    INTEGER,          -- of its deadline, when marked_ms was written
    marked_ms  INTEGER,
    ended_ms   INTEGER,
    ended_why  TEXT
) STRICT;

CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX runs_live ON runs (created_ms, id) WHERE ended_ms IS NULL;
CREATE INDEX runs_by_end ON runs (ended_ms) WHERE ended_ms IS NOT NULL;

CREATE TABLE cards (
    id         TEXT    NOT NULL PRIMARY KEY,
    version    INTEGER NOT NULL,
    state      TEXT    NOT NULL,
    agent      TEXT    NOT NULL, -- in lower case
    run        TEXT    NOT NULL REFERENCES runs (id),
    key        TEXT    NOT NULL, -- digest of agent, run, server, tool and arguments
    doc        TEXT    NOT NULL, -- the card; the other columns only find it
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT;

-- Two identical calls that race make one card.
CREATE UNIQUE INDEX cards_one_live ON cards (key) WHERE state IN ('parked', 'approved', 'executing');
CREATE INDEX cards_by_key ON cards (key, updated_ms);
CREATE INDEX cards_by_state ON cards (state, created_ms);
CREATE INDEX cards_by_run ON cards (run, created_ms);
CREATE INDEX cards_by_agent ON cards (agent, created_ms);

CREATE TABLE results (
    card       TEXT    NOT NULL PRIMARY KEY REFERENCES cards (id) ON DELETE CASCADE,
    kind       TEXT    NOT NULL,
    bytes      BLOB    NOT NULL,
    expires_ms INTEGER NOT NULL,
    delivered  INTEGER NOT NULL -- 1 once a caller has it
) STRICT;

CREATE INDEX results_by_expiry ON results (expires_ms);

CREATE TABLE decisions (
    card    TEXT    NOT NULL REFERENCES cards (id) ON DELETE CASCADE,
    version INTEGER NOT NULL, -- of the card that it made
    name    TEXT    NOT NULL,
    role    TEXT    NOT NULL,
    verdict TEXT    NOT NULL,
    reason  TEXT    NOT NULL,
    digest  TEXT    NOT NULL, -- of the arguments it was made on
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (card, version)
) STRICT;

CREATE TABLE tokens (
    id         TEXT    NOT NULL PRIMARY KEY,
    agent      TEXT,             -- either an agent holds it,
    admin      TEXT,             -- or an admin principal in a role
    role       TEXT,
    agents     TEXT,             -- those that the role is about, with commas
    hash       BLOB    NOT NULL UNIQUE,
    run        TEXT,
    note       TEXT    NOT NULL,
    created_ms INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    expires_ms INTEGER,
    revoked_ms INTEGER
) STRICT;

CREATE TABLE grants (
    id         TEXT    NOT NULL PRIMARY KEY,
    card       TEXT    NOT NULL,
    agent      TEXT    NOT NULL, -- as spelled, like the server
    run        TEXT,
    server     TEXT    NOT NULL,
    tool       TEXT    NOT NULL,
    arguments  TEXT,             -- digest; none for any arguments
    definition TEXT    NOT NULL,
    given_by   TEXT    NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    ended_ms   INTEGER
) STRICT;

CREATE INDEX grants_live ON grants (lower(agent), lower(server), tool) WHERE ended_ms IS NULL;
CREATE INDEX grants_by_run ON grants (run) WHERE run IS NOT NULL;

CREATE TABLE pins (
    server      TEXT    NOT NULL, -- in lower case
    tool        TEXT    NOT NULL,
    definition  TEXT    NOT NULL,
    doc         TEXT    NOT NULL,
    accepted_ms INTEGER NOT NULL,
    accepted_by TEXT    NOT NULL,
    PRIMARY KEY (server, tool)
) STRICT;

-- Never used again, so that who remembers an id misses nothing after it.
CREATE TABLE events (
    id      INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at_ms   INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    subject TEXT    NOT NULL,
    agent   TEXT,
    run     TEXT,
    state   TEXT,
    version INTEGER
) STRICT;

CREATE INDEX events_by_time ON events (at_ms);

CREATE TABLE counters (
    key        TEXT    NOT NULL PRIMARY KEY,
    started_ms INTEGER NOT NULL,
    ends_ms    INTEGER NOT NULL,
    count      INTEGER NOT NULL
) STRICT;

CREATE TABLE ended_sessions (
    hash       BLOB    NOT NULL PRIMARY KEY,
    expires_ms INTEGER NOT NULL
) STRICT;
