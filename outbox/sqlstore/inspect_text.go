package sqlstore

import (
	"context"
	"database/sql"
	"strings"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/outbox"
)

// prefixWalk is how a walk finds the ids that begin with a text. HasTexts checks each row again.
type prefixWalk uint8

const (
	noPrefix    prefixWalk = iota
	prefixScan             // no index is known in which the ids are next to each other
	prefixRange            // along the primary key, which orders ids by the numbers of their characters
	prefixBytes            // PostgreSQL: along an index of event_id COLLATE "C"
)

func (p prefixWalk) isIndexed() bool { return p > prefixScan }

// prefixWalk asks the database in which order the primary key has the ids: the collation of a language
// may put other ids between those that begin with a text. Only SQLite has always the same order.
func (s *Store) prefixWalk(ctx context.Context, db queryer, prefix string) (prefixWalk, error) {
	if prefix == "" {
		return noPrefix, nil
	}
	if s.d == sqlite {
		return prefixRange, nil
	}
	q := s.query(1024)
	if s.d == postgres {
		q.add("SELECT CASE WHEN c.collprovider <> 'd' THEN CAST(c.collprovider AS TEXT) ELSE COALESCE(to_jsonb(d)->>'datlocprovider', 'c') END, ",
			"CASE WHEN c.collprovider <> 'd' THEN CAST(c.collcollate AS TEXT) ELSE CAST(d.datcollate AS TEXT) END, ",
			"EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisvalid AND i.indpred IS NULL",
			` AND pg_get_indexdef(i.indexrelid) LIKE '%USING btree (event_id COLLATE "C"%')`,
			" FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation JOIN pg_database d ON d.datname = current_database()",
			" WHERE a.attname = 'event_id' AND a.attrelid = to_regclass(").arg(s.name().Quoted(s.d.quote)).add(")")
	} else {
		q.add("SELECT '', collation_name, FALSE FROM information_schema.columns WHERE table_schema = COALESCE(").arg(nullable(s.name().Schema)).
			add(", DATABASE()) AND table_name = ").arg(s.name().Name).add(" AND column_name = 'event_id'")
	}
	var provider, collation sql.NullString
	var isIndexed bool
	err := s.rows(ctx, db, "reading the collation of the ids", q, func(rows *sql.Rows) error { return rows.Scan(&provider, &collation, &isIndexed) })
	switch {
	case err != nil:
		return noPrefix, err
	case provider.String == "b" || provider.String != "i" && isByCharacter(collation.String):
		return prefixRange, nil
	case isIndexed:
		return prefixBytes, nil
	default:
		return prefixScan, nil
	}
}

// isByCharacter reports whether a collation, which PostgreSQL takes from the C library, orders texts by
// the numbers of their characters.
func isByCharacter(collation string) bool {
	name := strings.ToLower(collation)
	return name == "c" || name == "posix" || name == "c.utf-8" || name == "c.utf8" || strings.HasSuffix(name, "_bin")
}

// prefixed writes the condition for the ids that begin with a text, behind a place, and their order.
func (q *query) prefixed(w walk, after outbox.Cursor) *query {
	id := "event_id"
	if w.prefix == prefixBytes {
		id = `event_id COLLATE "C"`
	}
	q.add(" AND ", id, " >= ").arg(w.filter.IDPrefix)
	if end := behindPrefix(w.filter.IDPrefix); end != "" {
		q.add(" AND ", id, " < ").arg(end)
	}
	if after.EventID != "" {
		q.add(" AND ", id, " < ").arg(after.EventID)
	}
	return q.add(" ORDER BY ", id, " DESC LIMIT ")
}

// behindPrefix is a text behind all texts that begin with a text, by the numbers of the characters;
// empty: no text is. Few other texts are before it: behind U+D7FF it is U+FFFD, because surrogates are no
// characters.
func behindPrefix(prefix string) string {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		if prefix = prefix[:len(prefix)-size]; last < utf8.MaxRune {
			return prefix + string(last+1)
		}
	}
	return ""
}

// texts writes the conditions for the beginning of the id, if no index is for it, and for a part of the
// error. Functions take the place of LIKE, so that no character is a wildcard. HasTexts narrows what
// MySQL's LOWER widens.
func (q *query) texts(w walk) {
	f := w.filter
	switch {
	case w.prefix != prefixScan:
	case q.d == postgres:
		q.add(" AND STARTS_WITH(event_id, ").arg(f.IDPrefix).add(")")
	default:
		q.add(" AND LEFT(event_id, CHAR_LENGTH(").arg(f.IDPrefix).add(")) = ").arg(f.IDPrefix)
	}
	if f.ErrorText == "" {
		return
	}
	switch q.d {
	case postgres:
		q.add(" AND STRPOS(LOWER(", shownError, ` COLLATE "C"), LOWER(CAST(`).arg(f.ErrorText).add(` AS TEXT) COLLATE "C")) > 0`)
	default:
		q.add(" AND INSTR(LOWER(", shownError, "), LOWER(").arg(f.ErrorText).add(")) > 0")
	}
}

// missingIndex is an index along which the walk would read only rows that the filter may choose; nil:
// there is none, or the walk is along it.
func (s *Store) missingIndex(w walk) *outbox.MissingIndex {
	switch {
	case w.prefix == prefixScan && !w.search && s.d == postgres:
		index := s.d.quote + s.table.Index("prefix") + s.d.quote
		return &outbox.MissingIndex{
			For: "the beginning of an id (the collation of the database orders ids by a language)",
			DDL: "CREATE INDEX CONCURRENTLY IF NOT EXISTS " + index + " ON " + s.table.Quoted(s.d.quote) + ` (event_id COLLATE "C")`,
		}
	case w.filter.AggregateID != "" && !w.search && !w.prefix.isIndexed():
		ddl := strings.Join(s.indexDDL("search"), "; ")
		if s.d == postgres { // without a lock that stops the writers
			ddl = strings.Replace(ddl, "INDEX IF NOT EXISTS", "INDEX CONCURRENTLY IF NOT EXISTS", 1)
		}
		return &outbox.MissingIndex{For: "an aggregate id", Option: "sqlstore.WithSearchIndex()", DDL: ddl}
	default:
		return nil
	}
}
