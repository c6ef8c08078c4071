-- Digest of agent, server and tool: finds the last call of the same kind. Calls of before have none.
ALTER TABLE cards ADD COLUMN call TEXT NOT NULL DEFAULT '';
CREATE INDEX cards_by_call ON cards (call, created_ms) WHERE call <> '';

-- Whether a step of a card was into another state.
CREATE INDEX events_by_subject ON events (subject, id);

-- How far each webhook was told, and how often the event after that was tried.
CREATE TABLE webhooks (
    name     TEXT    NOT NULL PRIMARY KEY,
    event    INTEGER NOT NULL,
    tries    INTEGER NOT NULL,
    since_ms INTEGER NOT NULL
) STRICT;
