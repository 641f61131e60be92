// Package txscope is what every transaction adapter of the outbox builds on.
//
// [Session] is the life of one transaction: it begins it with a context of its
// own ([BeginSession]), rolls it back when the caller's context ends, finds out
// with [Classify] what came of COMMIT, and runs the callbacks when the connection
// is back in the pool. An adapter whose framework begins and ends transactions
// itself shows them to an adopted one ([Adopt]).
//
// [Scope] is the transaction as [outbox.TxScope] wants it: it keeps the callbacks
// and follows savepoints through the statements that the adapter shows to
// [Scope.Observe]. Where a statement or an error leaves open whether there still
// is a transaction, it asks the database before the next write. [Hooks] is the
// list of callbacks below it, and [Parse] recognises the statements.
//
// An adapter does three things: it has a session begin each transaction, shows
// its scope each statement, and puts it into the context with
// [ContextWithLevel], for which its own kind of transaction is a [Level].
package txscope
