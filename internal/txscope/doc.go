// Package txscope is what a tap builds on: the code at a database connection
// that sees each transaction begin, each statement, and the end.
//
// [Scope] is one transaction. The tap shows it every statement with
// [Scope.Observe] and its end with [Scope.Finish]. The scope follows savepoints,
// recognises statements and errors that end a transaction, and asks the database
// before the next write where neither is certain. [Classify] says what a COMMIT
// did. [Hooks] is the list of registered functions, and [Parse] recognises the
// statements.
//
// Functions registered with [Scope.AtCommit] run within [Scope.Finish], so within
// the driver's COMMIT. The users' callbacks run after it, in order: on a
// goroutine of their own, or within [Scope.EndWith] when the adapter ends the
// transaction.
package txscope
