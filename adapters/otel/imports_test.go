package outboxotel_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The package depends only on the API, so that it works with any SDK.
func TestNoSDKIsImported(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	checked := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		checked++
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, imported := range file.Imports {
			path := strings.Trim(imported.Path.Value, `"`)
			for _, sdk := range []string{"otel/sdk", "otel/exporters", "otel/bridge"} {
				require.NotContains(t, path, sdk, name)
			}
		}
	}
	require.Positive(t, checked)
}
