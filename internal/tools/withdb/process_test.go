package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyTheFoldersOwnServerIsEnded(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a folder")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for arg, own := range map[string]bool{
		filepath.Join(dir, "data"):                 true,
		"--datadir=" + filepath.Join(dir, "data"):  true,
		filepath.Join(dir, "data2"):                false,
		filepath.Join(dir, "data/postgresql.conf"): false,
		"/elsewhere" + filepath.Join(dir, "data"):  false,
	} {
		ended, err := daemon(nil, dir, "/bin/sh", "-c", "read line < fifo || while :; do sleep 1; done", arg)
		require.NoError(t, err)
		pid, err := noted(dir)
		require.NoError(t, err)
		require.Equal(t, own, running(dir), arg)
		require.NoError(t, kill(dir, syscall.SIGKILL))
		require.NoFileExists(t, filepath.Join(dir, "pid"))
		if !own {
			require.NoError(t, syscall.Kill(-pid, 0), "%s is another's process", arg)
		}
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		<-ended
	}
}

func TestANoteThatIsNoProcessKillsNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"-1", "0", "1", "", "x"} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pid"), []byte(text), 0o644))
		require.False(t, running(dir))
		require.Error(t, kill(dir, 0))
	}
	require.NoError(t, kill(t.TempDir(), 0), "no note, no server")
	dir := t.TempDir()
	gone := exec.Command("/bin/sh", "-c", ":")
	require.NoError(t, gone.Run())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(gone.Process.Pid)), 0o644))
	require.NoError(t, kill(dir, syscall.SIGTERM))
}

func TestHalfMadeDataIsMadeAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fills := 0
	fill := func(err error) func(string) error {
		return func(data string) error {
			fills++
			return errors.Join(os.Mkdir(data, 0o755), err)
		}
	}
	_, err := initialize(dir, fill(errors.New("interrupted")))
	require.ErrorContains(t, err, "interrupted")
	for range 2 {
		data, err := initialize(dir, fill(nil))
		require.NoError(t, err)
		require.DirExists(t, data)
	}
	require.Equal(t, 2, fills, "once in vain, once for good")
}

func TestTheNewestBinaryIsFoundOrSaidToBeMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, version := range []string{"9", "15", "17"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, version), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, version, "no-such-db"), nil, 0o755))
	}
	found, err := binary([]string{"no-such-name", "no-such-db"}, filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "17", "no-such-db"), found)
	_, err = binary([]string{"no-such-name"}, filepath.Join(dir, "*"))
	require.ErrorIs(t, err, errNotInstalled)
}

func TestAFolderIsWhereItsOwnerCanReachIt(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs a server as another user")
	}
	cred, err := owner("nobody")
	require.NoError(t, err)
	closed := t.TempDir() // Its parent is open to its owner alone.
	require.NoError(t, os.Chmod(closed, 0o700))
	open, err := os.MkdirTemp("/tmp", "withdb-test-") //nolint:usetesting // t.TempDir is open to its owner alone
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(open) })
	require.NoError(t, os.Chmod(open, 0o755))
	dir, err := temporary("db-", cred, closed, filepath.Join(open, "missing"), open)
	require.NoError(t, err)
	require.Equal(t, open, filepath.Dir(dir))
	left, err := os.ReadDir(closed)
	require.NoError(t, err)
	require.Empty(t, left)
}
