// Release makes the commit and the tags of a version, for the root module and for each
// nested module that users import:
//
//	go run ./internal/tools/release -version v0.1.0
//
// It changes only the repository on this machine, and prints the command that pushes.
// With -check it changes nothing: it verifies that the working tree is that of the
// version, and prints the version's section of CHANGELOG.md.
//
// A nested module has a replace line for the root module, so that it is developed and
// tested with the code beside it. Go ignores the replace lines of a dependency: a user
// gets the version that the require line names. So the commit sets these lines to the
// version and keeps the replace lines.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	version := flag.String("version", "", "the version, such as v0.1.0")
	check := flag.Bool("check", false, "only verify the tree of a released version, and print its notes")
	flag.Parse()
	ctx := context.Background()
	r := repository{dir: ".", version: *version}
	if *check {
		notes, err := r.verify(ctx)
		exitOn(err)
		fmt.Println(notes)
		return
	}
	tags, err := r.release(ctx)
	exitOn(err)
	fmt.Printf("release: %s is committed and tagged; publish it with\n\n  git push --atomic origin HEAD:main %s\n", *version, strings.Join(tags, " "))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// command runs a program in a folder and returns what it prints.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s %s in %s: %w\n%s", name, strings.Join(args, " "), dir, err, text)
	}
	return text, nil
}
