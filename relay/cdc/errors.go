package cdc

import (
	"errors"
	"fmt"
)

// Errors of the server that a reader cannot correct by trying again. [Reader.Run] ends with them.
var (
	// ErrNoSlot: the server has no slot of the name. The slot was never made, somebody dropped it, or
	// the server is another server, such as after a failover. Events that were committed after the
	// position of the old slot are in no log, but in the table, unless their rows were deleted.
	// [Reader.Setup] makes a slot and publishes the rows of the table.
	ErrNoSlot = errors.New("the slot does not exist")
	// ErrSlotLost: the server has invalidated the slot, because the log was larger than
	// max_slot_wal_keep_size, or for another reason. Drop the slot; the rest is as with [ErrNoSlot].
	ErrSlotLost = errors.New("the server has invalidated the slot")
	// ErrNotSetUp: a setting of the server, a right of the role, the publication or a table is not as
	// the reader needs it. The text says how to correct it.
	ErrNotSetUp = errors.New("the database is not set up for the reader")
)

// errInUse means that another process follows the slot.
var errInUse = errors.New("another process follows the slot")

// errStandby means that the server is a standby. After the failover the server is not.
var errStandby = errors.New("the server is a standby; the slot is read on the primary")

func notSetUp(problem string, args ...any) error {
	return fmt.Errorf("%w: "+problem, append([]any{ErrNotSetUp}, args...)...)
}

// final reports whether trying again is no use.
func final(err error) bool {
	return errors.Is(err, ErrNoSlot) || errors.Is(err, ErrSlotLost) || errors.Is(err, ErrNotSetUp)
}
