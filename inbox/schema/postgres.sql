CREATE TABLE IF NOT EXISTS {table} (
  consumer   VARCHAR(64) NOT NULL,
  message_id VARCHAR(255) NOT NULL,
  handled_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer, message_id)
);
CREATE INDEX IF NOT EXISTS {index} ON {table} (handled_at);
