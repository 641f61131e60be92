// Package secrets makes everything fail that can fail, with marked texts in the events and in the
// addresses of the databases, and searches all logs and all returned values for the marks.
//
// The package has only tests. Package internal/testing/secrets has the marks and finds them.
package secrets
