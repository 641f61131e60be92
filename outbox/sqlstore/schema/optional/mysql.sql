-- Indexes for some modes. Create the ones that you need.

-- WithAgeIndex: purging by age alone, as in WriterOnly.
CREATE INDEX idx_outbox_event_age ON outbox_event (created_at);
-- WithKeyIndex: what OrderedByKey reads.
CREATE INDEX idx_outbox_event_key ON outbox_event (status, aggregate_type, aggregate_id, available_at, created_at);
-- WithTenantIndex: reading tenants in turn.
CREATE INDEX idx_outbox_event_tenant ON outbox_event (status, tenant_id, available_at, created_at);
-- WithSearchIndex: the events of one aggregate id, for operators.
CREATE INDEX idx_outbox_event_search ON outbox_event (aggregate_id);
