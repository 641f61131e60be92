CREATE TABLE IF NOT EXISTS {table} (
  key_hash    BLOB NOT NULL PRIMARY KEY,
  fingerprint BLOB NOT NULL,
  status      INTEGER,
  headers     TEXT,
  body        BLOB,
  created_at  INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
);
CREATE INDEX IF NOT EXISTS {qualified_index} ON {unqualified} (created_at);
