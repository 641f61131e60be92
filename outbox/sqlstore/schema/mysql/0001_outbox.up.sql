-- The keys: what the poller reads, one status at a time; what the purger deletes, and the
-- dead letters. InnoDB ends each with event_id.
CREATE TABLE IF NOT EXISTS outbox_event (
  event_id       VARCHAR(36) NOT NULL PRIMARY KEY,
  event_type     VARCHAR(128) NOT NULL,
  aggregate_type VARCHAR(64),
  aggregate_id   VARCHAR(128),
  tenant_id      VARCHAR(64),
  payload        JSON NOT NULL,
  headers        JSON,
  status         TINYINT NOT NULL,
  attempts       INT NOT NULL DEFAULT 0,
  available_at   DATETIME(6) NOT NULL,
  created_at     DATETIME(6) NOT NULL,
  done_at        DATETIME(6),
  last_error     TEXT,
  locked_by      VARCHAR(128),
  locked_at      DATETIME(6),
  KEY idx_outbox_event_due (status, available_at, created_at),
  KEY idx_outbox_event_done (status, done_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- Which process holds the table, what is paused, and what nodes report.
CREATE TABLE IF NOT EXISTS outbox_event_control (
  kind       VARCHAR(16) NOT NULL,
  name       VARCHAR(128) NOT NULL,
  owner      VARCHAR(128),
  value      TEXT,
  expires_at DATETIME(6),
  PRIMARY KEY (kind, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
