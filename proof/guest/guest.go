// Package guest adds packages to a user's module and reports the consequences: which of the user's
// versions are raised, how many modules and lines of go.sum come in, and how much larger the program
// gets.
//
// A package may raise the version of a module that it imports, directly or through other packages, and
// the versions that such a module requires by itself. A version that is raised for nothing, because a
// go.mod has a line for other packages or for tests, is a fault: the user has to test an upgrade that
// they did not ask for.
package guest

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

//go:embed guests.txt
var guests string

// Library is a module that a guest has, with a package that it imports.
type Library struct{ Module, Version, Package string }

// Libraries are the libraries in guests.txt.
func Libraries() ([]Library, error) { return parse(guests) }

func parse(text string) (libraries []Library, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 || !semver.IsValid(fields[1]) || !strings.HasPrefix(fields[2], fields[0]) {
			return nil, fmt.Errorf("guest: guests.txt has the line %q; it takes a module, a version and a package", strings.TrimSpace(line))
		}
		libraries = append(libraries, Library{fields[0], fields[1], fields[2]})
	}
	return libraries, nil
}

// Go runs a go command in a folder and returns its output.
type Go func(ctx context.Context, dir string, arguments ...string) (string, error)

// Guest is a user's module.
type Guest struct {
	dir      string
	versions map[string]string // of each module in the build list
	sums     map[string]bool   // the lines of go.sum
}

// New makes a module in the folder dir that imports a package of each library. The go line names
// the version of Go that the released modules name.
func New(ctx context.Context, run Go, dir, goVersion string, libraries []Library) (*Guest, error) {
	var file, source strings.Builder
	fmt.Fprintf(&file, "module example.com/guest\n\ngo %s\n\nrequire (\n", goVersion)
	source.WriteString("package main\n\nimport (\n")
	for _, l := range libraries {
		fmt.Fprintf(&file, "\t%s %s\n", l.Module, l.Version)
		fmt.Fprintf(&source, "\t_ %q\n", l.Package)
	}
	file.WriteString(")\n")
	source.WriteString(")\n\nfunc main() {}\n")
	for name, text := range map[string]string{"go.mod": file.String(), "main.go": source.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("guest: %w", err)
		}
	}
	return read(ctx, run, dir)
}

// read tidies a module and reads the versions and the checksums.
func read(ctx context.Context, run Go, dir string) (*Guest, error) {
	if _, err := run(ctx, dir, "mod", "tidy"); err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	g := &Guest{dir: dir, sums: map[string]bool{}}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum")) // go list would add lines
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("guest: %w", err)
	}
	for line := range strings.Lines(string(sums)) {
		g.sums[line] = true
	}
	g.versions, err = versions(ctx, run, dir)
	return g, err
}

// Modules counts the modules of the guest's build list.
func (g *Guest) Modules() int { return len(g.versions) }

// Raised is a module whose version a package raises.
type Raised struct {
	Module, From, To string
	// RequiredBy are the modules that require the new version, if the package imports nothing of
	// the raised module. Otherwise RequiredBy is empty.
	RequiredBy []string
}

// Result has the consequences of a package for a guest.
type Result struct {
	Package string
	Raised  []Raised
	// Sums counts the lines that are added to go.sum, and Modules the modules in the build list
	// that were not in it.
	Sums, Modules int
	// Size is by how many bytes the program gets larger, or zero if it was not built.
	Size int64
}

// Unneeded are the raised modules of which the package imports nothing.
func (r *Result) Unneeded() (unneeded []Raised) {
	for _, raised := range r.Raised {
		if len(raised.RequiredBy) > 0 {
			unneeded = append(unneeded, raised)
		}
	}
	return unneeded
}

// Add adds a package at a version to a copy of the guest in the folder dir. root is the path of the
// repository of the package. If size is set, Add builds both programs.
func (g *Guest) Add(ctx context.Context, run Go, dir, root, imported, version string, size bool) (*Result, error) {
	if err := os.CopyFS(dir, os.DirFS(g.dir)); err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	if _, err := run(ctx, dir, "get", imported+"@"+version); err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	source := fmt.Sprintf("package main\n\nimport _ %q\n", imported)
	if err := os.WriteFile(filepath.Join(dir, "added.go"), []byte(source), 0o644); err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	after, err := read(ctx, run, dir)
	if err != nil {
		return nil, err
	}
	r := &Result{Package: imported}
	for line := range after.sums {
		if !g.sums[line] {
			r.Sums++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after.versions)) {
		switch from, to := g.versions[name], after.versions[name]; {
		case from == "":
			r.Modules++
		case semver.Compare(to, from) > 0:
			r.Raised = append(r.Raised, Raised{Module: name, From: from, To: to})
		}
	}
	if err := g.explain(ctx, run, dir, root, r); err != nil {
		return nil, err
	}
	if size {
		if r.Size, err = grown(ctx, run, g.dir, dir); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// explain finds who requires the raised versions of which the package imports nothing. A version that
// an imported library requires by itself is not the package's: the user of that library has it anyway.
func (g *Guest) explain(ctx context.Context, run Go, dir, root string, r *Result) error {
	if len(r.Raised) == 0 {
		return nil
	}
	out, err := run(ctx, dir, "list", "-deps", "-f", "{{with .Module}}{{.Path}}@{{.Version}}{{end}}", r.Package)
	if err != nil {
		return fmt.Errorf("guest: %w", err)
	}
	imports := slices.Compact(slices.Sorted(slices.Values(strings.Fields(out))))
	anyway, err := g.with(ctx, run, slices.DeleteFunc(slices.Clone(imports), func(module string) bool {
		return strings.HasPrefix(module, root+"@") || strings.HasPrefix(module, root+"/")
	}))
	if err != nil {
		return err
	}
	graph, err := run(ctx, dir, "mod", "graph")
	if err != nil {
		return fmt.Errorf("guest: %w", err)
	}
	for i, raised := range r.Raised {
		if slices.Contains(imports, raised.Module+"@"+raised.To) || semver.Compare(anyway[raised.Module], raised.To) >= 0 {
			continue
		}
		for line := range strings.Lines(graph) {
			by, what, _ := strings.Cut(strings.TrimSpace(line), " ")
			if what == raised.Module+"@"+raised.To && strings.Contains(by, "@") { // not the guest
				r.Raised[i].RequiredBy = append(r.Raised[i].RequiredBy, by)
			}
		}
		if len(r.Raised[i].RequiredBy) == 0 {
			r.Raised[i].RequiredBy = []string{"a module that the graph does not show"}
		}
	}
	return nil
}

// with are the versions of the build list when the guest requires further modules.
func (g *Guest) with(ctx context.Context, run Go, modules []string) (map[string]string, error) {
	if len(modules) == 0 {
		return g.versions, nil
	}
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.CopyFS(dir, os.DirFS(g.dir)); err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	if _, err := run(ctx, dir, append([]string{"get"}, modules...)...); err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	return versions(ctx, run, dir)
}

// versions are the versions of the build list.
func versions(ctx context.Context, run Go, dir string) (map[string]string, error) {
	out, err := run(ctx, dir, "list", "-m", "all")
	if err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	of := map[string]string{}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) == 2 { // the guest itself has no version
			of[fields[0]] = fields[1]
		}
	}
	return of, nil
}

// grown is by how much the program in the second folder is larger than that in the first.
func grown(ctx context.Context, run Go, before, after string) (int64, error) {
	var sizes []int64
	for _, dir := range []string{before, after} {
		program := filepath.Join(after, fmt.Sprintf("program%d", len(sizes)))
		if _, err := run(ctx, dir, "build", "-o", program, "."); err != nil {
			return 0, fmt.Errorf("guest: %w", err)
		}
		info, err := os.Stat(program)
		if err != nil {
			return 0, fmt.Errorf("guest: %w", err)
		}
		sizes = append(sizes, info.Size())
	}
	return sizes[1] - sizes[0], nil
}
