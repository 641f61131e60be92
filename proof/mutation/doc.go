// Package mutation shows that package checker finds the faults that it is for: mutation breaks the
// outbox in a single place, runs the broken copy with package faultrun, and demands that the
// checker rejects the run by the rule that the place is there to keep.
//
// The mutations are a table in the tests. make chaos/mutations runs them; every test run checks
// that the text of each mutation still occurs exactly once in the mutated file, and that
// docs/reliability/MUTATIONS.md lists the mutations.
package mutation
