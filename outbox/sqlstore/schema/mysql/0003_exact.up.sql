-- A text column keeps a payload as it was written. MySQL's JSON writes it anew, which
-- changes large numbers; MariaDB's is a text that may not be nested deep. The collations
-- compare trailing spaces, too: MySQL reads the first comment, MariaDB the second. On a
-- large table this takes minutes, in which nobody writes.
ALTER TABLE outbox_event MODIFY payload LONGTEXT NOT NULL, CONVERT TO CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */;
ALTER TABLE outbox_event_control CONVERT TO CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */;
INSERT INTO outbox_event_control (kind, name, value) VALUES ('schema', 'version', '{"version":3,"min_version":1}') ON DUPLICATE KEY UPDATE value = VALUES(value);
