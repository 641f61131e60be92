package chaos

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/faultrun"
)

// What a process prints is searched for secrets, and for signs that it failed.
func TestGrep(t *testing.T) {
	t.Parallel()
	for _, word := range append([]string{password, "WARNING: DATA RACE", "panic: runtime error", "fatal error: all goroutines are asleep"}, faultrun.Secrets...) {
		dir := t.TempDir()
		name := filepath.Join(dir, "a0.stderr")
		require.NoError(t, os.WriteFile(name, []byte("level=INFO msg=started\n"), 0o600))
		require.Empty(t, grep(dir))
		require.NoError(t, os.WriteFile(name, []byte("level=INFO msg=started\nlevel=ERROR error=\"x "+word+"\"\n"), 0o600))
		found := grep(dir)
		require.Len(t, found, 1)
		require.Contains(t, found[0].Text, name+":2")
	}
}
