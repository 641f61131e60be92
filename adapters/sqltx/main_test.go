package sqltx_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(killAt) != "" {
		dyingProcess()
	}
	goleak.VerifyTestMain(m)
}
