CREATE TABLE IF NOT EXISTS {table} (
  consumer   VARBINARY(64) NOT NULL,
  message_id VARBINARY(255) NOT NULL,
  handled_at DATETIME(6) NOT NULL,
  PRIMARY KEY (consumer, message_id),
  KEY {index} (handled_at)
) ENGINE = InnoDB;
