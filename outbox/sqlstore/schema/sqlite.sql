-- Times are microseconds since 1970 in UTC.
CREATE TABLE IF NOT EXISTS {table} (
  event_id       VARCHAR(36) PRIMARY KEY,
  event_type     VARCHAR(128) NOT NULL,
  aggregate_type VARCHAR(64),
  aggregate_id   VARCHAR(128),
  tenant_id      VARCHAR(64),
  payload        TEXT NOT NULL,
  headers        TEXT,
  status         INTEGER NOT NULL,
  attempts       INTEGER NOT NULL DEFAULT 0,
  available_at   INTEGER NOT NULL,
  created_at     INTEGER NOT NULL,
  done_at        INTEGER,
  last_error     TEXT,
  locked_by      VARCHAR(128),
  locked_at      INTEGER
);
-- What the poller reads, in its order. Delivered rows leave it.
CREATE INDEX IF NOT EXISTS {index:due} ON {unqualified} (available_at, created_at, event_id) WHERE status IN (0, 2);
-- Delivered rows, by the time that was: the purger deletes the oldest.
CREATE INDEX IF NOT EXISTS {index:done} ON {unqualified} (COALESCE(done_at, created_at)) WHERE status = 1;
-- Dead letters, by the time they died. Kept apart from delivered rows, so that no
-- plan reads one kind to find the other.
CREATE INDEX IF NOT EXISTS {index:dead} ON {unqualified} (COALESCE(done_at, created_at), event_id) WHERE status = 3;
-- Purging by age alone, as in WriterOnly.
{age}CREATE INDEX IF NOT EXISTS {index:age} ON {unqualified} (created_at);
-- What OrderedByKey reads: the first row of a key is the next one to deliver.
{key}CREATE INDEX IF NOT EXISTS {index:key} ON {unqualified} (aggregate_type, COALESCE(aggregate_id, event_id), status DESC, available_at, created_at, event_id) WHERE status <> 1;
-- Reading tenants in turn.
{tenant}CREATE INDEX IF NOT EXISTS {index:tenant} ON {unqualified} (COALESCE(tenant_id, ''), available_at, created_at, event_id) WHERE status IN (0, 2);
-- The events of one aggregate id, for operators.
{search}CREATE INDEX IF NOT EXISTS {index:search} ON {unqualified} (aggregate_id, event_id) WHERE aggregate_id IS NOT NULL;
-- Which process holds the table, what is paused, and what nodes report.
CREATE TABLE IF NOT EXISTS {control} (
  kind       VARCHAR(16) NOT NULL,
  name       VARCHAR(128) NOT NULL,
  owner      VARCHAR(128),
  value      TEXT,
  expires_at INTEGER,
  PRIMARY KEY (kind, name)
);
