CREATE TABLE IF NOT EXISTS {table} (
  consumer   TEXT NOT NULL,
  message_id TEXT NOT NULL,
  handled_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)),
  PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS {qualified_index} ON {unqualified} (handled_at);
