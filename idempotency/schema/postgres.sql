CREATE TABLE IF NOT EXISTS {table} (
  key_hash    BYTEA NOT NULL PRIMARY KEY,
  fingerprint BYTEA NOT NULL,
  status      INTEGER,
  headers     TEXT,
  body        BYTEA,
  created_at  TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS {index} ON {table} (created_at);
