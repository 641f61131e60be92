package secrets_test

import (
	"bytes"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/secrets"
)

// trace is what the library wrote: all log lines, and the texts of errors.
type trace struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// newTrace collects all loggers' lines at DEBUG until the test ends, and fails the test if
// a secret is in what it has then.
func newTrace(t *testing.T) (*trace, *slog.Logger) {
	t.Helper()
	tr := &trace{}
	logger := slog.New(slog.NewJSONHandler(tr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	before := slog.Default()
	slog.SetDefault(logger) // of callbacks; package log writes to it, too
	require.NoError(t, mysql.SetLogger(log.New(tr, "mysql: ", 0)))
	t.Cleanup(func() {
		slog.SetDefault(before)
		for line := range strings.Lines(tr.String()) {
			require.Empty(t, secrets.Find(line), line)
		}
	})
	return tr, logger
}

func (tr *trace) Write(p []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.Write(p)
}

func (tr *trace) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.String()
}

// failed takes down an error that there has to be.
func (tr *trace) failed(t *testing.T, what string, err error) {
	t.Helper()
	require.Error(t, err, what)
	_, _ = fmt.Fprintf(tr, "%s: %v\n%+v\n", what, err, err)
}
