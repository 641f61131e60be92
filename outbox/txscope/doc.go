// Package txscope is what every transaction adapter of the outbox builds on.
//
// [Scope] is one transaction as [outbox.TxScope] wants it: it keeps the
// callbacks, follows savepoints through the statements that the adapter shows
// to [Scope.Observe], and runs each callback once when the adapter calls
// [Scope.Finish] with what [Classify] made of COMMIT's answer. [Hooks] is the
// list of callbacks below it, and [Parse] recognises the statements.
//
// An adapter does four things: it makes a scope for each transaction that it
// begins, puts it into the context with [outbox.ContextWithScope], calls Observe
// after each statement, and calls Finish after the connection went back to the
// pool.
package txscope
