package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
)

// browser is shared by all tests; each has a tab.
var browser context.Context

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	started, end, err := Start(context.Background())
	switch {
	case errors.Is(err, ErrNoBrowser) && os.Getenv("CI") != "true":
		fmt.Fprintln(os.Stderr, "browsertest: skipped:", err)
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "browsertest:", err)
		return 1
	}
	defer end()
	browser = started //nolint:fatcontext // it lives as long as the tests.
	return m.Run()
}
