-- Indexes for some modes. Create the ones that you need.

-- WithAgeIndex: purging by age alone, as in WriterOnly.
CREATE INDEX IF NOT EXISTS idx_outbox_event_age ON outbox_event (created_at);
-- WithKeyIndex: what OrderedByKey reads. The first row of a key is the next one to deliver.
CREATE INDEX IF NOT EXISTS idx_outbox_event_key ON outbox_event (aggregate_type, COALESCE(aggregate_id, event_id), status DESC, available_at, created_at, event_id) WHERE status <> 1;
-- WithTenantIndex: reading tenants in turn.
CREATE INDEX IF NOT EXISTS idx_outbox_event_tenant ON outbox_event (COALESCE(tenant_id, ''), available_at, created_at, event_id) WHERE status IN (0, 2);
-- WithSearchIndex: the events of one aggregate id, for operators.
CREATE INDEX IF NOT EXISTS idx_outbox_event_search ON outbox_event (aggregate_id, event_id) WHERE aggregate_id IS NOT NULL;
-- WithUniqueIndex: a pending event of a kind for each unique key.
ALTER TABLE outbox_event ADD COLUMN unique_key VARCHAR(128);
CREATE UNIQUE INDEX IF NOT EXISTS idx_outbox_event_unique ON outbox_event (aggregate_type, event_type, unique_key) WHERE status IN (0, 2) AND unique_key IS NOT NULL;
