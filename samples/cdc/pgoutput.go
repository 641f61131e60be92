package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// decoder decodes the messages of pgoutput, version 1: the transactions come in sequence, each when
// it has committed.
type decoder struct {
	open    bool                // in a transaction
	columns map[uint32][]string // of each table
}

// decode returns the event of an INSERT, or the end of a transaction in the log.
func (d *decoder) decode(data []byte) (env *outbox.Envelope, commit uint64, err error) {
	in := &input{data: data[1:]}
	switch data[0] {
	case 'B':
		d.open = true
	case 'C': // flags, position of the commit, end of the transaction
		d.open = false
		in.take(9)
		commit = in.number(8)
	case 'R':
		d.relation(in)
	case 'I':
		env, err = d.insert(in)
	}
	return env, commit, errors.Join(err, in.err)
}

// relation keeps the names of a table's columns.
func (d *decoder) relation(in *input) {
	id := uint32(in.number(4))
	in.text() // schema
	in.text() // table
	in.take(1)
	columns := make([]string, in.number(2))
	for i := range columns {
		in.take(1)
		columns[i] = in.text()
		in.take(8)
	}
	if d.columns == nil {
		d.columns = map[uint32][]string{}
	}
	d.columns[id] = columns
}

// insert makes an envelope of a row.
func (d *decoder) insert(in *input) (*outbox.Envelope, error) {
	columns := d.columns[uint32(in.number(4))]
	in.take(1) // 'N': the new row
	row := map[string]string{}
	for i := range int(in.number(2)) {
		switch kind := in.take(1); {
		case in.err != nil || i >= len(columns):
			return nil, errors.New("a row does not fit its table")
		case kind[0] == 't':
			row[columns[i]] = string(in.take(int(in.number(4))))
		}
	}
	if in.err != nil {
		return nil, in.err
	}
	return envelope(row)
}

func envelope(row map[string]string) (*outbox.Envelope, error) {
	env := &outbox.Envelope{
		EventID: row["event_id"], EventType: outbox.EventType(row["event_type"]),
		AggregateType: outbox.AggregateType(row["aggregate_type"]), AggregateID: row["aggregate_id"],
		TenantID: row["tenant_id"],
	}
	if env.AggregateType == "" {
		env.AggregateType = outbox.Global
	}
	var err error
	if env.OccurredAt, err = time.Parse("2006-01-02 15:04:05.999999-07", row["created_at"]); err != nil {
		return nil, fmt.Errorf("event %s: created_at: %w", env.EventID, err)
	}
	var headers map[string]string
	if text := row["headers"]; text != "" && json.Unmarshal([]byte(text), &headers) != nil {
		return nil, fmt.Errorf("event %s: its headers are not a flat object of strings", env.EventID)
	}
	if err := outbox.ReadStored(env, headers, row["payload"]); err != nil {
		return nil, fmt.Errorf("event %s: %w", env.EventID, err)
	}
	return env, nil
}

// input is a message that is being read. After the first error, input reads zeros.
type input struct {
	data []byte
	err  error
}

func (in *input) take(n int) []byte {
	if n < 0 || n > len(in.data) {
		in.data, in.err = nil, errors.New("a message of pgoutput ends too soon")
		return make([]byte, min(max(n, 0), 8))
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
	for i, c := range in.data {
		if c == 0 {
			return string(in.take(i + 1)[:i])
		}
	}
	in.take(len(in.data) + 1)
	return ""
}
