package binlog_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// all runs the tests, and then stops the servers that they share.
type all struct{ *testing.M }

func (a all) Run() int {
	code := a.M.Run()
	for _, k := range kinds {
		k.end()
	}
	return code
}

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most tests wait for a time of the protocol
	goleak.VerifyTestMain(all{m})
}
