// Package mutation shows that package checker finds what it is for: it breaks the outbox
// in one place, runs the broken copy with package faultrun, and demands that the checker
// rejects the run by the rule that the place is there to keep.
//
// The mutations are a table in the tests. make chaos/mutations runs them; every test run
// checks that the text of each mutation still occurs once in its file, and that
// docs/reliability/MUTATIONS.md lists them.
package mutation
