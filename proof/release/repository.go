package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// versionsFile is the file that names the version and the modules.
const versionsFile = "versions.yaml"

// Versions is the content of versions.yaml.
type Versions struct {
	// Version is the version of the next release.
	Version string `yaml:"version"`
	// Modules get the version. The first is the root module.
	Modules []string `yaml:"modules"`
	// Excluded are the modules that are never released.
	Excluded []string `yaml:"excluded"`
}

// Module is one module of the repository.
type Module struct {
	Path string
	// Dir is the folder, with slashes, from the root of the repository: "." is the root.
	Dir string
	// Released says that versions.yaml has the module in the list of modules that get the version.
	Released bool
	file     *modfile.File
}

// name is a file of the module, from the root of the repository.
func (m *Module) name(file string) string { return path.Join(m.Dir, file) }

// Tag is the tag of the module at a version, such as relay/nats/v0.1.0.
func (m *Module) Tag(version string) string { return path.Join(m.Dir, version) }

// Repository is a tree of files with the modules in it.
type Repository struct {
	Versions Versions
	// Modules are all modules: a released module comes after the modules that it requires.
	Modules []*Module
	dir     string
	files   []string // with slashes, from dir
}

// Load reads the files of the working tree in dir. A file that git ignores is left out. A file
// that is not yet added is read too, so that a change can be tried before it is committed.
func Load(ctx context.Context, dir string) (*Repository, error) {
	out, err := run(ctx, dir, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, fmt.Errorf("release: list the files of %s: %w", dir, err)
	}
	var files []string
	for _, file := range strings.Split(strings.TrimRight(out, "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(file))); err == nil { // not deleted
			files = append(files, file)
		}
	}
	return load(dir, files)
}

// LoadCommit reads the files of a commit of the repository in dir. It writes them to the folder
// into, which is empty or missing.
func LoadCommit(ctx context.Context, dir, commit, into string) (*Repository, error) {
	index := []string{"GIT_INDEX_FILE=" + filepath.Join(into, ".git-index")}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return nil, err
	}
	tree := filepath.Join(into, "tree")
	for _, arguments := range [][]string{
		{"read-tree", commit},
		{"checkout-index", "--all", "--prefix=" + tree + "/"},
	} {
		if _, err := run(ctx, dir, index, "git", arguments...); err != nil {
			return nil, fmt.Errorf("release: read the files of %s: %w", commit, err)
		}
	}
	out, err := run(ctx, dir, nil, "git", "ls-tree", "-r", "-z", "--full-tree", "--name-only", commit)
	if err != nil {
		return nil, fmt.Errorf("release: list the files of %s: %w", commit, err)
	}
	return load(tree, strings.Split(strings.TrimRight(out, "\x00"), "\x00"))
}

func load(dir string, files []string) (*Repository, error) {
	slices.Sort(files)
	r := &Repository{dir: dir, files: slices.Compact(files)}
	data, err := r.read(versionsFile)
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&r.Versions); err != nil {
		return nil, fmt.Errorf("release: %s: %w", versionsFile, err)
	}
	if err := r.Versions.check(); err != nil {
		return nil, err
	}
	if err := r.readModules(); err != nil {
		return nil, err
	}
	return r, r.sort()
}

func (v Versions) check() error {
	var errs []error
	if !semver.IsValid(v.Version) || semver.Canonical(v.Version) != v.Version {
		errs = append(errs, fmt.Errorf("release: %s: the version %q is not of the form v0.1.0", versionsFile, v.Version))
	}
	if len(v.Modules) == 0 {
		errs = append(errs, fmt.Errorf("release: %s names no modules", versionsFile))
	}
	seen := map[string]bool{}
	for _, name := range slices.Concat(v.Modules, v.Excluded) {
		if seen[name] {
			errs = append(errs, fmt.Errorf("release: %s names module %s twice", versionsFile, name))
		}
		seen[name] = true
		if !v.ours(name) {
			errs = append(errs, fmt.Errorf("release: %s: module %s is not below %s, which comes first", versionsFile, name, v.Modules[0]))
		}
	}
	return errors.Join(errs...)
}

// ours says whether a module is the root module or may be nested in it.
func (v Versions) ours(name string) bool {
	return len(v.Modules) > 0 && (name == v.Modules[0] || strings.HasPrefix(name, v.Modules[0]+"/"))
}

// readModules reads each go.mod and compares the modules with the lists in versions.yaml.
func (r *Repository) readModules() error {
	var errs []error
	unread := map[string]bool{}
	for _, name := range slices.Concat(r.Versions.Modules, r.Versions.Excluded) {
		unread[name] = true
	}
	for _, file := range r.files {
		if path.Base(file) != "go.mod" || slices.Contains(strings.Split(file, "/"), "testdata") {
			continue
		}
		data, err := r.read(file)
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
		parsed, err := modfile.Parse(file, data, nil)
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
		if parsed.Module == nil {
			return fmt.Errorf("release: %s has no module line", file)
		}
		m := &Module{Path: parsed.Module.Mod.Path, Dir: path.Dir(file), file: parsed}
		m.Released = slices.Contains(r.Versions.Modules, m.Path)
		if want := path.Join(r.Versions.Modules[0], m.Dir); m.Path != want {
			errs = append(errs, fmt.Errorf("release: %s names module %s; in this folder it is %s", file, m.Path, want))
		} else if !unread[m.Path] {
			errs = append(errs, fmt.Errorf("release: %s does not list module %s (%s); add it to modules, or to excluded if it gets no tag", versionsFile, m.Path, file))
		}
		delete(unread, m.Path)
		r.Modules = append(r.Modules, m)
	}
	for _, name := range slices.Sorted(maps.Keys(unread)) {
		errs = append(errs, fmt.Errorf("release: %s lists module %s, which has no go.mod", versionsFile, name))
	}
	return errors.Join(errs...)
}

// sort puts the modules into an order in which a released module comes after the modules that
// it requires, and checks the require lines.
func (r *Repository) sort() error {
	byPath := map[string]*Module{}
	for _, m := range r.Modules {
		byPath[m.Path] = m
	}
	var sorted []*Module
	const visiting, done = 1, 2
	state := map[*Module]int{}
	var visit func(m *Module, way []string) error
	visit = func(m *Module, way []string) error {
		way = append(way, m.Path)
		switch state[m] {
		case done:
			return nil
		case visiting:
			return fmt.Errorf("release: modules require each other, and the go.sum of one needs the checksum of the other first: %s", strings.Join(way[slices.Index(way, m.Path):], " -> "))
		}
		state[m] = visiting
		for _, required := range r.requires(m) {
			other := byPath[required]
			switch {
			case other == nil:
				return fmt.Errorf("release: %s requires %s, which is no module of this repository", m.name("go.mod"), required)
			case !m.Released:
				continue
			case !other.Released:
				return fmt.Errorf("release: %s requires %s, which %s excludes from the release", m.name("go.mod"), required, versionsFile)
			}
			if err := visit(other, way); err != nil {
				return err
			}
		}
		state[m] = done
		sorted = append(sorted, m)
		return nil
	}
	for _, m := range r.Modules {
		if err := visit(m, nil); err != nil {
			return err
		}
	}
	r.Modules = sorted
	return nil
}

// requires are the modules of this repository that a module's go.mod requires.
func (r *Repository) requires(m *Module) (paths []string) {
	for _, line := range m.file.Require {
		if r.Versions.ours(line.Mod.Path) {
			paths = append(paths, line.Mod.Path)
		}
	}
	return paths
}

func (r *Repository) read(file string) ([]byte, error) {
	return os.ReadFile(filepath.Join(r.dir, filepath.FromSlash(file)))
}

func (r *Repository) has(file string) bool {
	_, found := slices.BinarySearch(r.files, file)
	return found
}

// escape is a module's path as module proxies write it.
func escape(name string) (string, error) {
	escaped, err := module.EscapePath(name)
	if err != nil {
		return "", fmt.Errorf("release: %w", err)
	}
	return escaped, nil
}

// GoVersion is the go line of the root module.
func (r *Repository) GoVersion() string {
	for _, m := range r.Modules {
		if m.Dir == "." && m.file.Go != nil {
			return m.file.Go.Version
		}
	}
	return ""
}
