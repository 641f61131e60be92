package faultrun

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildOlder builds the program of a process of an older revision, such as a commit or a tag of
// this repository. arguments are further arguments of go build.
func BuildOlder(ctx context.Context, revision, dir string, arguments ...string) (program string, err error) {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return "", err
	}
	if _, err := output(ctx, root, "git", "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}"); err != nil {
		return "", fmt.Errorf("the repository has no commit %.40q; a shallow clone has few: git fetch --unshallow", revision)
	}
	source, archive := filepath.Join(dir, "older"), filepath.Join(dir, "older.tar")
	if err := os.MkdirAll(source, 0o700); err != nil {
		return "", err
	}
	_, err = output(ctx, root, "git", "archive", "--output", archive, revision)
	if err == nil {
		_, err = output(ctx, source, "tar", "-xf", archive)
	}
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "older-node")
	module := filepath.Join(source, "proof")
	if _, err := os.Stat(module); err != nil { // before proof was a module
		module = filepath.Join(source, "internal")
	}
	arguments = append([]string{"build", "-buildvcs=false"}, arguments...)
	_, err = output(ctx, module, "go", append(arguments, "-o", program, "./faultrun/node")...)
	return program, err
}

// output runs a command in a folder, and returns the standard output without the end of the line.
func output(ctx context.Context, dir, name string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w:\n%s", name, arguments[0], err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// CreateTablesWith creates all tables by a program, with the schema of the program's outbox.
func CreateTablesWith(ctx context.Context, program string, spec Spec) error {
	spec.CreatesTables = true
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), spec.variable())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("creating the tables: %w:\n%s", err, out)
	}
	return nil
}
