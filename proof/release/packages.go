package release

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/zip"
)

// notPublic are folders whose packages users do not import, as internal/archtest has them.
var notPublic = []string{"internal", "proof", "samples", "bench", "docs", "testdata"}

// findPackages finds the packages and programs of a module for its users.
func (m *BuiltModule) findPackages(files []zip.File) error {
	checked, err := zip.CheckFiles(files) // leaves out the modules below
	if err != nil {
		return fmt.Errorf("release: module %s: %w", m.Path, err)
	}
	seen := map[string]bool{}
	for _, f := range files {
		name := f.Path()
		dir := path.Dir(name)
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || seen[dir] || !isPublic(path.Join(m.Dir, dir)) || !slices.Contains(checked.Valid, name) {
			continue
		}
		source, err := f.Open()
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, source, parser.PackageClauseOnly)
		if err := source.Close(); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		if err != nil {
			return fmt.Errorf("release: module %s: %w", m.Path, err)
		}
		seen[dir] = true
		if imported := path.Join(m.Path, dir); parsed.Name.Name == "main" {
			m.Programs = append(m.Programs, imported)
		} else {
			m.Packages = append(m.Packages, imported)
		}
	}
	slices.Sort(m.Packages)
	slices.Sort(m.Programs)
	return nil
}

func isPublic(dir string) bool {
	return !slices.ContainsFunc(strings.Split(dir, "/"), func(folder string) bool {
		return slices.Contains(notPublic, folder) || folder != "." && strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_")
	})
}
