package release_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// box is a repository with modules that replace each other. Module tool requires box only because
// adapter does; module plain uses a package that imports nothing.
var box = map[string]string{
	"LICENSE": "Free.\n",
	"versions.yaml": `version: v0.2.0
modules:
  - github.com/example/box
  - github.com/example/box/cmd/tool
  - github.com/example/box/adapter
  - github.com/example/box/plain
excluded:
  - github.com/example/box/proof
`,
	".gitignore":            "/ignored.go\n",
	"go.mod":                "module github.com/example/box\n\ngo 1.26.0\n",
	"box.go":                "package box\n\nconst Name = \"box\"\n",
	"internal/help/help.go": "package help\n",
	"ignored.go":            "not Go\n",
	"adapter/go.mod": `module github.com/example/box/adapter

go 1.26.0

replace github.com/example/box => ../

require github.com/example/box v0.0.0-00010101000000-000000000000
`,
	"adapter/adapter.go":       "package adapter\n\nimport \"github.com/example/box\"\n\nconst Name = box.Name + \" adapter\"\n",
	"adapter/simple/simple.go": "package simple\n",
	"adapter/LICENSE":          "Free too.\n",
	"cmd/tool/go.mod": `module github.com/example/box/cmd/tool

go 1.26.0

replace (
	github.com/example/box => ../../
	github.com/example/box/adapter => ../../adapter
)

require github.com/example/box/adapter v0.1.0 // as it was

require github.com/example/box v0.0.0-00010101000000-000000000000 // indirect
`,
	"cmd/tool/main.go": "package main\n\nimport \"github.com/example/box/adapter\"\n\nfunc main() { println(adapter.Name) }\n",
	"plain/go.mod": `module github.com/example/box/plain

go 1.26.0

replace github.com/example/box => ../

replace github.com/example/box/adapter => ../adapter

require github.com/example/box/adapter v0.0.0-00010101000000-000000000000
`,
	"plain/plain.go": "package plain\n\nimport _ \"github.com/example/box/adapter/simple\"\n",
	"proof/go.mod": `module github.com/example/box/proof

go 1.26.0

replace github.com/example/box => ../

require github.com/example/box v0.0.0-00010101000000-000000000000
`,
	"proof/proof.go": "package proof\n\nimport _ \"github.com/example/box\"\n",
}

// commitBox makes a git repository with the files of box, some of which are changed. An empty
// file is left out.
func commitBox(t *testing.T, changed map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	files := maps.Clone(box)
	maps.Copy(files, changed)
	for name, text := range files {
		if text != "" {
			writeFile(t, filepath.Join(dir, filepath.FromSlash(name)), text)
		}
	}
	git(t, dir, "init", "--quiet", "--initial-branch", "main")
	for name, value := range map[string]string{"user.name": "Box", "user.email": "box@example.com", "commit.gpgsign": "false", "user.signingkey": ""} {
		git(t, dir, "config", name, value)
	}
	git(t, dir, "add", ".")
	git(t, dir, "commit", "--quiet", "-m", "Begin")
	return dir
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

func git(t *testing.T, dir string, arguments ...string) string {
	t.Helper()
	cmd := exec.Command("git", arguments...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %s: %s", strings.Join(arguments, " "), out)
	return strings.TrimSpace(string(out))
}
