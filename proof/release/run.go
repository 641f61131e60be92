package release

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// run runs a program in a folder and returns its output. Variables in env win over variables of the
// process. An error has all that the program wrote.
func run(ctx context.Context, dir string, env []string, name string, arguments ...string) (string, error) {
	return runInput(ctx, dir, env, nil, name, arguments...)
}

func runInput(ctx context.Context, dir string, env []string, input []byte, name string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir = dir
	// A git hook sets variables that name another repository or index.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "GIT_DIR=") || strings.HasPrefix(variable, "GIT_INDEX_FILE=") || strings.HasPrefix(variable, "GIT_WORK_TREE=")
	}), env...)
	cmd.Stdin = bytes.NewReader(input)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(arguments, " "), err, out.String(), stderr.String())
	}
	return out.String(), nil
}

func git(ctx context.Context, dir string, arguments ...string) (string, error) {
	out, err := run(ctx, dir, nil, "git", arguments...)
	return strings.TrimSpace(out), err
}
