package archtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var requirement = regexp.MustCompile(`(?m)^\t(\S+\.\S+) v\S+$`) // not an indirect requirement

// required are the modules of others that a module requires directly.
func required(t *testing.T, path string) (modules []string) {
	t.Helper()
	folder := strings.TrimPrefix(strings.TrimPrefix(path, "github.com/outboxkit/outbox-go"), "/")
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(folder), "go.mod"))
	require.NoError(t, err)
	for _, match := range requirement.FindAllStringSubmatch(string(text), -1) {
		if !strings.HasPrefix(match[1], "github.com/outboxkit/") {
			modules = append(modules, match[1])
		}
	}
	return modules
}

// The modules that users get have an old version of a library. The workspace tests with the newest
// only if a module that Dependabot updates requires the library too.
func TestEachLibraryHasItsNewestVersionInTheWorkspace(t *testing.T) {
	t.Parallel()
	var release struct{ Modules, Excluded []string }
	readYAML(t, "versions.yaml", &release)
	updated := map[string]bool{}
	for _, path := range append(release.Excluded, "github.com/outboxkit/outbox-go/cmd/outbox") {
		for _, library := range required(t, path) {
			updated[library] = true
		}
	}
	require.True(t, updated["github.com/stretchr/testify"])
	for _, path := range release.Modules {
		for _, library := range required(t, path) {
			require.True(t, updated[library], "%s requires %s: import it in proof/newest", path, library)
		}
	}
}
