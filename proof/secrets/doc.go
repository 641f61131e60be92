// Package secrets makes everything fail that can, with marked texts in the events and in the
// addresses of the databases, and looks for the marks in all that was logged and returned.
//
// It has only tests. Package internal/testing/secrets has the marks and finds them.
package secrets
