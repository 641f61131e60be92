CREATE TABLE IF NOT EXISTS {table} (
  key_hash    BINARY(32) NOT NULL PRIMARY KEY,
  fingerprint BINARY(32) NOT NULL,
  status      INT,
  headers     MEDIUMTEXT CHARACTER SET utf8mb4,
  body        LONGBLOB,
  created_at  DATETIME(6) NOT NULL,
  KEY {index} (created_at)
) ENGINE = InnoDB;
