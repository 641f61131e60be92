package release

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// Built is the result of [Build].
type Built struct {
	Version string
	// Modules are the released modules: each comes after the modules that it requires.
	Modules []*BuiltModule
	// Proxy is the folder of the module proxy.
	Proxy string
	root  string
}

// BuiltModule is a module as it is released.
type BuiltModule struct {
	*Module
	GoMod, GoSum []byte
	// Packages are the packages that users import, and Programs the programs that they install.
	Packages, Programs []string
	zipSum, modSum     string
}

// Build makes the go.mod and the go.sum of each released module at the version of versions.yaml:
// without replace lines for modules of this repository, with require lines for the version, and
// with the checksums of the required modules. Nothing else is changed. Build writes a module proxy with
// this version of the modules, and no other, to the folder proxy.
func Build(r *Repository, proxy string) (*Built, error) {
	b := &Built{Version: r.Versions.Version, Proxy: proxy, root: r.Versions.Modules[0]}
	for _, m := range r.Modules {
		if !m.Released {
			continue
		}
		built := &BuiltModule{Module: m}
		var err error
		if built.GoMod, err = b.goMod(r, m); err != nil {
			return nil, err
		}
		if built.GoSum, err = b.goSum(r, m); err != nil {
			return nil, err
		}
		if err = b.write(r, built); err != nil {
			return nil, err
		}
		b.Modules = append(b.Modules, built)
	}
	return b, nil
}

func (b *Built) goMod(r *Repository, m *Module) ([]byte, error) {
	data, err := r.read(m.name("go.mod"))
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	file, err := modfile.Parse(m.name("go.mod"), data, nil)
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	for _, line := range slices.Clone(file.Replace) {
		if !r.Versions.ours(line.Old.Path) {
			return nil, fmt.Errorf("release: %s replaces %s; users would not get the replacement, so require what is needed", m.name("go.mod"), line.Old.Path)
		}
		if err := file.DropReplace(line.Old.Path, line.Old.Version); err != nil {
			return nil, fmt.Errorf("release: %s: %w", m.name("go.mod"), err)
		}
	}
	for _, required := range r.requires(m) {
		if err := file.AddRequire(required, b.Version); err != nil {
			return nil, fmt.Errorf("release: %s: %w", m.name("go.mod"), err)
		}
	}
	file.Cleanup()
	return file.Format()
}

// goSum adds the checksums of the modules of this repository that a module requires, as `go mod
// tidy` does after the release.
func (b *Built) goSum(r *Repository, m *Module) ([]byte, error) {
	var data []byte
	if r.has(m.name("go.sum")) {
		var err error
		if data, err = r.read(m.name("go.sum")); err != nil {
			return nil, fmt.Errorf("release: %w", err)
		}
	}
	sums := map[module.Version]string{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("release: %s has the line %q", m.name("go.sum"), line)
		}
		if !r.Versions.ours(fields[0]) {
			sums[module.Version{Path: fields[0], Version: fields[1]}] = fields[2]
		}
	}
	required := r.requires(m)
	for _, other := range b.Modules {
		if slices.Contains(required, other.Path) {
			sums[module.Version{Path: other.Path, Version: b.Version}] = other.zipSum
			sums[module.Version{Path: other.Path, Version: b.Version + "/go.mod"}] = other.modSum
		}
	}
	keys := make([]module.Version, 0, len(sums))
	for key := range sums {
		keys = append(keys, key)
	}
	module.Sort(keys)
	var out bytes.Buffer
	for _, key := range keys {
		fmt.Fprintf(&out, "%s %s %s\n", key.Path, key.Version, sums[key])
	}
	return out.Bytes(), nil
}

// write writes a module to the proxy, and keeps its checksums.
func (b *Built) write(r *Repository, m *BuiltModule) error {
	escaped, err := escape(m.Path)
	if err != nil {
		return err
	}
	files, err := b.files(r, m)
	if err != nil {
		return err
	}
	if err := m.findPackages(files); err != nil {
		return err
	}
	folder := filepath.Join(b.Proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	var archive bytes.Buffer
	if err := zip.Create(&archive, module.Version{Path: m.Path, Version: b.Version}, files); err != nil {
		return fmt.Errorf("release: zip module %s: %w", m.Path, err)
	}
	// The proxy has one version, whose time nothing asks for.
	info := fmt.Sprintf("{%q:%q,%q:%q}\n", "Version", b.Version, "Time", time.Time{}.Format(time.RFC3339))
	for name, data := range map[string][]byte{
		"list": []byte(b.Version + "\n"), b.Version + ".info": []byte(info), b.Version + ".mod": m.GoMod, b.Version + ".zip": archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	if m.zipSum, err = dirhash.HashZip(filepath.Join(folder, b.Version+".zip"), dirhash.Hash1); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	m.modSum, err = dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(m.GoMod)), nil
	})
	return err
}

// files are the files of a module, as the go command takes them from a tag. [zip.Create] leaves
// out the files of the modules below it. A nested module without a LICENSE has that of the root.
func (b *Built) files(r *Repository, m *BuiltModule) (files []zip.File, err error) {
	prefix := m.Dir + "/"
	if m.Dir == "." {
		prefix = ""
	}
	own := map[string][]byte{"go.mod": m.GoMod}
	if len(m.GoSum) > 0 || r.has(m.name("go.sum")) {
		own["go.sum"] = m.GoSum
	}
	if m.Dir != "." && !r.has(m.name("LICENSE")) && r.has("LICENSE") {
		if own["LICENSE"], err = r.read("LICENSE"); err != nil {
			return nil, fmt.Errorf("release: %w", err)
		}
	}
	for name, data := range own {
		files = append(files, content{name: name, data: data})
	}
	for _, file := range r.files {
		name, below := strings.CutPrefix(file, prefix)
		if _, taken := own[name]; taken || !below {
			continue
		}
		disk := filepath.Join(r.dir, filepath.FromSlash(file))
		info, err := os.Lstat(disk)
		if err != nil {
			return nil, fmt.Errorf("release: %w", err)
		}
		if info.Mode().IsRegular() { // otherwise the go command leaves it out
			files = append(files, content{name: name, disk: disk, info: info})
		}
	}
	slices.SortFunc(files, func(a, b zip.File) int { return strings.Compare(a.Path(), b.Path()) })
	return files, nil
}

// content is a file of a module: one on disk, or data that takes its place.
type content struct {
	name, disk string
	info       fs.FileInfo
	data       []byte
}

func (c content) Path() string { return c.name }

func (c content) Lstat() (fs.FileInfo, error) {
	if c.disk != "" {
		return c.info, nil
	}
	return c, nil
}

func (c content) Open() (io.ReadCloser, error) {
	if c.disk != "" {
		return os.Open(c.disk)
	}
	return io.NopCloser(bytes.NewReader(c.data)), nil
}

func (c content) Name() string     { return filepath.Base(c.name) }
func (c content) Size() int64      { return int64(len(c.data)) }
func (content) Mode() fs.FileMode  { return 0o644 }
func (content) ModTime() time.Time { return time.Time{} }
func (content) IsDir() bool        { return false }
func (content) Sys() any           { return nil }
