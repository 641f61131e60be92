package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

const library = "github.com/outboxkit/outbox-go"

// module is a module below the root module.
type module struct {
	root   string
	folder string // with slashes, such as "relay/nats"
}

func (m module) path() string { return filepath.Join(m.root, filepath.FromSlash(m.folder)) }

// released reports whether users import the module. The others are programs of this
// repository.
func (m module) released() bool { return strings.HasPrefix(m.folder, "relay/") }

// modules finds the nested modules.
func (r repository) modules() (found []module, err error) {
	err = filepath.WalkDir(r.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != r.dir && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		if entry.Name() != "go.mod" || entry.IsDir() {
			return nil
		}
		folder, err := filepath.Rel(r.dir, filepath.Dir(path))
		if err == nil && folder != "." {
			found = append(found, module{root: r.dir, folder: filepath.ToSlash(folder)})
		}
		return err
	})
	return found, err
}

// own are the modules of this repository that the module requires, by path.
func (m module) own(ctx context.Context) (versions map[string]string, err error) {
	text, err := command(ctx, m.path(), "go", "mod", "edit", "-json")
	if err != nil {
		return nil, err
	}
	var file struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		return nil, fmt.Errorf("reading go.mod of %s: %w", m.folder, err)
	}
	versions = map[string]string{}
	for _, r := range file.Require {
		if r.Path == library || strings.HasPrefix(r.Path, library+"/") {
			versions[r.Path] = r.Version
		}
	}
	if versions[library] == "" {
		return nil, fmt.Errorf("go.mod of %s does not require %s", m.folder, library)
	}
	return versions, nil
}

func (m module) setVersion(ctx context.Context, version string) error {
	own, err := m.own(ctx)
	if err != nil {
		return err
	}
	for path := range own {
		if _, err := command(ctx, m.path(), "go", "mod", "edit", "-require="+path+"@"+version); err != nil {
			return err
		}
	}
	return nil
}

func (m module) checkVersion(ctx context.Context, version string) error {
	own, err := m.own(ctx)
	if err != nil {
		return err
	}
	for path, has := range own {
		if has != version {
			return fmt.Errorf("go.mod of %s requires %s %s; the tree was not made by make release VERSION=%s", m.folder, path, has, version)
		}
	}
	return nil
}
