package archtest

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// notPublic are folders whose packages users do not import.
var notPublic = []string{"internal", "proof", "cmd", "samples", "bench", "docs", "testdata"}

// publicPackages are the folders below root with a package that users import, those of
// the other modules included.
func publicPackages(t *testing.T, root string) (folders []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (slices.Contains(notPublic, entry.Name()) || strings.HasPrefix(entry.Name(), ".")):
			return filepath.SkipDir
		case !entry.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			folders = append(folders, filepath.Dir(path))
		}
		return nil
	}))
	slices.Sort(folders)
	return slices.Compact(folders)
}

// undocumented says what the documentation of the package in a folder lacks.
func undocumented(t *testing.T, folder string) (lacks []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	var files []*ast.File
	set := token.NewFileSet()
	text := ""
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		file, err := parser.ParseFile(set, filepath.Join(folder, entry.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
		if !strings.HasSuffix(entry.Name(), "_test.go") {
			text += file.Doc.Text()
		}
	}
	if sentences(text) < 2 {
		lacks = append(lacks, "a package doc of two sentences")
	}
	if len(doc.Examples(files...)) == 0 {
		lacks = append(lacks, "an Example")
	}
	return lacks
}

// sentences counts the sentences of a doc comment outside of its code.
func sentences(text string) (n int) {
	for _, block := range new(comment.Parser).Parse(text).Content {
		if paragraph, ok := block.(*comment.Paragraph); ok {
			text := string(new(comment.Printer).Text(&comment.Doc{Content: []comment.Block{paragraph}}))
			for _, word := range strings.Fields(text) {
				if strings.HasSuffix(word, ".") || strings.HasSuffix(word, ":") {
					n++
				}
			}
		}
	}
	return n
}

func TestEachPublicPackageHasADocAndAnExample(t *testing.T) {
	t.Parallel()
	folders := publicPackages(t, "../..")
	require.Greater(t, len(folders), 20, "the packages were found")
	for _, folder := range folders {
		if lacks := undocumented(t, folder); len(lacks) > 0 {
			t.Errorf("%s lacks %s", strings.TrimPrefix(folder, "../../"), strings.Join(lacks, " and "))
		}
	}
}

func TestAPackageWithoutDocOrExampleIsNamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		code, test string
		lacks      []string
	}{
		"nothing":      {code: "package a", lacks: []string{"a package doc of two sentences", "an Example"}},
		"one sentence": {code: "// Package a is short.\npackage a", test: "package a_test\nfunc ExampleB() {}", lacks: []string{"a package doc of two sentences"}},
		"only a test":  {code: "// Package a is. It\n// does.\npackage a", test: "package a_test\nfunc TestB() {}", lacks: []string{"an Example"}},
		"both":         {code: "// Package a is. It\n// does.\npackage a", test: "package a_test\nfunc Example() {}"},
		"code is text": {code: "// Package a is:\n//\n//\tone. two.\npackage a", test: "package a_test\nfunc Example() {}", lacks: []string{"a package doc of two sentences"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			folder := filepath.Join(root, "a")
			require.NoError(t, os.Mkdir(folder, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "a.go"), []byte(tt.code), 0o600))
			if tt.test != "" {
				require.NoError(t, os.WriteFile(filepath.Join(folder, "a_test.go"), []byte(tt.test), 0o600))
			}
			require.Equal(t, []string{folder}, publicPackages(t, root))
			require.Equal(t, tt.lacks, undocumented(t, folder))
		})
	}
}
