package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dependents are the Go files below root, without those in proof, that import a package of module
// proof: of each module, tests included. The second result counts the files that were read.
func dependents(t *testing.T, root string) (files []string, read int) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || path == filepath.Join(root, "proof")):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		require.NoError(t, err)
		read++
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			if inside(imported, module+"/proof") {
				files = append(files, path)
			}
		}
		return nil
	}))
	return files, read
}

// The proofs know the product, and the product does not know them.
func TestNothingOutsideProofImportsProof(t *testing.T) {
	t.Parallel()
	files, read := dependents(t, filepath.Join("..", ".."))
	require.Greater(t, read, 500, "the files were found")
	require.Empty(t, files)
}

func TestAFileThatImportsProofIsNamed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, imported := range map[string]string{
		"outbox/a.go":            module + "/proof",
		"relay/nats/a_test.go":   module + "/proof/checker",
		"outbox/other.go":        module + "/proofs",
		"proof/chaos/a.go":       module + "/proof/checker",
		".hidden/proof/other.go": module + "/proof/checker",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("package a\n\nimport _ \""+imported+"\"\n"), 0o600))
	}
	files, read := dependents(t, root)
	require.Equal(t, 3, read)
	require.Equal(t, []string{filepath.Join(root, "outbox", "a.go"), filepath.Join(root, "relay", "nats", "a_test.go")}, files)
}
