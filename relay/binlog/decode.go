package binlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/outboxkit/outbox-go/internal/logread"
)

// row is an event of the outbox.
type row = logread.Event

// decoder makes messages of the events of the log.
type decoder struct {
	parser *replication.BinlogParser
	wanted map[string]bool // database.table

	gtid replication.Event // began the transaction that is being read, or nil
	open bool              // the transaction has several events, and ends with a commit
	xa   bool              // the log does not say here whether the transaction commits
	at   time.Time         // of the last event
}

func newDecoder(mariadb bool, wanted map[string]bool) *decoder {
	d := &decoder{parser: replication.NewBinlogParser(), wanted: wanted}
	d.parser.SetFlavor("mysql")
	if mariadb {
		d.parser.SetFlavor("mariadb")
	}
	d.parser.SetUseDecimal(true)
	d.parser.SetRowsEventDecodeFunc(func(e *replication.RowsEvent, data []byte) error {
		pos, err := e.DecodeHeader(data)
		if err != nil || !d.isWanted(e) {
			return err
		}
		return e.DecodeData(pos, data)
	})
	return d
}

// isWanted reports whether rows were inserted into a table of the outbox.
func (d *decoder) isWanted(e *replication.RowsEvent) bool {
	return e.Table != nil && e.Type() == replication.EnumRowsEventTypeInsert && d.wanted[string(e.Table.Schema)+"."+string(e.Table.Table)]
}

// packet decodes an event as the server sends it. An error has no text of the library: it may have a payload
// in it.
func (d *decoder) packet(data []byte) ([]message, error) {
	e, err := d.parser.Parse(data)
	if err != nil {
		var header replication.EventHeader
		_ = header.Decode(data)
		return nil, fmt.Errorf("an event of the log cannot be read: type %s, %d bytes, before position %d of its file", header.EventType, len(data), header.LogPos)
	}
	return d.event(e, nil)
}

// event appends the messages of an event to list.
func (d *decoder) event(e *replication.BinlogEvent, list []message) ([]message, error) {
	if t := e.Header.Timestamp; t != 0 {
		d.at = time.Unix(int64(t), 0)
	}
	switch event := e.Event.(type) {
	case *replication.GTIDEvent:
		if e.Header.EventType == replication.ANONYMOUS_GTID_EVENT {
			return list, notSetUp("the log has a transaction without a GTID; keep gtid_mode ON")
		}
		list = d.ends(list)
		d.gtid = event
	case *replication.GtidTaggedLogEvent:
		return list, notSetUp("the log has a transaction whose GTID has a tag, %.64q; tags are not supported, so keep gtid_next without a tag", event.Tag)
	case *replication.MariadbGTIDEvent:
		const preparedXA = 64
		list = d.ends(list)
		d.gtid, d.open, d.xa = event, !event.IsStandalone(), event.Flags&preparedXA != 0
	case *replication.QueryEvent:
		return d.query(event, list)
	case *replication.XIDEvent:
		list = d.ends(list)
	case *replication.RowsEvent:
		if !d.isWanted(event) {
			return list, nil
		}
		rows, err := d.rows(event)
		if err != nil {
			return list, err
		}
		list = append(list, message{rows: rows})
	case *replication.TransactionPayloadEvent: // a transaction that is compressed
		for _, inner := range event.Events {
			var err error
			if list, err = d.event(inner, list); err != nil {
				return list, err
			}
		}
	default:
		if e.Header.EventType == replication.XA_PREPARE_LOG_EVENT {
			list = d.ends(list)
		}
	}
	return list, nil
}

// ends appends that the transaction has ended, if there is a transaction.
func (d *decoder) ends(list []message) []message {
	if d.gtid != nil {
		list = append(list, message{gtid: d.gtid, at: d.at})
	}
	d.gtid, d.open, d.xa = nil, false, false
	return list
}

// query handles a statement: the begin or the end of a transaction, or a change of a table's definition, which
// is a transaction of its own.
func (d *decoder) query(e *replication.QueryEvent, list []message) ([]message, error) {
	text := strings.ToUpper(string(bytes.TrimSpace(e.Query[:min(len(e.Query), maxStatement)])))
	switch {
	case text == "BEGIN":
		d.open = true
	case strings.HasPrefix(text, "XA START"):
		d.open, d.xa = true, true
	case strings.HasPrefix(text, "SAVEPOINT"), strings.HasPrefix(text, "ROLLBACK TO"):
	case text == "COMMIT", text == "ROLLBACK", !d.open:
		return d.ends(list), nil
	case d.writes(text, string(e.Schema)):
		return list, notSetUp("a session wrote to the outbox with binlog_format STATEMENT or MIXED, so that the log has the statement and not the row; let sessions keep the server's format, delete the position and call Setup")
	}
	return list, nil
}

// maxStatement is how much of a statement is looked at.
const maxStatement = 4096

// writes reports whether a statement in a transaction, in capital letters, inserts into a table of the outbox.
// database is the session's.
func (d *decoder) writes(text, database string) bool {
	text, _, _ = strings.Cut(strings.ReplaceAll(text, "`", ""), "(") // the table is before the columns and the values
	text, _, _ = strings.Cut(text, "'")
	words := strings.FieldsFunc(text, func(r rune) bool {
		return r != '_' && r != '.' && r != '$' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if !slices.Contains(words, "INSERT") && !slices.Contains(words, "REPLACE") {
		return false
	}
	for name := range d.wanted {
		schema, table, _ := strings.Cut(name, ".")
		if slices.Contains(words, strings.ToUpper(name)) || strings.EqualFold(schema, database) && slices.Contains(words, strings.ToUpper(table)) {
			return true
		}
	}
	return false
}

// layout is how created_at is written.
const layout = "2006-01-02 15:04:05.999999"

// errXA: the row is in the log, and the end of its transaction is not.
var errXA = errors.New("the row is of an XA transaction, of which the log says later whether it commits; write events in transactions of the database alone")

// rows makes events of rows.
func (d *decoder) rows(e *replication.RowsEvent) ([]row, error) {
	table := string(e.Table.Schema) + "." + string(e.Table.Table)
	names := e.Table.ColumnName
	if len(names) != int(e.Table.ColumnCount) {
		return nil, notSetUp("the log has a row of %s without the names of the columns; keep binlog_row_metadata FULL, delete the position and call Setup", table)
	}
	setters, missing := make([]logread.Setter, len(names)), len(logread.Setters)
	for i, name := range names {
		if setters[i] = logread.Setters[strings.ToLower(string(name))]; setters[i] != nil {
			missing--
		}
	}
	if missing > 0 {
		return nil, notSetUp("the table %s has not all of the columns %s", table, logread.Columns)
	}
	events := make([]row, 0, len(e.Rows))
	for _, values := range e.Rows {
		var r logread.Row
		for i, set := range setters {
			if set == nil || values[i] == nil {
				continue
			}
			switch v := values[i].(type) {
			case string:
				set(&r, v)
			case []byte:
				set(&r, string(v))
			default:
				set(&r, fmt.Sprint(v))
			}
		}
		event := r.Event(layout)
		if d.xa {
			event.Err = errXA
		}
		events = append(events, event)
	}
	return events, nil
}
