package release_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/release"
)

// Beside the module there are packages that its zip may lack. The proxies are folders: nothing is
// downloaded. make tidy/check finds a missing requirement, and make release/try compiles each module.
func TestEachReleasedModuleFindsItsImportsAlone(t *testing.T) {
	t.Parallel()
	repository, err := release.Load(t.Context(), filepath.Join("..", ".."))
	require.NoError(t, err)
	dir := t.TempDir()
	built, err := release.Build(repository, filepath.Join(dir, "proxy"))
	require.NoError(t, err)
	require.Len(t, built.Modules, len(repository.Versions.Modules))
	checker, err := release.NewChecker(t.Context(), built, dir, false)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, checker.Close()) })
	for _, m := range built.Modules {
		t.Run(m.Dir, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, append(m.Packages, m.Programs...))
			require.NoError(t, checker.Imports(t.Context(), m))
		})
	}
}
