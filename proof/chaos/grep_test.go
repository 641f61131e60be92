package chaos

import (
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/checker"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

// What a process prints is searched for secrets, and for signs that it failed.
func TestGrep(t *testing.T) {
	t.Parallel()
	for _, word := range append([]string{password, "WARNING: DATA RACE", "panic: runtime error", "fatal error: all goroutines are asleep"}, faultrun.Secrets...) {
		dir := t.TempDir()
		name := filepath.Join(dir, "a0.stderr")
		require.NoError(t, os.WriteFile(name, []byte("level=INFO msg=started\n"), 0o600))
		require.Empty(t, grep(dir, checker.History{}))
		require.NoError(t, os.WriteFile(name, []byte("level=INFO msg=started\nlevel=ERROR error=\"x "+word+"\"\n"), 0o600))
		found := grep(dir, checker.History{})
		require.Len(t, found, 1)
		require.Contains(t, found[0].Text, name+":2")
	}
}

// So are the reasons of the rows, also for secrets that are encoded.
func TestGrepReadsReasons(t *testing.T) {
	t.Parallel()
	for _, word := range faultrun.Secrets {
		for _, form := range []string{word, hex.EncodeToString([]byte(word)), base64.StdEncoding.EncodeToString([]byte(`{"secret":"` + word + `"}`))} {
			h := checker.History{Rows: map[checker.Target]checker.Row{{Event: "e1"}: {LastError: "decoding " + form}}}
			found := grep(t.TempDir(), h)
			require.Len(t, found, 1, form)
			require.Contains(t, found[0].Text, "last_error")
		}
	}
}
