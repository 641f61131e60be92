-- A claim and a mark each write a row again. In pages that are half empty they do so
-- in place: a claim changes no index, and the table does not grow.
CREATE TABLE IF NOT EXISTS outbox_event (
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
) WITH (fillfactor = 50);
-- What the poller reads, in its order. Delivered rows leave it.
CREATE INDEX IF NOT EXISTS idx_outbox_event_due ON outbox_event (available_at, created_at, event_id) WHERE status IN (0, 2);
-- Delivered rows, by the time that was: the purger deletes the oldest.
CREATE INDEX IF NOT EXISTS idx_outbox_event_done ON outbox_event (COALESCE(done_at, created_at)) WHERE status = 1;
-- Dead letters, by the time they died. Kept apart from delivered rows, so that no
-- plan reads one kind to find the other.
CREATE INDEX IF NOT EXISTS idx_outbox_event_dead ON outbox_event (COALESCE(done_at, created_at), event_id) WHERE status = 3;
-- Which process holds the table, what is paused, and what nodes report.
CREATE TABLE IF NOT EXISTS outbox_event_control (
  kind       VARCHAR(16) NOT NULL,
  name       VARCHAR(128) NOT NULL,
  owner      VARCHAR(128),
  value      TEXT,
  expires_at TIMESTAMPTZ,
  PRIMARY KEY (kind, name)
);
