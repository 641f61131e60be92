-- A claim and a mark each write a row again. In pages that are half empty they do so
-- in place: a claim changes no index, and the table does not grow. Autovacuum comes
-- early, for the dead rows of a large table would be many: by default, a fifth of it.
CREATE TABLE IF NOT EXISTS {table} (
  event_id       VARCHAR(36) PRIMARY KEY,
  event_type     VARCHAR(128) NOT NULL,
  aggregate_type VARCHAR(64),
  aggregate_id   VARCHAR(128),
  tenant_id      VARCHAR(64),
  payload        JSONB NOT NULL,
  headers        JSONB,
  status         SMALLINT NOT NULL,
  attempts       INT NOT NULL DEFAULT 0,
  available_at   TIMESTAMPTZ NOT NULL,
  created_at     TIMESTAMPTZ NOT NULL,
  done_at        TIMESTAMPTZ,
  last_error     TEXT,
  locked_by      VARCHAR(128),
  locked_at      TIMESTAMPTZ
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- What the poller reads, in its order. Delivered rows leave it.
CREATE INDEX IF NOT EXISTS {index:due} ON {table} (available_at, created_at, event_id) WHERE status IN (0, 2);
-- Delivered rows, by the time that was: the purger deletes the oldest.
CREATE INDEX IF NOT EXISTS {index:done} ON {table} (COALESCE(done_at, created_at)) WHERE status = 1;
-- Dead letters, by the time they died. Kept apart from delivered rows, so that no
-- plan reads one kind to find the other.
CREATE INDEX IF NOT EXISTS {index:dead} ON {table} (COALESCE(done_at, created_at), event_id) WHERE status = 3;
-- Purging by age alone, as in WriterOnly.
{age}CREATE INDEX IF NOT EXISTS {index:age} ON {table} (created_at);
-- What OrderedByKey reads: the first row of a key is the next one to deliver.
{key}CREATE INDEX IF NOT EXISTS {index:key} ON {table} (aggregate_type, COALESCE(aggregate_id, event_id), status DESC, available_at, created_at, event_id) WHERE status <> 1;
-- Reading tenants in turn.
{tenant}CREATE INDEX IF NOT EXISTS {index:tenant} ON {table} (COALESCE(tenant_id, ''), available_at, created_at, event_id) WHERE status IN (0, 2);
-- The events of one aggregate id, for operators.
{search}CREATE INDEX IF NOT EXISTS {index:search} ON {table} (aggregate_id, event_id) WHERE aggregate_id IS NOT NULL;
-- Which process holds the table, what is paused, and what nodes report.
CREATE TABLE IF NOT EXISTS {control} (
  kind       VARCHAR(16) NOT NULL,
  name       VARCHAR(128) NOT NULL,
  owner      VARCHAR(128),
  value      TEXT,
  expires_at TIMESTAMPTZ,
  PRIMARY KEY (kind, name)
);
