// Package txscope is the base of a tap: the code at a database connection that sees the beginning
// of each transaction, each statement, and the end.
//
// A [Scope] is a transaction. The tap reports every statement to the scope with [Scope.Observe],
// and the end with [Scope.Finish]. The scope follows savepoints, recognises statements and errors
// that end a transaction, and asks the database before the next write when the end is in doubt.
// [Classify] says whether a COMMIT took effect. [Hooks] is the list of registered functions, and
// [Parse] recognises the statements.
//
// Functions registered with [Scope.AtCommit] run within [Scope.Finish], so within the driver's
// COMMIT. The users' callbacks run after the COMMIT, in order: on their own goroutine, or within
// [Scope.EndWith] when the adapter ends the transaction.
package txscope
