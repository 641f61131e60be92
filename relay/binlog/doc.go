// Package binlog publishes the events of an outbox on MySQL or MariaDB by change data capture: it reads the
// binary log of the server in place of the table.
//
//	reader, err := binlog.New(binlog.Config{
//		DSN:     dsn,
//		Publish: r.Publish, // of a relay, or binlog.ToListener(yours)
//	})
//	…
//	err = reader.Setup(ctx) // once: stores the position, and publishes the pending events
//	…
//	err = reader.Run(ctx)   // publishes until ctx ends
//
// The outbox only writes ([outbox.WriterOnly]). The server sends the log as to a replica: the rows that
// were inserted, transaction by transaction, in the order of the commits. The reader publishes the rows in
// batches, and stores its position, a set of GTIDs, in the control table of the outbox after all events
// before the position are published. A reader that begins again publishes the events after the stored
// position, some of them a second time. No event is published before the transaction has committed.
//
// The row is needed only in the log: a transaction may insert the row and delete it, and the
// table stays empty.
//
// The server deletes the log by age, whether the reader has read it or not. [Reader.Lag] says how old the
// position is. Run never makes a position: a new position would be the current end of the log. Without a
// position whose log the server has, Run returns [ErrNoPosition] or [ErrPositionLost].
package binlog
