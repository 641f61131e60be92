package cdc

import (
	"context"
	"errors"
)

// Lag is how far a reader is behind.
type Lag struct {
	// Active reports whether a process follows the slot.
	Active bool
	// Behind is how many bytes of the server's log the reader has not confirmed. The log is that of all
	// tables and databases of the server.
	Behind int64
	// Kept is how many bytes of its log the server keeps on disk for the slot. A transaction that is open
	// for long makes Kept larger than Behind.
	Kept int64
	// Left is how many bytes the log may grow until the server invalidates the slot, or -1 if
	// max_slot_wal_keep_size sets no bound.
	Left int64
	// Status is the server's wal_status of the slot: reserved, extended, unreserved or lost.
	Status string
}

// Lag asks the server how far the reader is behind, on a connection that is closed again. Any process with
// the config may ask, also while no reader runs. The errors are those of the slot: [ErrNoSlot] and
// [ErrSlotLost], in which case Lag has the figures too.
func (r *Reader) Lag(ctx context.Context) (Lag, error) {
	c, err := r.pg.connect(ctx)
	if err != nil {
		return Lag{}, err
	}
	defer c.close()
	s, err := c.slot(ctx, r.pg.Slot)
	if err != nil && !errors.Is(err, ErrSlotLost) {
		return Lag{}, err
	}
	lag := s.lag()
	return Lag{Active: s.active, Behind: lag.Behind, Kept: lag.Kept, Left: lag.Left, Status: s.status}, err
}
