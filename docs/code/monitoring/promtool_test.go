package monitoring_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// promtool runs Prometheus's promtool on files of this folder. If it is missing, the
// test is skipped, or with CI=true fails, so that CI accepts only tested rules.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := findPromtool()
	if err != nil {
		const way = "promtool is neither in PATH nor in .bin; make promtool fetches it, or says what to install"
		if os.Getenv("CI") == "true" {
			t.Fatal(way)
		}
		t.Skip(way)
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	require.NoError(t, err, string(out))
}

// findPromtool looks in PATH, then where make promtool puts it.
func findPromtool() (string, error) {
	path, err := exec.LookPath("promtool")
	if err == nil {
		return path, nil
	}
	own, err2 := filepath.Abs("../../../.bin/promtool")
	if err2 != nil {
		return "", errors.Join(err, err2)
	}
	return exec.LookPath(own)
}
