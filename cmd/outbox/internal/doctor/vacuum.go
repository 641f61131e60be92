package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// logged checks that a crash of the server does not empty the tables.
func (p *patient) logged(ctx context.Context) error {
	return p.each(ctx, "SELECT oid::regclass::text FROM pg_class WHERE oid IN (to_regclass($1), to_regclass($2)) AND relpersistence = 'u' ORDER BY 1",
		[]any{p.quoted(), p.table.Table("control").Quoted(`"`)}, func(rows *sql.Rows) error {
			var table string
			if err := rows.Scan(&table); err != nil {
				return err
			}
			p.report(Failure, table+" is UNLOGGED, so a crash of the server empties it", "ALTER TABLE "+table+" SET LOGGED")
			return nil
		})
}

// durable checks that a commit survives a crash of the server, and that commits end. PostgreSQL hides
// sync_state, as NULL, from a user without pg_read_all_stats.
func (p *patient) durable(ctx context.Context) error {
	var fsync, commit, names string
	var synced int
	err := p.one(ctx, "SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), (SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state IS NULL OR sync_state IN ('sync', 'quorum'))",
		nil, &fsync, &commit, &names, &synced)
	if err != nil {
		return err
	}
	p.reportDurable(fsync, commit, names, synced)
	return nil
}

func (p *patient) reportDurable(fsync, commit, names string, synced int) {
	if fsync == "off" && !p.Limits.NotDurable {
		p.report(Warning, "fsync is off, so a power failure can destroy the database", "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()")
	}
	if names != "" && synced == 0 && commit != "off" && commit != "local" {
		p.report(Failure, fmt.Sprintf("synchronous_standby_names is %.100q and no such standby is connected, so every commit waits for ever", names),
			"start the standby, or ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf()")
	}
}

// settings returns the table's storage parameters on PostgreSQL. A partitioned table has no such
// parameters.
func (p *patient) settings(ctx context.Context) (kind, options string, err error) {
	err = p.one(ctx, "SELECT relkind::text, COALESCE(array_to_string(reloptions, ','), '') FROM pg_class WHERE oid = to_regclass($1)",
		[]any{p.quoted()}, &kind, &options)
	return kind, options, err
}

func (p *patient) fillfactor(ctx context.Context) error {
	kind, options, err := p.settings(ctx)
	if err != nil {
		return err
	}
	if kind == "p" {
		p.report(OK, "the table is partitioned; its partitions have their own settings", "")
		return nil
	}
	for option := range strings.SplitSeq(options, ",") {
		if value, found := strings.CutPrefix(option, "fillfactor="); found && len(value) < 3 {
			p.report(OK, "fillfactor is "+value, "")
			return nil
		}
	}
	p.report(Note, "fillfactor is 100, so claims change indexes and the table grows faster; that is right in WriterOnly only. The setting is for new pages",
		"ALTER TABLE "+p.quoted()+" SET (fillfactor = 50)")
	return nil
}

// vacuum checks that autovacuum removes the dead rows that deliveries leave behind.
func (p *patient) vacuum(ctx context.Context) error {
	kind, options, err := p.settings(ctx)
	if err != nil {
		return err
	}
	var on, counts string
	if err := p.one(ctx, "SELECT current_setting('autovacuum'), current_setting('track_counts')", nil, &on, &counts); err != nil {
		return err
	}
	if counts != "on" {
		p.report(Failure, "track_counts is off, so autovacuum does not know which tables need it, and the table and each read grow without end", "ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf()")
	}
	if on != "on" {
		p.report(Failure, "autovacuum is off, so the table and each read grow without end", "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()")
	}
	if err := p.autovacuumOfTables(ctx); err != nil {
		return err
	}
	if kind != "p" && !strings.Contains(options, "autovacuum_vacuum_scale_factor=") {
		p.report(Note, "autovacuum comes late, when a fifth of the table is dead",
			"ALTER TABLE "+p.quoted()+" SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)")
	}
	var live, dead int64
	err = p.one(ctx, "SELECT COALESCE(SUM(n_live_tup), 0)::bigint, COALESCE(SUM(n_dead_tup), 0)::bigint FROM pg_stat_all_tables"+
		" WHERE relid = to_regclass($1) OR relid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass($1))", []any{p.quoted()}, &live, &dead)
	if err != nil {
		return err
	}
	if seen := fmt.Sprintf("about %d rows, and %d dead ones to be removed", live, dead); dead > p.Limits.DeadRows && dead > live/2 {
		p.report(Warning, seen, "VACUUM "+p.quoted()+"; if the number stays, something holds an old snapshot: see the check transactions")
	} else {
		p.report(OK, seen, "")
	}
	return nil
}

// autovacuumOfTables looks for tables with a setting that switches autovacuum off: the table, or a
// partition of it. PostgreSQL stores the setting as it was written.
func (p *patient) autovacuumOfTables(ctx context.Context) error {
	return p.each(ctx, `SELECT c.oid::regclass::text FROM pg_class c, unnest(c.reloptions) AS option
 WHERE (c.oid = to_regclass($1) OR c.oid IN (SELECT relid FROM pg_partition_tree(to_regclass($1)))) AND option LIKE 'autovacuum_enabled=%'
  AND NOT split_part(option, '=', 2)::boolean ORDER BY 1`, []any{p.quoted()}, func(rows *sql.Rows) error {
		var table string
		if err := rows.Scan(&table); err != nil {
			return err
		}
		p.report(Failure, "autovacuum is off for "+table+", so it and each read grow without end", "ALTER TABLE "+table+" RESET (autovacuum_enabled)")
		return nil
	})
}
