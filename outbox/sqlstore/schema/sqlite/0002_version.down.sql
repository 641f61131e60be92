DELETE FROM outbox_event_control WHERE kind = 'schema' AND name = 'version';
