-- JSON refuses some payloads, such as one that is nested deep.
ALTER TABLE outbox_event_control CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
ALTER TABLE outbox_event CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, MODIFY payload JSON NOT NULL;
INSERT INTO outbox_event_control (kind, name, value) VALUES ('schema', 'version', '{"version":2,"min_version":1}') ON DUPLICATE KEY UPDATE value = VALUES(value);
