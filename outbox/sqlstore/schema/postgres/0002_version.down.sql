ALTER TABLE outbox_event RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
DELETE FROM outbox_event_control WHERE kind = 'schema' AND name = 'version';
