package outboxotel_test

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel"
	"go.uber.org/goleak"
)

// reports are the errors that OpenTelemetry's error handler got, from all tests.
var reports struct {
	sync.Mutex
	texts []string
}

func TestMain(m *testing.M) {
	if os.Getenv(workerDSN) != "" {
		work()
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		reports.Lock()
		defer reports.Unlock()
		reports.texts = append(reports.texts, err.Error())
	}))
	goleak.VerifyTestMain(m)
}

// reported counts the reports that contain the text.
func reported(text string) int {
	reports.Lock()
	defer reports.Unlock()
	return len(slices.DeleteFunc(slices.Clone(reports.texts), func(s string) bool { return !strings.Contains(s, text) }))
}
