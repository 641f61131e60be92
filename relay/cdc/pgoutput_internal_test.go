package cdc

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// relationMessage is what the server sends before the first row of a table.
func relationMessage(columns ...string) []byte {
	m := []byte{'R', 0, 0, 0, 7}
	m = append(m, "public\x00outbox_event\x00d"...)
	m = binary.BigEndian.AppendUint16(m, uint16(len(columns)))
	for _, c := range columns {
		m = append(m, 0)
		m = append(m, c...)
		m = append(m, 0, 0, 0, 0, 25, 255, 255, 255, 255)
	}
	return m
}

// rowMessage is an INSERT.
func rowMessage(values ...string) []byte {
	m := []byte{'I', 0, 0, 0, 7, 'N'}
	m = binary.BigEndian.AppendUint16(m, uint16(len(values)))
	for _, v := range values {
		if v == "" {
			m = append(m, 'n')
			continue
		}
		m = append(m, 't')
		m = binary.BigEndian.AppendUint32(m, uint32(len(v)))
		m = append(m, v...)
	}
	return m
}

var allColumns = []string{"event_id", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "payload", "headers", "created_at", "note"}

func newDecoder() *decoder { return &decoder{wanted: map[string]bool{"public.outbox_event": true}} }

func TestRowsThatCannotBeReadKeepTheirID(t *testing.T) {
	t.Parallel()
	const now = "2026-11-29 12:00:00.5+00"
	for problem, row := range map[string][]string{
		"":                       {"1", "Placed", "", "a", "", "{}", "", now, "x"},
		"event_id is NULL":       {"", "Placed", "", "a", "", "{}", "", now, "x"},
		"event_type is NULL":     {"1", "", "", "a", "", "{}", "", now, "x"},
		"payload is NULL":        {"1", "Placed", "", "a", "", "", "", now, "x"},
		"created_at is no time":  {"1", "Placed", "", "a", "", "{}", "", "infinity", "x"},
		"headers are not a flat": {"1", "Placed", "", "a", "", "{}", `{"a": {}}`, now, "x"},
	} {
		d := newDecoder()
		_, _, err := d.decode(relationMessage(allColumns...))
		require.NoError(t, err)
		event, _, err := d.decode(rowMessage(row...))
		require.NoError(t, err)
		require.Equal(t, row[0], event.Env.EventID)
		if problem == "" {
			require.NoError(t, event.Err)
			require.Equal(t, "{}", event.Env.Payload.String())
		} else {
			require.ErrorContains(t, event.Err, problem)
		}
	}
	_, _, err := newDecoder().decode(relationMessage("event_id", "event_type"))
	require.ErrorIs(t, err, ErrNotSetUp)
}

// FuzzDecode: whatever the server sends, decode returns, and a message that is cut short is an error or
// no event.
func FuzzDecode(f *testing.F) {
	f.Add(relationMessage(allColumns...), rowMessage("1", "Placed", "", "a", "", "{}", "", "2026-11-29 12:00:00+00", "x"))
	f.Add([]byte{'B'}, []byte{'C', 0})
	f.Add([]byte{'R'}, []byte{'I', 0, 0, 0, 7, 'N', 255, 255})
	f.Fuzz(func(t *testing.T, relation, row []byte) {
		d := newDecoder()
		for _, message := range [][]byte{relation, row} {
			if len(message) == 0 {
				continue
			}
			event, _, err := d.decode(message)
			if err != nil {
				require.Nil(t, event)
			}
		}
	})
}
