package testdb

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATreeThatOnlyRootEntersNeedsRoot(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "outbox-tree-") //nolint:usetesting // others may enter it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "usr", "sbin"), 0o755))
	require.Equal(t, os.Geteuid() == 0 && !isOpen(os.TempDir()), TreeNeedsRoot(dir))
	require.NoError(t, os.Chmod(dir, 0o700))
	require.Equal(t, os.Geteuid() == 0, TreeNeedsRoot(dir))
	require.Equal(t, TreeNeedsRoot(dir), len(TreeArguments(dir)) == 2, TreeArguments(dir))
	require.False(t, TreeNeedsRoot(""))
	require.Empty(t, TreeArguments(""))
	require.False(t, isOpen(filepath.Join(dir, "none")))
}
