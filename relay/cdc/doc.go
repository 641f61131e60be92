// Package cdc publishes the events of an outbox by change data capture: it reads the log of the database
// in place of the table.
//
//	reader, err := cdc.New(cdc.Config{
//		Source:  cdc.Postgres{DSN: dsn, Slot: "shop_outbox"},
//		Publish: r.Publish, // of a relay, or cdc.ToListener(yours)
//	})
//	…
//	err = reader.Setup(ctx) // once: makes the publication and the slot, and publishes the pending events
//	…
//	err = reader.Run(ctx)   // publishes until ctx ends
//
// The outbox only writes ([outbox.WriterOnly]). The server decodes the log with the plugin
// pgoutput and sends the rows that were inserted, transaction by transaction, in the order of the
// commits. The reader publishes the rows in batches, and confirms a position to the server after
// all events before the position are published. The server keeps the confirmed position, with the log
// after it, in the slot. A reader that begins again publishes the events after the confirmed position,
// some of them a second time. No event is published before the transaction has committed.
//
// The row is needed only in the log: a transaction may insert the row and delete it, and the
// table stays empty.
//
// The server keeps the log for a slot until the reader confirms it. [Reader.Lag] says how much that is.
// Run never makes a slot: a new slot begins at the current position of the log. Without its slot Run
// returns [ErrNoSlot] or [ErrSlotLost].
package cdc
