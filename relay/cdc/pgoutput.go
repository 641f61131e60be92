package cdc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/outboxkit/outbox-go/internal/logread"
)

// decoder decodes the messages of pgoutput, version 1: the transactions come in sequence, each when
// it has committed.
type decoder struct {
	wanted map[string]bool // schema.table
	open   bool            // in a transaction
	tables map[uint32][]column
}

// column says where the value of a column goes. Columns that the reader does not need have no set.
type column struct {
	name string
	set  logread.Setter
}

// layout is how the server writes created_at.
const layout = "2006-01-02 15:04:05.999999-07"

// decode returns the event of an INSERT, or the position after a transaction that ends.
func (d *decoder) decode(data []byte) (event *logread.Event, end uint64, err error) {
	in := &input{data: data[1:]}
	switch data[0] {
	case 'B':
		d.open = true
	case 'C': // flags, position of the commit, end of the transaction
		d.open = false
		in.take(9)
		end = in.number(8)
	case 'R':
		err = d.relation(in)
	case 'I':
		event, err = d.insert(in)
	}
	return event, end, errors.Join(err, in.err)
}

// relation keeps the columns of a table. The server sends it before the table's first row, and again
// after the table has changed.
func (d *decoder) relation(in *input) error {
	id := uint32(in.number(4))
	table := in.text() + "." + in.text()
	in.take(1)
	columns := make([]column, in.number(2))
	missing := map[string]bool{}
	for name := range logread.Setters {
		missing[name] = true
	}
	for i := range columns {
		in.take(1)
		name := in.text()
		columns[i] = column{name, logread.Setters[name]}
		delete(missing, name)
		in.take(8)
	}
	if d.tables == nil {
		d.tables = map[uint32][]column{}
	}
	if !d.wanted[table] || in.err != nil {
		delete(d.tables, id)
		return in.err
	}
	for name := range missing {
		return notSetUp("table %s or its publication has no column %s; publish all columns", table, name)
	}
	d.tables[id] = columns
	return nil
}

// insert makes an event of a row, or no event if the row is of another table.
func (d *decoder) insert(in *input) (*logread.Event, error) {
	columns, ok := d.tables[uint32(in.number(4))]
	if !ok {
		return nil, in.err
	}
	in.take(1) // 'N': the new row
	var r logread.Row
	for i := range int(in.number(2)) {
		kind := in.take(1)
		if in.err != nil || i >= len(columns) {
			return nil, errors.New("a row in the log does not fit its table")
		}
		if kind[0] != 't' {
			continue // NULL
		}
		value := in.take(int(in.number(4)))
		if set := columns[i].set; set != nil && in.err == nil {
			set(&r, string(value))
		}
	}
	if in.err != nil {
		return nil, in.err
	}
	event := r.Event(layout)
	return &event, nil
}

// input is a message that is being read. After the first error, input reads zeros.
type input struct {
	data []byte
	err  error
}

func (in *input) take(n int) []byte {
	if n < 0 || n > len(in.data) {
		in.data, in.err = nil, errors.New("a message of pgoutput ends too soon")
		return make([]byte, min(max(n, 1), 16))
	}
	taken := in.data[:n]
	in.data = in.data[n:]
	return taken
}

func (in *input) number(bytes int) uint64 {
	var wide [8]byte
	copy(wide[8-bytes:], in.take(bytes))
	return binary.BigEndian.Uint64(wide[:])
}

// text is a string that ends with a zero.
func (in *input) text() string {
	text, rest, found := strings.Cut(string(in.data), "\x00")
	if !found {
		in.take(len(in.data) + 1)
		return ""
	}
	in.data = in.data[len(in.data)-len(rest):]
	return text
}

// position is a position in the log as PostgreSQL writes it.
func position(lsn uint64) string { return fmt.Sprintf("%X/%X", lsn>>32, uint32(lsn)) }
